"""From an entry of the configuration to vLLM's command line and environment."""

from __future__ import annotations

import difflib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from modelops.config import ModelConfig, VllmOptions
from modelops.errors import InputError, MissingEnvironmentError
from modelops_servers.keeper import kv_cache, parallel, ray_cluster
from modelops_servers.keeper.leftovers import SUFFIX

if TYPE_CHECKING:
    from modelops.environments import EngineEnvironment

MODULE = "vllm.entrypoints.openai.api_server"

# It takes the path of a unix socket of its own, with a UUID, in the folder for temporary files.
_LONGEST_TEMPORARY = 68
_CPU_CACHE_GIB = 4.0
_CPU_CACHE_SHARE = 0.25
_MEMORY = Path("/proc/meminfo")
# Each would change what is told to vLLM behind the command line's back, or is not its business.
_DROPPED = (
    "VLLM_API_KEY", "VLLM_CONFIGURE_LOGGING", "VLLM_LOGGING_CONFIG_PATH", "VLLM_LOGGING_PREFIX",
    "VLLM_CPU_KVCACHE_SPACE", "VLLM_ATTENTION_BACKEND", "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
)  # fmt: skip
_SET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "INFO",
    "NO_COLOR": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONSAFEPATH": "1",
    "PYTHONUNBUFFERED": "1",
}


