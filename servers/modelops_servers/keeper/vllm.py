"""vLLM, kept: started in its environment, ready once it has answered a token, watched."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelops.config import ModelConfig
from modelops.errors import EngineError, ModelopsError
from modelops_servers.keeper import kv_cache, leftovers
from modelops_servers.keeper.client import EngineClient, UnansweredError
from modelops_servers.keeper.engine_process import EngineProcess
from modelops_servers.keeper.geometry import read_geometry
from modelops_servers.keeper.kv_cache import Allocated
from modelops_servers.keeper.model_folder import check_source
from modelops_servers.keeper.processes import Work, family, shared_memory, stopped, workers
from modelops_servers.keeper.progress import Progress
from modelops_servers.keeper.standing import Standing
from modelops_servers.keeper.vllm_command import launch, options_of, temporary_folder
from modelops_servers.keeper.vllm_log import VllmLog
from modelops_servers.keeper.vllm_metrics import Reading, read_metrics

if TYPE_CHECKING:
    from modelops.environments import EngineEnvironment

CANARY = "modelops-canary"
"""The id of the requests that nobody asked for but this process."""

_LOOK_SECONDS = 0.5
_POLL_SECONDS = 1.0
_ANSWER_SECONDS = 60.0
_HEALTH_SECONDS = 5.0
_FAMILY_SECONDS = 5.0
_LATE_SECONDS = 2.0
_TERM_SECONDS = 10.0
_COUNTED_SECONDS = 3.0
# The supervisor kills a process that loads for too long; what this one says of it is more.
_EARLIER = 0.97
_OK = 200
_DEAD = 503

_log = logging.getLogger("vllm")


class VllmKeeper:
    """One vLLM from start to end; ``standing`` is how it is."""

    def __init__(self, config: ModelConfig, socket: Path, environment: EngineEnvironment) -> None:
        self.standing = Standing("starting vLLM")
        self._config = config
        self._socket = socket
        self._environment = environment
        self._options = options_of(config)
        assert config.source is not None  # noqa: S101 - the config sees to it
        self._geometry = read_geometry(config.source)
        self._log = VllmLog()
        self._client = EngineClient(socket=socket)
        self._process: EngineProcess | None = None
        self._notes: tuple[str, ...] = ()
        self._pids: list[int] = []
        self._work = Work()
        self._reading: Reading | None = None
        self._load = 0
        self._dead = ""
        self._canary: asyncio.Task[None] | None = None
        self._progress = Progress(time.monotonic())

    async def start(self) -> dict[str, Any]:
        """Start it; return what is in use once it has answered a one-token request.

        Raises:
            InputError, VerificationError: the model's folder is not whole, or asks for code.
            MissingEnvironmentError: this vLLM or machine cannot do what was asked.
            EngineError: it ended, or was not ready in time; its last lines are in the message.
        """
        await asyncio.to_thread(check_source, self._config)
        kv_cache.check(self._options, self._environment, self._geometry)
        _log.setLevel(logging.INFO)
        how = launch(self._config, self._environment, self._socket)
        self._notes = how.notes
        self._socket.unlink(missing_ok=True)
        if (folder := temporary_folder(self._socket)) is not None:
            folder.mkdir(mode=0o700, exist_ok=True)
        self._process = EngineProcess(how, self._socket.parent, self._on_line)
        began = time.monotonic()
        try:
            await self._process.start()
        except OSError as error:
            raise EngineError(f"vLLM cannot be started: {error}") from error
        try:
            async with asyncio.timeout(self._config.load_seconds * _EARLIER):
                await self._until_ready()
                described = await self._describe(time.monotonic() - began)
        except TimeoutError:
            raise EngineError(
                f"vLLM was not ready after {self._config.load_seconds:g} s: it was "
                f"{self._log.progress}; {self._log.tail()}",
                hint="load_seconds says how long it may take",
            ) from None
        self._progress = Progress(time.monotonic())
        self._log.forget_error()
        self.standing.last_progress = time.time()
        self.standing.set("ready", "it answers")
        return described

    async def watch(self) -> None:
        """Watch it for as long as it runs.

        Raises:
            EngineError: it ended, whatever its exit code, or says that it is dead.
        """
        assert self._process is not None  # noqa: S101 - started
        exit = asyncio.create_task(self._ended())
        polling = asyncio.create_task(self._poll())
        try:
            seen = families_at = time.monotonic()
            while True:
                await asyncio.wait({exit, polling}, timeout=_LOOK_SECONDS)
                for task in (exit, polling):
                    if task.done():
                        task.result()
                now = time.monotonic()
                if now - seen > _LOOK_SECONDS + _LATE_SECONDS:
                    # It is this process that was away.
                    self._progress.slept(now - seen)
                seen = now
                if now >= families_at:
                    self._take_stock()
                    families_at = now + _FAMILY_SECONDS
                self._judge(now)
        finally:
            exit.cancel()
            polling.cancel()
            if self._canary is not None:
                self._canary.cancel()

    async def stop(self, seconds: float | None) -> None:
        """Let what runs finish, up to ``seconds``; then SIGTERM. What is left dies with us."""
        self.standing.set("stopping", "finishing what it has been given")
        if self._canary is not None:
            self._canary.cancel()
        process = self._process
        if process is None or not process.pid:
            return
        with contextlib.suppress(TimeoutError, ModelopsError):
            async with asyncio.timeout(seconds):
                await self._until_done(process)
        process.terminate()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TERM_SECONDS):
                await process.wait()

    async def close(self) -> None:
        """Let go of files and connections."""
        await self._client.__aexit__(None, None, None)
        if self._process is not None:
            self._process.close()
        self._socket.unlink(missing_ok=True)
        if (folder := temporary_folder(self._socket)) is not None:
            leftovers.remove(folder)

    def _take_stock(self) -> None:
        """Look which processes it consists of, and what would stay if they were killed."""
        if self._process is not None and self._process.pid:
            self._pids = family(self._process.pid)
            if (folder := temporary_folder(self._socket)) is not None:
                leftovers.record(folder, shared_memory(self._pids))

    # Starting.

    def _on_line(self, line: str) -> None:
        if not line.strip():
            return
        _log.info(line[:2000], extra={"model": self._config.name})
        if self._log.feed(line) and self.standing.state == "loading":
            self.standing.set("loading", self._log.progress)

    async def _until_ready(self) -> None:
        assert self._process is not None  # noqa: S101 - started
        exit = asyncio.create_task(self._ended())
        answered = asyncio.create_task(self._until_answered())
        try:
            while not answered.done():
                await asyncio.wait(
                    {exit, answered},
                    timeout=_FAMILY_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                self._take_stock()
                if exit.done():
                    exit.result()
            answered.result()
        finally:
            exit.cancel()
            answered.cancel()
            await asyncio.gather(exit, answered, return_exceptions=True)

    async def _until_answered(self) -> None:
        while True:
            with contextlib.suppress(UnansweredError):
                if (await self._client.get("/health", _HEALTH_SECONDS))[0] == _OK:
                    break
            await asyncio.sleep(_LOOK_SECONDS / 2)
        self.standing.set("loading", "asking for one token")
        while True:
            try:
                status, body = await self._one_token(_ANSWER_SECONDS)
            except UnansweredError:
                continue  # a first token may need kernels that are compiled for it
            if status == _OK:
                return
            text = body[:500].decode("utf-8", "replace")
            raise EngineError(f"vLLM answered a request for one token with {status}: {text}")

    async def _one_token(self, seconds: float | None) -> tuple[int, bytes]:
        asked = {"model": self._config.name, "prompt": "a", "max_tokens": 1, "temperature": 0}
        return await self._client.post("/v1/completions", asked, seconds, CANARY)

    async def _describe(self, seconds: float) -> dict[str, Any]:
        try:
            _, models = await self._client.get("/v1/models", _ANSWER_SECONDS)
            _, version = await self._client.get("/version", _ANSWER_SECONDS)
            _, metrics = await self._client.get("/metrics", _ANSWER_SECONDS)
            served = json.loads(models)["data"][0]
            reading = read_metrics(metrics.decode("utf-8", "replace"))
            running = json.loads(version)["version"]
        except (UnansweredError, ValueError, LookupError, TypeError) as error:
            raise EngineError(f"vLLM does not say what it is: {error}") from error
        self._reading = reading
        options = self._options
        exact = reading.cache_bytes is not None
        tokens = reading.allocated_tokens if self._geometry.alike else reading.cache_tokens
        allocated = Allocated(
            size_bytes=reading.cache_bytes if exact else self._log.cache_bytes,
            tokens=tokens or self._log.cache_tokens,
            block_tokens=reading.block_tokens,
            exact_to=0 if exact else int(0.01 * 2**30),
        )
        dtype = self._log.dtype or self._geometry.dtype
        return {
            "engine": "vllm",
            "engine_version": running,
            "build": self._environment.build,
            "provider": self._environment.platform,
            "precision": dtype,
            "served_model_name": served["id"],
            "max_model_len": served.get("max_model_len"),
            "kv_cache": kv_cache.found(options, self._geometry, allocated, dtype),
            "speculative": (
                options.speculative.model_dump(mode="json") if options.speculative else None
            ),
            "tensor_parallel_size": options.tensor_parallel_size,
            "pipeline_parallel_size": options.pipeline_parallel_size,
            "enforce_eager": options.enforce_eager,
            "start_seconds": round(seconds, 1),
            "notes": list(self._notes),
        }

    # Watching.

    async def _ended(self) -> None:
        """Wait for the engine's end, which is an error however it ended.

        Raises:
            EngineError: always.
        """
        assert self._process is not None  # noqa: S101 - started
        code = await self._process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        why = self._dead or self._log.error
        cause = f": {why}" if why else ""
        doing = f" while {self._log.progress}" if self.standing.state == "loading" else ""
        raise EngineError(f"vLLM {how}{doing}{cause}; {self._log.tail()}")

    async def _poll(self) -> None:
        """Look at it again and again; each answer counts, none is waited for by others."""
        while True:
            with contextlib.suppress(UnansweredError, ValueError, LookupError, TypeError):
                await self._look()
            await asyncio.sleep(_POLL_SECONDS)

    async def _look(self) -> None:
        status, _ = await self._client.get("/health", _HEALTH_SECONDS)
        if status == _DEAD:
            self._dead = "its engine is dead (/health says 503)"
            raise EngineError(f"vLLM failed: {self._dead}; {self._log.tail()}")
        _, load = await self._client.get("/load", _HEALTH_SECONDS)
        _, metrics = await self._client.get("/metrics", _HEALTH_SECONDS)
        self._reading = read_metrics(metrics.decode("utf-8", "replace"))
        self._load = int(json.loads(load)["server_load"])
        ours = int(self._progress.canary_is_out)
        in_engine = self._reading.running + self._reading.waiting
        others = max(self._load, in_engine) - ours
        if self._progress.saw(time.monotonic(), self._reading.moving, max(0, others)):
            self.standing.last_progress = time.time()

    def _judge(self, now: float) -> None:
        if self._environment.platform == "cpu":
            self._progress.works(self._work.look(now, workers(self._pids)))
        why = stopped(self._pids) or self._progress.stuck(now)
        if why is not None:
            if self.standing.state != "stuck":
                _log.warning("stuck: %s", why, extra={"model": self._config.name})
            self.standing.set("stuck", why)
            return
        if self.standing.state != "ready":
            self.standing.set("ready", "it answers")
        if self._progress.wants_canary(now):
            self._progress.canary_began(now)
            self._canary = asyncio.create_task(self._ask_canary())

    async def _ask_canary(self) -> None:
        status = 0
        with contextlib.suppress(UnansweredError):
            # For as long as it takes: whether that is too long is judged elsewhere.
            status, _ = await self._one_token(None)
        self._progress.canary_ended(time.monotonic(), answered=status == _OK)
        if status == _OK:
            self.standing.last_progress = time.time()

    async def _until_done(self, process: EngineProcess) -> None:
        """Wait until nothing is in it; where it does not say, something is taken to be.

        Its server may go on counting a request whose client left: what its engine has decides.
        """
        quiet_since = time.monotonic()
        while not process.exited:
            try:
                await self._look()
                reading = self._reading
                in_engine = reading is None or reading.running + reading.waiting > 0
            except (UnansweredError, ValueError, LookupError, TypeError):
                in_engine = True
            now = time.monotonic()
            if in_engine:
                quiet_since = now
            elif not self._load or now - quiet_since > _COUNTED_SECONDS:
                return
            await asyncio.sleep(0.2)
