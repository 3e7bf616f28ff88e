"""Flags of ``modelops serve``: where each stands in a configuration, and how its error is told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from modelops.errors import UsageError

_Model = TypeVar("_Model", bound=BaseModel)

# The flags that stand elsewhere in an entry of modelops.yaml, or under another name.
_PLACE: dict[str, tuple[str, ...]] = {
    "max_batch": ("batching", "max_size"),
    "max_delay_ms": ("batching", "max_delay_ms"),
    "max_queue": ("admission", "max_queue"),
    "api_key": ("api_keys",),
    "kv_cache_dtype": ("options", "kv_cache_dtype"),
    "kv_cache_gib": ("options", "kv_cache_gib"),
    "max_model_len": ("options", "max_model_len"),
    "tensor_parallel_size": ("options", "tensor_parallel_size"),
    "pipeline_parallel_size": ("options", "pipeline_parallel_size"),
    "distributed_executor_backend": ("options", "distributed_executor_backend"),
    "speculative": ("options", "speculative"),
    "enforce_eager": ("options", "enforce_eager"),
    "engine_arg": ("options", "engine_args"),
    "compile": ("options", "compile"),
}
# What vLLM's own --speculative-config calls them.
_SPECULATIVE = {
    "num_speculative_tokens": "tokens",
    "prompt_lookup_max": "lookup_max",
    "prompt_lookup_min": "lookup_min",
}
_NAME = {there: name for name, there in _PLACE.items()}


def flag(name: str) -> str:
    """Return an option as it is typed: ``max_batch`` is ``--max-batch``."""
    return "--" + name.replace("_", "-")


def place(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``options`` as an entry of ``modelops.yaml`` nests them."""
    placed: dict[str, Any] = {}
    for name, value in options.items():
        *outer, last = _PLACE.get(name, (name,))
        inner = placed
        for key in outer:
            inner = inner.setdefault(key, {})
        inner[last] = _speculative(value) if name == "speculative" else value
    return placed


def _speculative(value: str) -> object:
    """Return what ``ngram``, or JSON with its settings, says in a configuration."""
    if not value.lstrip().startswith("{"):
        return {"method": value}
    try:
        said: dict[str, Any] = json.loads(value)
    except (ValueError, RecursionError) as error:
        raise UsageError(
            f"--speculative: {value[:64]!r} is no JSON",
            hint="""--speculative ngram, or such as '{"method": "ngram", "tokens": 4}'""",
        ) from error
    return {_SPECULATIVE.get(key, key): given for key, given in said.items()}


def validated(kind: type[_Model], fields: Mapping[str, Any]) -> _Model:
    """Return a model of ``fields``, which came from flags.

    Raises:
        UsageError: a value does not fit; the flag is named and keys are never shown.
    """
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        raise UsageError(_explain(error, fields), hint="modelops serve --help") from error


def _explain(error: ValidationError, fields: Mapping[str, Any]) -> str:
    said = []
    for item in error.errors(include_url=False, include_input=False):
        there = tuple(part for part in item["loc"] if isinstance(part, str))
        what = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
        if there == ("options",):  # of all that belong there, not of one
            given = ", ".join(flag(_NAME["options", key]) for key in fields["options"])
            said.append(f"{given}: {what}")
        else:
            said.append(f"{_flag_of(there)}: {what}" if there else what)
    return "; ".join(said)


def _flag_of(there: tuple[str, ...]) -> str:
    """Return the flag that says what stands ``there``, and the key inside its value."""
    for end in range(len(there), 0, -1):
        if name := _NAME.get(there[:end]):
            return ": ".join((flag(name), *there[end:]))
    return flag("_".join(there))