@dataclass(frozen=True)
class Launch:
    """How an engine is started; ``notes`` is what was decided for it.

    ``environment`` is the whole of it; ``told`` is what of it is said to the engine here.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    notes: tuple[str, ...] = ()
    told: Mapping[str, str] = field(default_factory=dict)


def options_of(config: ModelConfig) -> VllmOptions:
    """Return the options of an entry whose engine is vLLM."""
    assert isinstance(config.options, VllmOptions)  # noqa: S101 - the config sees to it
    return config.options


def launch(
    config: ModelConfig,
    environment: EngineEnvironment,
    socket: Path,
    base: Mapping[str, str] | None = None,
) -> Launch:
    """Return how vLLM is started for ``config``, to listen on ``socket``.

    Raises:
        InputError: an engine argument is none of this vLLM's.
        MissingEnvironmentError: this vLLM lacks what an option asks for.
    """
    options = options_of(config)
    assert config.source is not None  # noqa: S101 - the config sees to it
    base = os.environ if base is None else base
    notes: list[str] = []
    arguments = [
        "--model", str(config.source.absolute()),  # it runs in another folder
        "--served-model-name", config.name, *config.aliases,
        "--uds", str(socket),
        # Its own count of requests: the engine's is only as fresh as its last step.
        "--enable-server-load-tracking",
        "--disable-uvicorn-access-log",
    ]  # fmt: skip
    arguments += _typed(options)
    arguments += kv_cache.arguments(options)
    arguments += _cache_memory(options, environment, notes)
    _check_flags(arguments, environment)
    _check_engine_args(options.engine_args, environment)
    told = {**_SET, **environment.variables, **_workers(options, environment, base, notes)}
    kept = _kept(environment, socket, base)
    if ray_cluster.ADDRESS in kept and "RAY_TMPDIR" in told:
        told[ray_cluster.ADDRESS] = kept[ray_cluster.ADDRESS]
    return Launch(
        command=(str(environment.python), "-m", MODULE, *arguments, *options.engine_args),
        environment=kept | told,
        notes=tuple(notes),
        told=told,
    )


def temporary_folder(socket: Path) -> Path | None:
    """Return where the engine beside ``socket`` keeps temporary files; None: where all do."""
    folder = socket.with_suffix(SUFFIX)
    return folder if len(os.fsencode(folder)) <= _LONGEST_TEMPORARY else None


def _typed(options: VllmOptions) -> list[str]:
    told: list[str] = []
    if options.dtype != "auto":
        told += ["--dtype", options.dtype]
    if options.max_model_len is not None:
        told += ["--max-model-len", str(options.max_model_len)]
    if options.gpu_memory_utilization is not None:
        told += ["--gpu-memory-utilization", f"{options.gpu_memory_utilization:g}"]
    if options.tensor_parallel_size > 1:
        told += ["--tensor-parallel-size", str(options.tensor_parallel_size)]
    if options.pipeline_parallel_size > 1:
        told += ["--pipeline-parallel-size", str(options.pipeline_parallel_size)]
    if options.distributed_executor_backend is not None:
        told += ["--distributed-executor-backend", options.distributed_executor_backend]
    if options.quantization is not None:
        told += ["--quantization", options.quantization]
    if options.enforce_eager:
        told += ["--enforce-eager"]
    if options.speculative is not None:
        asked = options.speculative
        said = {
            "method": asked.method,
            "num_speculative_tokens": asked.tokens,
            "prompt_lookup_max": asked.lookup_max,
            "prompt_lookup_min": asked.lookup_min,
        }
        told += ["--speculative-config", json.dumps(said)]
    return told


def _workers(
    options: VllmOptions, environment: EngineEnvironment, base: Mapping[str, str], notes: list[str]
) -> dict[str, str]:
    """Return what the workers are told, where there are several."""
    if options.distributed_executor_backend == "ray":
        notes.append(ray_cluster.note(base, parallel.workers(options)))
        return ray_cluster.variables(base)
    cores = parallel.binding(options, environment, base)
    if cores is None:
        return {}
    notes.append(f"each worker has cores of its own ({cores}): {parallel.BIND} gives others")
    return {parallel.BIND: cores}


def _cache_memory(
    options: VllmOptions, environment: EngineEnvironment, notes: list[str]
) -> list[str]:
    gib = options.kv_cache_gib
    if gib is None and environment.platform == "cpu" and options.gpu_memory_utilization is None:
        # vLLM would take nearly all memory of the machine, which others use as well.
        workers = parallel.workers(options)
        gib = min(_CPU_CACHE_GIB, _CPU_CACHE_SHARE * available_gib() / workers)
        whose = "the KV cache" if workers == 1 else f"the KV cache of each of {workers} workers"
        notes.append(
            f"{whose} has {gib:.3g} GiB, in all at most a quarter of the memory that was free: "
            "set kv_cache_gib for another size"
        )
    return [] if gib is None else ["--kv-cache-memory-bytes", str(int(gib * 2**30))]


def available_gib() -> float:
    """Return how much main memory is free for new work, in GiB."""
    for line in _MEMORY.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / 2**20
    return _CPU_CACHE_GIB


def _check_flags(arguments: Sequence[str], environment: EngineEnvironment) -> None:
    if not environment.flags:
        return
    missing = [a for a in arguments if a.startswith("--") and a not in environment.flags]
    if missing:
        raise MissingEnvironmentError(
            f"vLLM {environment.version} ({environment.build}) does not know {', '.join(missing)}",
            hint="modelops engine install vllm brings the version that this was tested with",
        )


def _check_engine_args(engine_args: Sequence[str], environment: EngineEnvironment) -> None:
    """Find a misspelt argument now, not after half a minute of imports."""
    if not environment.flags:
        return
    for argument in engine_args:
        flag = argument.partition("=")[0].replace("_", "-").partition(".")[0]
        if not flag.startswith("--") or flag in environment.flags:
            continue
        near = difflib.get_close_matches(flag, environment.flags, n=1, cutoff=0.5)
        suggestion = f"; did you mean {near[0]}?" if near else ""
        raise InputError(
            f"engine_args: vLLM {environment.version} has no argument {flag[:64]}{suggestion}"
        )


def _kept(environment: EngineEnvironment, socket: Path, base: Mapping[str, str]) -> dict[str, str]:
    kept = {
        name: value
        for name, value in environment.environment(base).items()
        if not name.startswith(("PYTHON", "MODELOPS_")) and name not in _DROPPED
    }
    folder = temporary_folder(socket)
    if folder is not None:
        kept["TMPDIR"] = str(folder)
        # What was compiled is worth keeping, and would otherwise be among the temporary files.
        cache = Path(platformdirs.user_cache_dir("modelops")) / "torchinductor"
        kept.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache))
    return kept
