"""One gateway process, from bound socket to drained exit."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import json
import math
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvloop

from modelops.config import GatewayConfig, ServerConfig
from modelops.dtypes import DTYPES
from modelops.errors import EngineError, MissingEnvironmentError, ModelopsError
from modelops.progress import Progress
from modelops.signature import TensorSpec
from modelops_servers import logs
from modelops_servers.front.app import build
from modelops_servers.front.auth import check_exposure
from modelops_servers.front.http_server import BACKLOG, HttpServer
from modelops_servers.front.metrics import Metrics
from modelops_servers.loading import load
from modelops_servers.model import ServedModel

_EXAMPLE_VALUES = 64
_HOST_HINT = "choose an address of this machine with --host, such as 127.0.0.1"


@dataclass(frozen=True)
class Ready:
    """What is served once every model is ready; ``models`` as the metadata shows them."""

    url: str
    models: tuple[dict[str, Any], ...]
    curl: str


def serve(
    config: GatewayConfig,
    progress: Progress,
    on_ready: Callable[[Ready], None],
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return; a second signal ends at once.

    /livez answers as soon as the socket is bound, /readyz once every model is.

    Raises:
        UsageError: the host is reachable from elsewhere and no API key is set.
        MissingEnvironmentError: the address cannot be listened on, or an engine's needs are not
            there.
        ModelopsError: a model cannot be loaded; nothing is served then.
    """
    check_exposure(config.server.host, config.server.api_keys)
    with _bound(config.server) as listener:
        logs.configure()
        process = _Process(config, listener, progress, on_ready)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(process.run())


class _Process:
    def __init__(
        self,
        config: GatewayConfig,
        listener: socket.socket,
        progress: Progress,
        on_ready: Callable[[Ready], None],
    ) -> None:
        self._config = config
        self._listener = listener
        self._progress = progress
        self._on_ready = on_ready
        metrics = Metrics(m.name for m in config.models)
        self._models = {m.name: ServedModel(m, load, metrics.of(m.name)) for m in config.models}
        self._server = HttpServer(build(config, self._models, metrics))
        self._stop = asyncio.Event()

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal, number)
        serving = loop.create_task(self._server.serve(sockets=[self._listener]))
        loading = loop.create_task(self._load())
        stopping = loop.create_task(self._stop.wait())
        await asyncio.wait({serving, loading, stopping}, return_when=asyncio.FIRST_COMPLETED)
        failure = loading.exception() if loading.done() else None
        if failure is None and not serving.done():
            await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
        try:
            if failure is None:
                await self._drain()
        finally:
            loading.cancel()
            stopping.cancel()
            ended = await asyncio.gather(*(m.stop() for m in self._models.values()))
            self._server.should_exit = True
            await serving
        if failure is not None:
            raise failure
        if not all(ended):
            # A native call that nobody can end would abort the interpreter on its way out.
            self._progress("a call was still in the engine at the end of the drain; leaving it")
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)

    def _on_signal(self, number: int) -> None:
        if self._stop.is_set():
            # The second one does not wait, not even for a native call.
            os._exit(128 + number)
        self._stop.set()

    async def _load(self) -> None:
        """Load the models one after the other: they would only fight for the same cores."""
        for name, model in self._models.items():
            self._progress(f"loading {name} from {model.config.source}")
            try:
                await model.start()
            except ModelopsError:
                raise
            except Exception as error:
                raise EngineError(
                    f"{name} cannot be loaded: {type(error).__name__}: {error}"
                ) from error
        # What is loaded now lives as long as the process: keep the collector from walking it.
        gc.collect()
        gc.freeze()
        if not self._stop.is_set():
            self._on_ready(self._ready())

    async def _drain(self) -> None:
        busy = sum(m.in_flight for m in self._models.values())
        self._progress(
            f"stopping: {busy} requests in flight, up to {self._config.server.drain_seconds:g} s"
        )
        deadline = time.monotonic() + self._config.server.drain_seconds
        await asyncio.gather(*(m.drain(deadline) for m in self._models.values()))

    def _ready(self) -> Ready:
        host, port = self._listener.getsockname()[:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        models = tuple(_summary(m) for m in self._models.values())
        return Ready(url, models, _curl(url, self._config, next(iter(self._models.values()))))


def _summary(model: ServedModel) -> dict[str, Any]:
    assert model.loaded is not None  # noqa: S101 - called once all are loaded
    artifact = model.loaded.artifact
    return {
        "name": model.name,
        "version": str(artifact.version),
        "source": str(artifact.path),
        "task": artifact.manifest.task,
        "digest": artifact.manifest.digest,
        **model.describe(),
    }


def _curl(url: str, config: GatewayConfig, model: ServedModel) -> str:
    """A request to copy into a terminal, right for the first model."""
    assert model.loaded is not None  # noqa: S101 - called once all are loaded
    manifest = model.loaded.artifact.manifest
    key = "-H 'Authorization: Bearer YOUR_KEY' " if config.server.api_keys else ""
    if model.loaded.text is not None:
        path = "v1/embeddings"
        body: dict[str, Any] = {"model": model.name, "input": "hello world"}
    else:
        sizes = {name: max(1, dim.min) for name, dim in manifest.signature.dims.items()}
        inputs = [_example(spec, spec.sized(sizes)) for spec in manifest.signature.inputs]
        if None in inputs:  # too large to type, or of a dtype that JSON lacks
            return f"curl {key}{url}/v2/models/{model.name}"
        path, body = f"v2/models/{model.name}/infer", {"inputs": inputs}
    return f"curl {key}-H 'Content-Type: application/json' {url}/{path} -d '{json.dumps(body)}'"


def _example(spec: TensorSpec, shape: tuple[int, ...]) -> dict[str, Any] | None:
    count = math.prod(shape)
    if count > _EXAMPLE_VALUES or spec.dtype in ("float16", "bfloat16"):
        return None
    one: Any = {"bool": True, "string": "text"}.get(spec.dtype, 1)
    if spec.bounds is not None:
        one = min(max(1, spec.bounds[0]), spec.bounds[1])
    datatype = DTYPES[spec.dtype].oip
    return {"name": spec.name, "shape": shape, "datatype": datatype, "data": [one] * count}


@contextlib.contextmanager
def _bound(server: ServerConfig) -> Iterator[socket.socket]:
    """Bind before anything is loaded, so that a port in use is told at once."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            server.host, server.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise MissingEnvironmentError(
            f"cannot listen on {server.host}: {error.strerror or error}",
            hint=_HOST_HINT,
        ) from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            here = error.errno != errno.EADDRNOTAVAIL
            raise MissingEnvironmentError(
                f"cannot listen on {server.host}:{server.port}: {error.strerror or error}",
                hint="choose another port with --port; --port 0 takes a free one"
                if here
                else _HOST_HINT,
            ) from error
        listener.setblocking(False)
        yield listener
