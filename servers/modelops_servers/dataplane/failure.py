"""Errors of the tree on their way from one process to another."""

from __future__ import annotations

from typing import Any

from modelops import errors
from modelops.errors import EngineError, ModelopsError


def told(error: ModelopsError) -> dict[str, Any]:
    """Return ``error`` as plain values that JSON can hold."""
    return {
        "type": type(error).__name__,
        # A message quotes what the client sent, which may hold lone surrogates.
        "message": error.message.encode("utf-8", "backslashreplace").decode(),
        "hint": error.hint,
    }


def heard(said: dict[str, Any]) -> ModelopsError:
    """Return the error that ``told`` wrote; a type that the tree lacks is an EngineError."""
    kind = getattr(errors, said["type"], EngineError)
    if not (isinstance(kind, type) and issubclass(kind, ModelopsError)):
        kind = EngineError
    return kind(said["message"], hint=said["hint"])
