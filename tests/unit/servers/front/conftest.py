"""Every test that takes ``run`` is run over both kinds of replica."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from scripted_engine import Run, Scenario, Stage, hosted, inline


@pytest.fixture(params=[hosted, inline], ids=["hosted", "inline"])
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Run:
    """Return what runs a scenario over a fresh replica of either kind."""

    def begin(scenario: Scenario, *, max_size: int = 8, lanes: int = 1) -> None:
        async def main() -> None:
            stage = Stage(max_size, lanes)
            async with request.param(stage, tmp_path):
                await asyncio.wait_for(cast(Any, scenario(stage)), 25)

        asyncio.run(main())

    return begin
