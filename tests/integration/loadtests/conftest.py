from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FAKE = Path(__file__).parents[2] / "fakes" / "fake_upstream.py"


@pytest.fixture
def upstream() -> Iterator[Callable[..., str]]:
    """Start a fake server; its base URL is returned, and it ends with the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(mode: str = "fixed", *arguments: str) -> str:
        process = subprocess.Popen(
            [sys.executable, str(FAKE), "--mode", mode, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        started.append(process)
        assert process.stdout is not None
        return f"http://127.0.0.1:{json.loads(process.stdout.readline())['port']}"

    yield start
    for process in started:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        process.wait(timeout=5)
