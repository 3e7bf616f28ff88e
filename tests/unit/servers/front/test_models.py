"""A front's models and their hosts: connected for as long as the supervisor tells of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest
from fake_artifacts import make_artifact
from scripted_engine import Stage, hosted, until

from modelops.config import LimitsConfig, ModelConfig
from modelops_servers.front import models as module
from modelops_servers.front.metrics import Metrics
from modelops_servers.front.models import Models
from modelops_servers.front.version import Version


class Front:
    """Models without HTTP, told by the test what the supervisor would tell."""

    def __init__(self, folder: Path) -> None:
        self.artifact = make_artifact(folder / "m")
        self.said: list[dict[str, Any]] = []
        self.models = Models(LimitsConfig(), Metrics(), 1, self.said.append)
        self.path = folder / "s"

    @property
    def version(self) -> Version:
        return self.models.find("m")

    @property
    def ready(self) -> bool:
        return bool(self.version.replicas)

    @property
    def host(self) -> dict[str, Any]:
        """How the one replica is, as this front tells."""
        [one] = self.version.report()["replicas"]
        return cast(dict[str, Any], one)

    async def told(self, state: str = "ready", id: str = "m/1/0.1") -> None:
        config = ModelConfig(name="m", source=self.artifact.path, engine="scripted")
        replica = {
            "id": id, "socket": str(self.path), "state": state, "why": f"it is {state}",
            "since": 5.0, "next": "", "restarts": 0, "last_progress": None, "describe": {},
        }  # fmt: skip
        version = {
            "version": "1", "kind": "tensor", "path": str(self.artifact.path),
            "config": config.model_dump(mode="json"), "replicas": [replica],
        }  # fmt: skip
        await self._apply([version])

    async def unloaded(self) -> None:
        """The supervisor tells of no version any more."""
        await self._apply([])

    async def _apply(self, versions: list[dict[str, Any]]) -> None:
        model = {
            "name": "m", "aliases": [], "required": True, "default": "1", "unavailable": "",
            "since": 0.0, "versions": versions,
        }  # fmt: skip
        await self.models.apply([model])


Scenario = Callable[[Front], Awaitable[None]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], None]:
    """Return what runs a scenario over a front that has no host yet, and retries quickly."""
    monkeypatch.setattr(module, "_MOST_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(module, "_LOST_SECONDS", 0.1)

    def begin(scenario: Scenario) -> None:
        async def main() -> None:
            front = Front(tmp_path)
            try:
                await scenario(front)
            finally:
                await front.models.close()

        asyncio.run(asyncio.wait_for(main(), 25))

    return begin


@contextlib.asynccontextmanager
async def listening(front: Front) -> AsyncIterator[Stage]:
    """A host that listens at the front's path; in the end the front leaves it."""
    stage = Stage(8)
    async with hosted(stage, front.path.parent):
        yield stage
        await front.models.close()


def connections(stage: Stage) -> int:
    """How many fronts the host sees, without the stage's own replica."""
    assert stage.reactor is not None
    return len(stage.reactor._connections) - 1


def test_a_connect_that_failed_is_tried_again_until_it_succeeds(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(front: Front) -> None:
        await front.told()
        await until(lambda: front.host["state"] == "failed")
        assert "cannot connect to the engine host: No such file" in front.host["why"]
        assert front.host["next"] == "it is tried again"
        assert not front.ready
        since = front.host["since"]
        await asyncio.sleep(0.3)
        assert front.host["since"] == since
        async with listening(front):
            await until(lambda: front.ready)
            assert front.host["state"] == "ready"
            assert front.said[-1] == {"event": "routing", "ready": {"m/1": True}}

    run(scenario)


def test_only_a_host_that_is_told_to_be_ready_is_tried(run: Callable[[Scenario], None]) -> None:
    async def scenario(front: Front) -> None:
        await front.told()
        await until(lambda: front.host["state"] == "failed")
        await front.told("stuck")
        async with listening(front) as stage:
            await asyncio.sleep(0.4)
            assert connections(stage) == 0
            assert front.host["state"] == "stuck"
            await front.told()
            await until(lambda: front.ready)

    run(scenario)


def test_a_host_that_is_told_of_no_more_is_tried_no_more(run: Callable[[Scenario], None]) -> None:
    async def scenario(front: Front) -> None:
        await front.told()
        await until(lambda: front.host["state"] == "failed")
        await front.unloaded()
        await until(lambda: not front.models._tasks)
        async with listening(front) as stage:
            await asyncio.sleep(0.3)
            assert connections(stage) == 0

    run(scenario)


def test_a_connection_that_is_lost_is_made_anew_where_the_host_lives(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(front: Front) -> None:
        async with listening(front) as stage:
            await front.told()
            await until(lambda: front.ready)
            [lost] = front.version.replicas
            cast(Any, lost)._transport.abort()
            await until(lambda: not front.ready)
            assert front.host["state"] == "failed"
            assert "just ended" in front.host["why"]
            await until(lambda: front.ready)
            assert front.host["state"] == "ready"
            [fresh] = front.version.replicas
            assert fresh is not lost
            await until(lambda: connections(stage) == 1)

    run(scenario)


def test_a_version_that_is_let_go_while_it_connects_leaves_no_connection(
    run: Callable[[Scenario], None],
) -> None:
    async def scenario(front: Front) -> None:
        async with listening(front) as stage:
            for turns in range(12):
                await front.told()
                for _ in range(turns):
                    await asyncio.sleep(0)
                await front.unloaded()
                await until(lambda: not front.models._tasks)
            await until(lambda: connections(stage) == 0)

    run(scenario)
