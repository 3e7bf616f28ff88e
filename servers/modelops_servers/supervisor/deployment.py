"""What is to run: each model, its versions, and the replicas of each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from modelops import registry
from modelops.artifact import Manifest
from modelops.config import ModelConfig
from modelops.errors import EngineError, ModelopsError
from modelops.resolving import find_source, version
from modelops_servers.dataplane.failure import heard
from modelops_servers.supervisor.replica import HostReplica


@dataclass
class InlineReplica:
    """An engine inside every front: what each front has said of it, by the front's index."""

    id: str
    describe: dict[str, Any] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    failure: ModelopsError | None = None

    def heard(self, front: int, message: dict[str, Any]) -> None:
        """Take a front's word for how its engine is."""
        if message["event"] == "ready":
            self.describe = message["describe"]
            self.failure = None
            self.ready.add(front)
        else:
            self.failure = heard(message["error"])
            self.ready.discard(front)

    def told(self) -> dict[str, Any]:
        """Return its part of the topology; how it is each front knows best itself."""
        return {"id": self.id, "socket": None}


class Deployment:
    """One version of one model, and its replicas.

    ``path`` is None where somebody else runs the engine, and ``manifest`` where that, or the model
    is no artifact but a Hugging Face folder.

    Raises:
        InputError, IntegrityError: there is no such artifact, or its manifest is off.
        MissingEnvironmentError: an engine that is a server of its own is not installed, or this
            machine cannot do what its options ask for.
    """

    def __init__(self, config: ModelConfig, runtime: Path, on_change: Callable[[], None]) -> None:
        self.path: Path | None = None
        self.manifest: Manifest | None = None
        if config.source is not None:
            self.path, self.manifest = find_source(config.source)
        self.config = config.model_copy(update={"source": self.path})
        self.version = str(version(self.config))
        if config.is_server:
            registry.resolve("engines", config.engine).check(self.config)
        self.hosts: list[HostReplica] = []
        self.inline: InlineReplica | None = None
        name = f"{config.name}/{self.version}"
        if config.inline:
            self.inline = InlineReplica(f"{name}/inline@{time.monotonic_ns():x}")
        else:
            # The time keeps a deployment of a version apart from an earlier one of the same.
            stamp = f"{time.monotonic_ns():x}"
            self.hosts = [
                HostReplica(f"{name}/{i}@{stamp}", self.config, runtime, on_change)
                for i in range(config.replicas)
            ]

    def same_as(self, other: Deployment | None) -> bool:
        """Whether ``other`` runs the same version well: a version on disk never changes."""
        if other is None or other.failure is not None:
            return False
        return other.path == self.path and other.config.url == self.config.url

    async def start(self) -> None:
        """Start its hosts; an inline engine is started by the fronts."""
        await asyncio.gather(*(host.start() for host in self.hosts))

    async def stop(self, seconds: float) -> None:
        """Stop its hosts."""
        await asyncio.gather(*(host.stop(seconds) for host in self.hosts))

    def look(self, now: float) -> None:
        """See to silent hosts."""
        for host in self.hosts:
            host.look(now)

    def is_ready(self, fronts: int) -> bool:
        """Whether every replica is, in every one of ``fronts``."""
        if self.inline is not None:
            return len(self.inline.ready) >= fronts
        return all(host.state == "ready" for host in self.hosts)

    def inline_seconds(self, front: int) -> float:
        """How long it may take to load in ``front``; 0 where it does not load there."""
        inline = self.inline
        if inline is None or inline.failure is not None or front in inline.ready:
            return 0.0
        return self.config.load_seconds

    @property
    def failure(self) -> ModelopsError | None:
        """Why it is not ready, where its last start failed."""
        if self.inline is not None:
            return self.inline.failure
        return next((h.failure for h in self.hosts if h.failure is not None), None)

    @property
    def describe(self) -> dict[str, Any]:
        """What its engine says is really in use."""
        if self.inline is not None:
            return self.inline.describe
        return next((h.describe for h in self.hosts if h.describe), {})

    async def wait(
        self, fronts: int, seconds: float, tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """Wait until it is ready; ``tell`` is told how far it has come.

        Raises:
            ModelopsError: it failed, or was not ready in time.
        """
        end = time.monotonic() + seconds
        said = ""
        while not self.is_ready(fronts):
            doing = next((h.why for h in self.hosts if h.state == "loading"), said)
            if doing != said:
                said = doing
                tell(said)
            if self.failure is not None:
                raise self.failure
            if time.monotonic() > end:
                raise EngineError(f"{self.config.name} was not ready after {seconds:g} s")
            await asyncio.sleep(0.02)

    def told(self) -> dict[str, Any]:
        """Return its part of the topology."""
        replicas = [self.inline.told()] if self.inline else [host.told() for host in self.hosts]
        return {
            "version": self.version,
            "kind": "text" if self.config.is_server else "tensor",
            "path": None if self.path is None else str(self.path),
            "config": self.config.model_dump(mode="json"),
            "replicas": replicas,
        }


@dataclass
class ServedModel:
    """One name: what was asked for, and the versions that are there."""

    name: str
    asked: list[ModelConfig]
    required: bool
    aliases: tuple[str, ...] = ()
    default: str | None = None
    unavailable: str = ""
    since: float = 0.0
    versions: dict[str, Deployment] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    def settle_default(self) -> None:
        """Let the newest version answer where none is asked for."""
        self.default = max(self.versions, key=int, default=None)

    def told(self) -> dict[str, Any]:
        """Return its part of the topology."""
        return {
            "name": self.name,
            "aliases": list(self.aliases),
            "required": self.required,
            "default": self.default,
            "unavailable": self.unavailable,
            "since": self.since,
            "versions": [d.told() for d in self.versions.values()],
        }
