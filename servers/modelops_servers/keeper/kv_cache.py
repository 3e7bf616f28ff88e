"""What keys and values are kept in: whether that can be, before the start; what it is, after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from modelops.config import KvCacheDtype, VllmOptions
from modelops.errors import EngineError, MissingEnvironmentError
from modelops_servers.keeper.geometry import Geometry

if TYPE_CHECKING:
    from modelops.environments import EngineEnvironment

FLAG = "--kv-cache-dtype"
SPELLED: dict[KvCacheDtype, str] = {
    "auto": "auto",
    "bf16": "bfloat16",
    "fp8": "fp8",
    "int8": "int8_per_token_head",
}
"""What vLLM calls each."""
BACKEND = "TRITON_ATTN"
"""The only attention of vLLM that computes with int8 keys and values."""

_BACKEND_FLAG = "--attention-backend"
_SMALLEST_INT8_HEAD = 32
_SCALE_BYTES = 4
_CPU_FLAGS = Path("/proc/cpuinfo")
# Blocks are whole and logs are rounded; a wrong width is off by far more.
_TOLERANCE = 0.04
_WIDTHS = {"float32": 4, "float": 4, "bfloat16": 2, "float16": 2, "half": 2}


def check(
    options: VllmOptions,
    environment: EngineEnvironment,
    geometry: Geometry,
    cpu_flags: Callable[[], set[str]] | None = None,
) -> None:
    """Refuse what this vLLM, model or machine does not have, before anything is started.

    Raises:
        MissingEnvironmentError: it says why, and what is possible here.
    """
    asked = options.kv_cache_dtype
    flags = (cpu_flags or read_cpu_flags)()
    reasons = {d: _why_not(d, options, environment, geometry, flags) for d in SPELLED}
    why = reasons[asked]
    if why is None:
        return
    possible = ", ".join(d for d, reason in reasons.items() if reason is None)
    raise MissingEnvironmentError(
        f"a KV cache of {asked} is not possible here: {why}",
        hint=f"kv_cache_dtype can be {possible}",
    )


def _why_not(
    asked: KvCacheDtype,
    options: VllmOptions,
    environment: EngineEnvironment,
    geometry: Geometry,
    cpu_flags: set[str],
) -> str | None:
    if asked == "auto":
        return None
    this = f"vLLM {environment.version} ({environment.build})"
    choices = environment.flags.get(FLAG)
    if choices is not None and SPELLED[asked] not in choices:
        return f"this {this} has no {SPELLED[asked]}"
    if asked == "fp8" and environment.platform == "cpu":
        return _why_not_fp8_on_cpu(geometry, cpu_flags)
    if asked != "int8":
        return None
    if environment.platform != "cuda":
        return (
            f"{SPELLED[asked]} is computed by vLLM's {BACKEND} alone, on NVIDIA GPUs, and this "
            f"{this} computes on: {environment.platform}, where it would answer with nonsense"
        )
    if geometry.latent:
        return "the model's attention is latent (MLA), which has no such cache"
    if geometry.head_size is None:
        return "the model's config.json does not say how large a head is"
    if geometry.head_size < _SMALLEST_INT8_HEAD:
        return (
            f"the model's heads have {geometry.head_size} values, and it takes "
            f"{_SMALLEST_INT8_HEAD} or more"
        )
    if (given := given_value(options.engine_args, _BACKEND_FLAG)) not in (None, BACKEND):
        return f"only {BACKEND} has it, and engine_args ask for {given}"
    block = given_value(options.engine_args, "--block-size")
    if block is not None and (not block.isdecimal() or int(block) % 16):
        return f"a block holds a multiple of 16 tokens, and engine_args ask for {block}"
    return None


def _why_not_fp8_on_cpu(geometry: Geometry, cpu_flags: set[str]) -> str | None:
    if not cpu_flags & {"avx512f", "amx_tile"}:
        return "on CPUs vLLM needs AVX-512 or AMX for it, and this one has neither"
    if geometry.latent:
        return "the model's attention is latent (MLA), which has no such cache on CPUs"
    if geometry.head_size is not None and geometry.head_size % 32:
        return f"the model's heads have {geometry.head_size} values; on CPUs it takes 32, 64, …"
    return None


def arguments(options: VllmOptions) -> list[str]:
    """Return what vLLM is told; only after ``check``."""
    asked = options.kv_cache_dtype
    if asked == "auto":
        return []
    told = [FLAG, SPELLED[asked]]
    if asked == "int8" and given_value(options.engine_args, _BACKEND_FLAG) is None:
        told += [_BACKEND_FLAG, BACKEND]
    return told


def given_value(engine_args: Sequence[str], flag: str) -> str | None:
    """Return what follows ``flag`` in ``engine_args``; None where it is not there."""
    for i, argument in enumerate(engine_args):
        name, equals, value = argument.partition("=")
        if name.replace("_", "-") != flag:
            continue
        if equals:
            return value
        return engine_args[i + 1] if i + 1 < len(engine_args) else ""
    return None


def read_cpu_flags() -> set[str]:
    """Return what this machine's CPU can do, by the names of Linux."""
    try:
        text = _CPU_FLAGS.read_text()
    except OSError:
        return set()
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return set(value.split())
    return set()


@dataclass(frozen=True)
class Allocated:
    """What an engine allocated for keys and values in each worker; None: it did not say.

    ``exact_to`` is how far off ``size_bytes`` may be, where it was read from a rounded figure.
    """

    size_bytes: int | None
    tokens: int | None
    block_tokens: int | None = None
    exact_to: int = 0


def found(
    options: VllmOptions, geometry: Geometry, allocated: Allocated, dtype: str | None
) -> dict[str, Any]:
    """Return what is in use, by what was allocated; ``dtype`` is what the engine computes in.

    Raises:
        EngineError: it is not what was asked for.
    """
    said: dict[str, Any] = {
        "asked": options.kv_cache_dtype,
        "tokens": allocated.tokens,
        "bytes": allocated.size_bytes,
        "bytes_per_token": None,
        "bytes_per_value": None,
    }
    if not allocated.size_bytes or not allocated.tokens:
        return said
    per_token = allocated.size_bytes / allocated.tokens
    said["bytes_per_token"] = round(per_token, 1)
    said["tokens_per_gib"] = int(2**30 / per_token)
    values = geometry.values_per_token(options.tensor_parallel_size, options.pipeline_parallel_size)
    if values is None:
        return said
    width = per_token / values
    said["bytes_per_value"] = round(width, 3)
    expected = _expected_width(options.kv_cache_dtype, geometry, dtype)
    if expected is None:
        return said
    slack = _TOLERANCE + allocated.exact_to / allocated.size_bytes
    slack += (allocated.block_tokens or 0) / allocated.tokens
    if abs(width / expected - 1) > slack:
        raise EngineError(
            f"the engine was asked for a KV cache of {options.kv_cache_dtype}, which takes "
            f"{expected:g} bytes a value, and allocated {width:.3g}: {allocated.size_bytes} bytes "
            f"for {allocated.tokens} tokens"
        )
    return said


def _expected_width(asked: KvCacheDtype, geometry: Geometry, dtype: str | None) -> float | None:
    if asked == "int8":
        size = geometry.head_size
        return None if size is None else 1 + _SCALE_BYTES / size
    if asked == "fp8":
        return 1
    return _WIDTHS.get("bfloat16" if asked == "bf16" else (dtype or ""))
