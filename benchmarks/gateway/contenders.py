"""Who is measured, with which settings, and how each is started."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gateway.artifacts import RESULTS, Model
from gateway.environments import python_of
from gateway.processes import Running, free_port

BENCHMARKS = Path(__file__).parents[1]
HOSTED = "modelops hosted"
INLINE = "modelops inline"
FASTAPI_EXECUTOR = "FastAPI route, executor"
BARE_LOOP = "bare ASGI, loop"
BARE_EXECUTOR = "bare ASGI, executor"
LITSERVE = "LitServe"
MLSERVER = "MLServer"


@dataclass(frozen=True)
class Contender:
    """``command`` is given the model, the port and the threads of one inference."""

    name: str
    note: str
    command: Callable[[Model, int, int], list[str]]
    environment: str | None = None

    def start(self, model: Model, threads: int) -> Running:
        """Start it for ``model``; it is not ready yet."""
        port = free_port()
        logs = RESULTS / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        log = logs / f"{model.name}-{self.name.replace(' ', '-').replace(',', '')}.log"
        return Running(
            self.name,
            self.command(model, port, threads),
            port,
            log,
            {"PYTHONPATH": str(BENCHMARKS), "PYTHONUNBUFFERED": "1"},
        )


def infer_path(model: Model) -> str:
    """The route that every contender answers."""
    return f"/v2/models/{model.name}/infer"


def all_for(scenario: str) -> list[Contender]:
    """Every contender, as it is best set for ``mlp`` or ``minilm``."""
    return [
        Contender(HOSTED, "engine in its own process; metrics, limits, deadlines on", _modelops()),
        Contender(INLINE, "engine in the front; metrics, limits on", _modelops("--inline")),
        Contender(BARE_LOOP, "model run on the event loop", _own("bare_asgi")),
        Contender(BARE_EXECUTOR, "model run in a thread pool", _own("bare_asgi", "--executor")),
        Contender("FastAPI route, loop", "async def, pydantic body", _own("fastapi_route")),
        Contender(
            FASTAPI_EXECUTOR, "def route, pydantic body", _own("fastapi_route", "--executor")
        ),
        _litserve(LITSERVE, _LITSERVE[scenario]),
        *([_litserve("LitServe, batches of 16", _LITSERVE["mlp"])] if scenario == "minilm" else []),
        _mlserver(scenario),
    ]


def leaking() -> Contender:
    """The soak's positive control."""
    return Contender("leaking ASGI", "leaks on purpose", _own("leaking_asgi"))


def _modelops(*flags: str) -> Callable[[Model, int, int], list[str]]:
    def command(model: Model, port: int, threads: int) -> list[str]:
        serve = [sys.executable, "-m", "modelops", "serve", str(model.artifact), "--json"]
        return [*serve, "--port", str(port), "--threads", str(threads), *flags]

    return command


def _own(
    server: str, *flags: str, environment: str | None = None
) -> Callable[[Model, int, int], list[str]]:
    def command(model: Model, port: int, threads: int) -> list[str]:
        python = python_of(environment) if environment else sys.executable
        run = [str(python), "-m", f"gateway.servers.{server}", "--model", str(model.onnx)]
        return [*run, "--name", model.name, "--port", str(port), "--threads", str(threads), *flags]

    return command


def _litserve(name: str, flags: tuple[str, ...]) -> Contender:
    note = "1 API and 1 worker process, " + " ".join(flags).replace("--", "")
    command = _own("litserve_api", *flags, environment="litserve")
    return Contender(name, note, command, "litserve")


def _mlserver(scenario: str) -> Contender:
    size, seconds, why = _MLSERVER[scenario]

    def command(model: Model, port: int, threads: int) -> list[str]:
        folder = RESULTS / "mlserver" / model.name
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "debug": False,
            "host": "127.0.0.1",
            "http_port": port,
            "grpc_port": free_port(),
            "metrics_port": free_port(),
            "metrics_dir": str(folder),
            "environments_dir": str(folder),
            "parallel_workers": 1,
        }
        model_settings = {
            "name": model.name,
            "implementation": "gateway.servers.mlserver_runtime.OnnxModel",
            "parameters": {"uri": str(model.onnx), "extra": {"threads": threads}},
            "max_batch_size": size,
            "max_batch_time": seconds,
        }
        (folder / "settings.json").write_text(json.dumps(settings))
        (folder / "model-settings.json").write_text(json.dumps(model_settings))
        return [str(python_of("mlserver").with_name("mlserver")), "start", str(folder)]

    return Contender(MLSERVER, f"1 worker process, custom runtime, {why}", command, "mlserver")


# The best of the settings tried for each. LitServe pads a batch to its longest item, which on a CPU
# costs more than the batch saves: 67 ms of processor a request with batches of 16, 45 without.
_LITSERVE = {
    "mlp": ("--batch", "16", "--delay-ms", "1", "--fast-queue"),
    "minilm": ("--batch", "1", "--fast-queue"),
}
_MLSERVER = {
    "mlp": (16, 0.0005, "adaptive batching 16 / 0.5 ms"),
    "minilm": (0, 0.0, "batching off: its batcher joins unequal lengths into a wrong shape"),
}
