"""The models this front serves: made to match what the supervisor says, found by name."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from modelops.artifact import Artifact, check_file, read_manifest, version_of
from modelops.config import LimitsConfig, ModelConfig
from modelops.errors import InputError, ModelNotFoundError, ModelopsError, NotReadyError
from modelops_servers.dataplane.failure import told
from modelops_servers.front.hosted import HostedReplica
from modelops_servers.front.inline import InlineReplica
from modelops_servers.front.json_process import JsonProcess
from modelops_servers.front.metrics import Metrics
from modelops_servers.front.openai.served_text import TextReplica, TextVersion
from modelops_servers.front.served import Served
from modelops_servers.front.standing import Standing
from modelops_servers.front.status import FieldError
from modelops_servers.front.version import Version
from modelops_servers.text import TOKENIZER, TextInputs

_log = logging.getLogger(__name__)

_SHOWN = 64
_LOOK_SECONDS = 0.5
_LEAVE_SECONDS = 600.0
_REACH_SECONDS = 1.0
_LOST_SECONDS = 0.5
_FIRST_RETRY_SECONDS = 0.1
_MOST_RETRY_SECONDS = 2.0
_CONNECTING = "connecting to an engine host"

Report = Callable[[dict[str, Any]], None]


@dataclass
class Model:
    """One name: its versions, and which of them answers where none is asked for."""

    name: str
    required: bool
    default: str | None = None
    unavailable: str = ""
    """Why there is no version at all, such as "unloaded by an operator"."""
    since: float = 0.0
    """Since when that is so, in UNIX seconds."""
    versions: dict[str, Version | TextVersion] = field(default_factory=dict)
    broken: dict[str, tuple[str, float]] = field(default_factory=dict)
    """Versions whose files this front cannot open: why, and since when (UNIX seconds)."""


class Models:
    """All models; changed only by ``apply``, read by every request."""

    def __init__(self, limits: LimitsConfig, metrics: Metrics, fronts: int, report: Report) -> None:
        self.limits = limits
        self.metrics = metrics
        self.created = int(time.time())
        self.models: dict[str, Model] = {}
        self._names: dict[str, Model] = {}
        self.fronts: list[dict[str, Any]] = []
        """How each HTTP process is, as the supervisor told last."""
        self._fronts = fronts
        self._report = report
        self._connections: dict[str, HostedReplica | InlineReplica | TextReplica] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._draining = False
        self._told: dict[str, bool] = {}
        self.json = JsonProcess()
        """Reads and writes JSON that would hold up this loop."""

    # What requests ask.

    def model(self, name: str) -> Model:
        """Return the model served as ``name``, which may be an alias.

        Raises:
            ModelNotFoundError: there is none; the message lists what is served.
        """
        found = self._names.get(name)
        if found is None:
            shown = repr(name[:_SHOWN]) + ("…" if len(name) > _SHOWN else "")
            raise ModelNotFoundError(
                f"model {shown} is not served here; served: {', '.join(self.models)}"
            )
        return found

    def find(self, name: str, version: str | None = None) -> Version:
        """Return what answers tensors for ``name``, at ``version`` where one is asked for.

        Raises:
            ModelNotFoundError: no such model, or not this version of it.
            NotReadyError: it is not loaded yet, or unloaded.
            FieldError: it is a text model.
        """
        found = self.served(name, version)
        if isinstance(found, TextVersion):
            raise FieldError(
                f"model {name!r} makes text, not tensors; ask it at /v1/chat/completions",
                param="model",
            )
        return found

    def find_text(self, name: str) -> TextVersion:
        """Return the text model that answers for ``name``.

        Raises:
            ModelNotFoundError: no such model.
            NotReadyError: it is not loaded yet, or unloaded.
            FieldError: it makes no text.
        """
        found = self.served(name)
        if isinstance(found, TextVersion):
            return found
        there = "/v1/embeddings" if found.text is not None else f"/v2/models/{name}/infer"
        raise FieldError(f"model {name!r} makes no text; ask it at {there}", param="model")

    def served(self, name: str, version: str | None = None) -> Version | TextVersion:
        """Return what answers for ``name``, whatever it makes; raises as ``find``."""
        model = self.model(name)
        wanted = model.default if version is None else version
        found = model.versions.get(wanted or "")
        if wanted in model.broken:
            raise NotReadyError(f"model {model.name!r} is failed: {model.broken[wanted][0]}")
        if found is None and (version is None or not model.versions):
            raise NotReadyError(
                f"model {model.name!r} is {model.unavailable or 'loading: opening its files'}"
            )
        if found is None:
            raise ModelNotFoundError(
                f"model {model.name!r} is served at version {', '.join(model.versions)}, "
                f"not {(version or '')[:_SHOWN]!r}"
            )
        return found

    def __iter__(self) -> Iterator[Model]:
        return iter(self.models.values())

    @property
    def in_flight(self) -> int:
        """Requests of all models that wait or are being answered."""
        return sum(v.in_flight for m in self for v in m.versions.values())

    # What the supervisor says.

    async def apply(self, topology: list[dict[str, Any]]) -> None:
        """Become what ``topology`` says: open new versions, connect, let go of old ones."""
        models: dict[str, Model] = {}
        names: dict[str, Model] = {}
        for said in topology:
            old = self.models.get(said["name"])
            model = Model(
                said["name"], said["required"], said["default"], said["unavailable"], said["since"]
            )
            if old is not None:
                model.versions = {
                    v["version"]: old.versions[v["version"]]
                    for v in said["versions"]
                    if v["version"] in old.versions and _is_same(old.versions[v["version"]], v)
                }
                for number, version in old.versions.items():
                    if model.versions.get(number) is not version:
                        self._start(self._let_go(version))
            for v in said["versions"]:
                if v["version"] not in model.versions:
                    opened = await self._open(v)
                    if isinstance(opened, str):
                        before = old.broken.get(v["version"]) if old is not None else None
                        since = before[1] if before is not None else time.time()
                        model.broken[v["version"]] = (opened, since)
                        continue
                    model.versions[v["version"]] = opened
                self._apply_replicas(model.versions[v["version"]], v["replicas"])
            models[model.name] = model
            for name in (model.name, *said["aliases"]):
                names[name] = model
        self.models, self._names = models, names
        self.tell()

    async def reach(self) -> None:
        """Wait, not for long, until the hosts that are ready are connected."""
        pending = [task for task in self._tasks if task.get_name() == _CONNECTING]
        if pending:
            await asyncio.wait(pending, timeout=_REACH_SECONDS)

    def drain(self) -> None:
        """Admit nothing more."""
        self._draining = True
        for model in self:
            for version in model.versions.values():
                version.draining = True

    def abandon(self) -> None:
        """Fail what is still in flight: the drain is over."""
        for replica in self._connections.values():
            replica.abandon(NotReadyError("the server stopped before the answer"))

    def tell(self) -> None:
        """Tell the supervisor which versions can be asked, where that has changed."""
        now = {
            f"{model.name}/{number}": bool(version.replicas)
            for model in self
            for number, version in model.versions.items()
        }
        if now != self._told:
            self._told = now
            self._report({"event": "routing", "ready": now})

    async def watch(self) -> None:
        """Look at the engines inside this front, and at lost connections, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            for model in self:
                for version in model.versions.values():
                    for standing in version.standings.values():
                        replica = self._connections.get(standing.id)
                        if isinstance(replica, InlineReplica) and isinstance(version, Version):
                            self._look(version, standing, replica)
            self.tell()

    async def close(self) -> None:
        """Let go of every engine, and of the JSON process."""
        await self.json.close()
        for task in self._tasks:
            task.cancel()
        replicas = list(self._connections.values())
        # Whose connection is lost from now on is not connected again.
        self._connections.clear()
        for replica in replicas:
            replica.close()

    # The parts of apply.

    async def _open(self, said: dict[str, Any]) -> Version | TextVersion | str:
        """Open a version's files; or say what is off, which its host finds out as well."""
        config = ModelConfig.model_validate(said["config"])
        if said["kind"] == "text":
            path = None if said["path"] is None else Path(said["path"])
            text_version = TextVersion(config, said["version"], path, self.metrics, self._fronts)
            text_version.draining = self._draining
            return text_version
        try:
            artifact, text = await asyncio.to_thread(_open_files, Path(said["path"]))
        except (ModelopsError, OSError) as error:
            _log.warning("%s version %s: %s", config.name, said["version"], error)
            known = error if isinstance(error, ModelopsError) else InputError(str(error))
            for replica in said["replicas"]:
                if replica["socket"] is None:
                    message = {"event": "failed", "id": replica["id"], "error": told(known)}
                    self._report(message)
            return known.message
        metrics = self.metrics.of(config.name, said["version"])
        version = Version(config, artifact, text, metrics, self._fronts)
        version.draining = self._draining
        return version

    def _apply_replicas(self, version: Version | TextVersion, said: list[dict[str, Any]]) -> None:
        names = {r["id"] for r in said}
        for gone in [r.id for r in version.replicas if r.id not in names]:
            version.spare(gone)
        for id in version.standings.keys() - names:
            version.apart.pop(id, None)
            replica = self._connections.pop(id, None)
            if replica is not None:
                replica.close()
        standings = {}
        for r in said:
            if r["socket"] is None:
                assert isinstance(version, Version)  # noqa: S101 - an engine in here has tensors
                standings[r["id"]] = self._inline(version, r["id"])
                continue
            standing = standings[r["id"]] = Standing(
                r["id"], r["state"], r["why"], r["since"], r["next"], r["restarts"],
                r["last_progress"], r["describe"],
            )  # fmt: skip
            replica = self._connections.get(standing.id)
            if standing.state != "ready":
                version.spare(standing.id)
            elif isinstance(version, TextVersion):
                self._use_text(version, standing.id, r["socket"])
            elif replica is None:
                self._connections[standing.id] = self._hosted(version, standing.id, r["socket"])
            elif isinstance(replica, HostedReplica) and replica.connected:
                version.use(replica)
        version.standings = standings
        version.resize()

    def _use_text(self, version: TextVersion, id: str, socket: str) -> None:
        replica = self._connections.get(id)
        if replica is None:
            replica = self._connections[id] = TextReplica.of(id, version.config, socket)
        assert isinstance(replica, TextReplica)  # noqa: S101 - a version stays what it is
        version.use(replica)

    def _hosted(self, version: Version, id: str, path: str, after: float = 0.0) -> HostedReplica:
        metrics = self.metrics.of(version.config.name, version.number)
        replica = HostedReplica(id, version.signature, metrics)
        replica.on_lost = lambda lost: self._lost(version, lost, path)
        self._start(self._connect(version, replica, path, after), name=_CONNECTING)
        return replica

    async def _connect(
        self, version: Version, replica: HostedReplica, path: str, after: float
    ) -> None:
        """Try for as long as the supervisor tells of this host, and only while it is ready."""
        await asyncio.sleep(after)
        delay = _FIRST_RETRY_SECONDS
        while self._connections.get(replica.id) is replica:
            standing = version.standings.get(replica.id)
            if standing is not None and standing.state == "ready":
                try:
                    await replica.connect(path)
                    break
                except OSError as error:
                    self._not_reached(version, replica, error)
            await asyncio.sleep(delay)
            delay = min(2 * delay, _MOST_RETRY_SECONDS)
        standing = version.standings.get(replica.id)
        if standing is not None and standing.state == "ready" and replica.connected:
            version.use(replica)
            self.tell()

    def _not_reached(self, version: Version, replica: HostedReplica, error: OSError) -> None:
        told_of = self._connections.get(replica.id) is replica
        if told_of and replica.id not in version.apart:
            _log.warning("cannot connect to the engine host %s: %s", replica.id, error)
            why = f"cannot connect to the engine host: {error.strerror or error}"
            _set_apart(version, replica.id, why, "it is tried again")

    def _lost(self, version: Version, replica: HostedReplica, path: str) -> None:
        version.spare(replica.id)
        if self._connections.get(replica.id) is replica:
            _set_apart(version, replica.id, "the engine host has just ended", "it is restarted")
            # Mostly the supervisor says so in a moment, and this host is told of no more.
            fresh = self._hosted(version, replica.id, path, after=_LOST_SECONDS)
            self._connections[replica.id] = fresh
        self.tell()

    def _inline(self, version: Version, id: str) -> Standing:
        if id not in self._connections:
            from modelops_servers.loading import prepare

            config = version.config.model_copy(update={"source": version.artifact.path})
            metrics = self.metrics.of(config.name, version.number)
            replica = InlineReplica(id, lambda: prepare(config), metrics)
            self._connections[id] = replica
            standing = Standing(id, "loading", "starting the engine", time.time(), "")
            version.standings[id] = standing
            self._start(self._begin(version, standing, replica))
        return version.standings[id]

    async def _begin(self, version: Version, standing: Standing, replica: InlineReplica) -> None:
        try:
            await replica.start()
        except ModelopsError as error:
            self._look(version, standing, replica)
            self._report({"event": "failed", "id": standing.id, "error": told(error)})
            return
        assert replica.prepared is not None  # noqa: S101 - it has started
        standing.describe = replica.prepared.describe()
        version.resize()
        self._look(version, standing, replica)
        self._report({"event": "ready", "id": standing.id, "describe": dict(standing.describe)})
        self.tell()

    def _look(self, version: Version, standing: Standing, replica: InlineReplica) -> None:
        health = replica.pulse.health(replica.in_flight)
        standing.state, standing.why, standing.since = health.state, health.why, health.since
        standing.last_progress = health.last_progress
        standing.next = _NEXT.get(health.state, "")
        if health.state == "ready":
            version.use(replica)
        else:
            version.spare(replica.id)

    async def _let_go(self, version: Served[Any]) -> None:
        """Finish what an old version still answers, then drop it."""
        end = time.monotonic() + _LEAVE_SECONDS
        while version.in_flight and time.monotonic() < end:
            await asyncio.sleep(0.05)
        version.replicas = []
        for id in version.standings:
            replica = self._connections.pop(id, None)
            if replica is not None:
                replica.close()

    def _start(self, work: Any, name: str | None = None) -> None:
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_NEXT = {
    "ready": "nothing to do",
    "loading": "it turns ready by itself once it is loaded and warmed up",
    "stuck": "new requests get 503; it turns ready when the call ends, or restart the gateway",
    "failed": "mend the cause and load it again",
}


def _is_same(version: Version | TextVersion, said: dict[str, Any]) -> bool:
    """Whether ``said`` is of the same files, or of the same server elsewhere."""
    path = None if version.path is None else str(version.path)
    return bool(path == said["path"] and version.config.url == said["config"]["url"])


def _set_apart(version: Version, id: str, why: str, next: str) -> None:
    told = version.standings.get(id)
    if told is not None:
        version.apart[id] = replace(told, state="failed", why=why, since=time.time(), next=next)


def _open_files(path: Path) -> tuple[Artifact, TextInputs | None]:
    """Read what the front needs of an artifact; its engine checks the whole of it."""
    manifest = read_manifest(path)
    if TOKENIZER in manifest.files:
        check_file(path, manifest, TOKENIZER)
    artifact = Artifact(path=path, version=version_of(path.name) or 1, manifest=manifest)
    return artifact, TextInputs.of(artifact)
