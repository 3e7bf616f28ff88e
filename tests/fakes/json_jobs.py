"""Functions for a JSON process to run that do what a codec never should."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import orjson

from modelops.errors import EngineError
from modelops_servers.front.status import FieldError

_HEAVY = ("fastapi", "starlette", "uvicorn", "torch", "onnxruntime")


def identity() -> tuple[int, int, list[str], list[str]]:
    """Process id, parent's, command line, and which heavy modules are there."""
    return os.getpid(), os.getppid(), sys.argv, [name for name in _HEAVY if name in sys.modules]


def holdings() -> tuple[int, int]:
    """Resident bytes and open descriptors of the process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096, len(list(Path("/proc/self/fd").iterdir()))


def inputs_of(body: bytes) -> Any:
    return orjson.loads(body)["input"]


def raise_field() -> None:
    raise FieldError("it is off", param="input", code="too_odd")


def raise_engine() -> None:
    raise EngineError("no", hint="try again")


def raise_what_cannot_travel() -> None:
    class OddError(Exception):
        pass

    raise OddError("odd")


def return_what_cannot_travel() -> Any:
    return lambda: 1
