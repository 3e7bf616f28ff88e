"""Owns the config, the sockets and the children; does no work of theirs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from modelops.config import GatewayConfig, ModelConfig
from modelops.errors import EngineError, ModelNotFoundError, ModelopsError, RequestError
from modelops.progress import Progress
from modelops.resolving import resolve_again
from modelops_servers.machine import usable_cores
from modelops_servers.supervisor.child import Message
from modelops_servers.supervisor.deployment import Deployment, ServedModel
from modelops_servers.supervisor.fronts import Front
from modelops_servers.supervisor.runtime import RuntimeFolder
from modelops_servers.supervisor.silence import Watch
from modelops_servers.supervisor.spare import Spare

_LOOK_SECONDS = 0.25
_LATE_SECONDS = 1.0
_METRICS_SECONDS = 2.0
_HANDOVER_SECONDS = 600.0
_ROUTED_SECONDS = 60.0


class Supervisor:
    """Starts everything, keeps it running, and lets it end in order."""

    def __init__(self, config: GatewayConfig, fds: dict[str, int], progress: Progress) -> None:
        """``fds`` are the listening sockets: "http", and "admin" where there is one."""
        self._config = config
        self._progress = progress
        self._runtime = RuntimeFolder()
        self.models: dict[str, ServedModel] = {}
        first = {
            "config": _plain(config),
            "fds": fds,
            "fronts": config.server.fronts,
        }
        numbers = list(fds.values())
        self._spare = Spare(numbers)
        self._started = False
        self.fronts = [
            Front(i, {**first, "index": i}, numbers, self._spare, self._on_front, self._on_ask)
            for i in range(config.server.fronts)
        ]
        self._changed = asyncio.Event()
        self._retiring: set[asyncio.Task[None]] = set()
        self._stopping = False

    async def start(self) -> None:
        """Start all, and return when every model is ready or has been given up for now.

        Raises:
            ModelopsError: a required model failed, every model did, or the fronts do not start.
        """
        for entry in self._config.models:
            model = self.models.setdefault(
                entry.name, ServedModel(entry.name, [], False, entry.aliases)
            )
            model.asked.append(entry)
            model.aliases = tuple({*model.aliases, *entry.aliases})
            model.required = model.required or bool(entry.required)
            deployment = self._deploy(entry)
            if deployment.version in model.versions:
                raise RequestError(f"{entry.name} version {deployment.version} is there twice")
            model.versions[deployment.version] = deployment
        for model in self.models.values():
            model.settle_default()
        self._tell()
        await asyncio.gather(*(front.start() for front in self.fronts))
        # As many at once as there are cores: more would only fight for them.
        at_once = asyncio.Semaphore(usable_cores())
        try:
            async with asyncio.TaskGroup() as group:
                for model in self.models.values():
                    for deployment in model.versions.values():
                        group.create_task(self._first_start(model, deployment, at_once))
        except* ModelopsError as failed:
            raise failed.exceptions[0] from None
        if not any(d.is_ready(len(self.fronts)) for d in self._deployments()):
            failures = [d.failure for d in self._deployments() if d.failure is not None]
            raise failures[0] if failures else EngineError("no model could be loaded")
        await self._until_routed(self._deployments())
        self._started = True

    async def watch(self) -> None:
        """See to what is silent or late, until cancelled."""
        watch = Watch(time.monotonic())
        while True:
            began = time.monotonic()
            await asyncio.sleep(_LOOK_SECONDS)
            if time.monotonic() - began > _LATE_SECONDS:
                # It is this process that was away: first hear what was said meanwhile.
                await asyncio.sleep(_LOOK_SECONDS)
            now = time.monotonic()
            for deployment in self._deployments():
                deployment.look(now)
            watched = watch.look(now)
            for front in self.fronts:
                front.look(watched, self._patience(front.index))
            # Its imports take a second of a processor: not from those who are waited for.
            busy = any(front.state == "loading" for front in self.fronts)
            self._spare.look(watched, wanted=self._started and not busy)

    async def stop(self, drain_seconds: float) -> None:
        """Drain the fronts, then end the hosts."""
        self._stopping = True
        await self._spare.stop()
        await asyncio.gather(*(front.stop(drain_seconds) for front in self.fronts))
        await asyncio.gather(*(d.stop(2.0) for d in self._deployments()))
        self._runtime.close()

    def _patience(self, front: int) -> float:
        """Return for how long an engine that loads inside a front may keep it from speaking."""
        return max((d.inline_seconds(front) for d in self._deployments()), default=0.0)

    def _deployments(self) -> list[Deployment]:
        return [d for m in self.models.values() for d in m.versions.values()]

    def _deploy(self, entry: ModelConfig) -> Deployment:
        return Deployment(entry, self._runtime.path, self._tell)

    def _tell(self) -> None:
        topology = [model.told() for model in self.models.values()]
        for front in self.fronts:
            front.tell(topology)
        self._changed.set()

    async def _first_start(
        self, model: ServedModel, deployment: Deployment, at_once: asyncio.Semaphore
    ) -> None:
        """Start it and wait; a failure is final only where the model is required."""
        seconds = deployment.config.load_seconds + 10
        try:
            async with at_once:
                self._progress(
                    f"loading {model.name} from {deployment.path or deployment.config.url}"
                )
                await deployment.start()
                await self._wait(deployment, seconds)
        except ModelopsError as error:
            if model.required or len(self.models) == 1:
                raise
            self._progress(f"{model.name} cannot be loaded, and is not required: {error.message}")

    async def _wait(self, deployment: Deployment, seconds: float) -> None:
        def tell(doing: str) -> None:
            if deployment.config.is_server:  # it takes a minute, others a moment
                self._progress(f"{deployment.config.name}: {doing}")

        work = asyncio.ensure_future(deployment.wait(len(self.fronts), seconds, tell))
        try:
            while not work.done():
                await asyncio.wait({work}, timeout=0.2)
                hopeless = self._hopeless()
                if len(hopeless) == len(self.fronts):
                    raise hopeless[0]
            await work
        finally:
            work.cancel()

    def _hopeless(self) -> list[ModelopsError]:
        """Return why each front that will not come up does not."""
        return [f.hopeless for f in self.fronts if f.hopeless is not None]

    async def _until_routed(self, deployments: Sequence[Deployment]) -> None:
        """Wait until every front serves, and can reach those of ``deployments`` that are ready.

        Raises:
            EngineError: a front does not come up, or does not get there.
        """
        try:
            async with asyncio.timeout(_ROUTED_SECONDS):
                await self._routed(deployments)
        except TimeoutError:
            raise EngineError(
                f"a front did not reach every engine that is ready within {_ROUTED_SECONDS:g} s"
            ) from None

    async def _routed(self, deployments: Sequence[Deployment]) -> None:
        while True:
            self._changed.clear()
            wanted = {
                f"{d.config.name}/{d.version}" for d in deployments if d.is_ready(len(self.fronts))
            }
            if all(f.serving and all(f.ready.get(w) for w in wanted) for f in self.fronts):
                return
            if hopeless := self._hopeless():
                raise hopeless[0]
            await self._changed.wait()

    def _on_front(self, index: int, message: Message) -> None:
        if message["event"] in ("ready", "failed"):
            for deployment in self._deployments():
                if deployment.inline is not None and deployment.inline.id == message["id"]:
                    deployment.inline.heard(index, message)
        elif message["event"] == "ended":
            for deployment in self._deployments():
                if deployment.inline is not None:
                    deployment.inline.ready.discard(index)
            if not self._stopping:
                self._progress(f"front {index} {message['why']}; it is restarted")
        if message["event"] != "routing":
            standing = [front.told() for front in self.fronts]
            for front in self.fronts:
                front.say({"op": "fronts", "standing": standing})
        self._changed.set()

    async def _on_ask(self, message: Message) -> dict[str, Any]:
        match message["op"]:
            case "load":
                await self._load(self._model(message["model"]))
            case "unload":
                await self._unload(self._model(message["model"]))
            case "metrics":
                return {"texts": await self._metrics(message["front"])}
        return {}

    def _model(self, name: str) -> ServedModel:
        for model in self.models.values():
            if name == model.name or name in model.aliases:
                return model
        raise ModelNotFoundError(
            f"model {name[:64]!r} is not in the configuration; it has {', '.join(self.models)}"
        )

    async def _load(self, model: ServedModel) -> None:
        """Bring up what the configuration means now; until that is ready, the old one serves."""
        async with model.lock:
            before = dict(model.versions)
            wanted = [self._deploy(resolve_again(entry)) for entry in model.asked]
            fresh = [d for d in wanted if not d.same_as(before.get(d.version))]
            # A front starts an engine of its own once it is told of it; a host is told of later.
            model.versions |= {d.version: d for d in fresh if d.inline is not None}
            self._tell()
            try:
                for deployment in fresh:
                    await deployment.start()
                    await self._wait(deployment, deployment.config.load_seconds + 10)
                # Every front reaches the new one before it takes the old one's place.
                model.versions = before | {d.version: d for d in fresh}
                self._tell()
                await self._until_routed(fresh)
            except ModelopsError:
                model.versions = before
                self._tell()
                await asyncio.gather(*(d.stop(0) for d in fresh))
                raise
            kept = {d.version: before[d.version] for d in wanted if d not in fresh}
            model.versions = kept | {d.version: d for d in fresh}
            model.unavailable = ""
            model.settle_default()
            self._tell()
            try:
                await self._until_routed(list(model.versions.values()))
            finally:
                self._retire([d for d in before.values() if d not in model.versions.values()])

    async def _unload(self, model: ServedModel) -> None:
        async with model.lock:
            old = list(model.versions.values())
            model.versions.clear()
            model.default = None
            if not model.unavailable:
                model.unavailable = "unloaded; an operator can load it again"
                model.since = time.time()
            self._tell()
            self._retire(old)

    def _retire(self, old: list[Deployment]) -> None:
        """End hosts that no front is told of any more, once the fronts have left them."""
        for deployment in old:
            task = asyncio.get_running_loop().create_task(deployment.stop(_HANDOVER_SECONDS))
            self._retiring.add(task)
            task.add_done_callback(self._retiring.discard)

    async def _metrics(self, asking: int) -> list[str]:
        others = [f for f in self.fronts if f.index != asking]
        said = await asyncio.gather(*(f.ask({"op": "metrics"}, _METRICS_SECONDS) for f in others))
        return [answer["text"] for answer in said if answer is not None]


def _plain(config: GatewayConfig) -> dict[str, Any]:
    """Return the config as JSON can hold it; it goes to our own children, keys and all."""
    plain: dict[str, Any] = config.model_dump(mode="json", exclude={"models"})
    plain["server"]["api_keys"] = [k.get_secret_value() for k in config.server.api_keys]
    return plain
