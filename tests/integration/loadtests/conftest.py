from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from modelops_loadtests.mock import MockServer, Script


@pytest.fixture
def upstream() -> Iterator[Callable[..., str]]:
    """Start a mock with a fault, or none; its base URL is returned, and it ends with the test."""
    with ExitStack() as stack:

        def start(
            fault: str = "", *, models: Sequence[str] = ("fake",), key: str = "", **script: Any
        ) -> str:
            asked = Script(fault=fault, **{"ttft_ms": 5, **script})
            return stack.enter_context(MockServer(asked, models=models, key=key)).url

        yield start
