"""One model on several workers: whether that can be, before the start; and which cores each has."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from modelops.config import VllmOptions
from modelops.errors import InputError, MissingEnvironmentError
from modelops_servers.keeper import ray_cluster
from modelops_servers.keeper.geometry import Geometry

if TYPE_CHECKING:
    from modelops.environments import EngineEnvironment

BIND = "VLLM_CPU_OMP_THREADS_BIND"
"""Which cores each worker has, in vLLM's spelling: ``0-2|4-6``."""

_CPUS = Path("/sys/devices/system/cpu")


def workers(options: VllmOptions) -> int:
    """Return how many workers one engine has."""
    return options.tensor_parallel_size * options.pipeline_parallel_size


def check(options: VllmOptions, geometry: Geometry) -> None:
    """Refuse a model that cannot be divided so.

    Raises:
        InputError: it says by what it can be divided.
    """
    tensor, stages = options.tensor_parallel_size, options.pipeline_parallel_size
    heads, layers = geometry.heads, geometry.layers
    if heads is not None and heads % tensor:
        parts = ", ".join(str(n) for n in range(1, heads + 1) if heads % n == 0)
        raise InputError(
            f"the model's {heads} attention heads cannot be divided among {tensor} devices",
            hint=f"tensor_parallel_size can be {parts}",
        )
    if layers is not None and stages > layers:
        raise InputError(
            f"the model's {layers} layers cannot be divided among {stages} devices",
            hint=f"pipeline_parallel_size can be up to {layers}",
        )


def lacking(
    options: VllmOptions,
    environment: EngineEnvironment,
    base: Mapping[str, str] = os.environ,
    cores: Sequence[int] | None = None,
) -> MissingEnvironmentError | None:
    """Return what this vLLM or machine lacks for so many workers; None where nothing is amiss."""
    count, on_cpu = workers(options), environment.platform == "cpu"
    this = f"vLLM {environment.version} ({environment.build})"
    if options.distributed_executor_backend == "ray":
        if on_cpu:
            return MissingEnvironmentError(
                f"vLLM starts workers by Ray on GPUs alone, and this {this} computes on: cpu",
                hint="distributed_executor_backend can be mp here",
            )
        return ray_cluster.lacking(environment)
    if not on_cpu or count == 1:
        return None
    if options.speculative is not None and options.pipeline_parallel_size > 1:
        return MissingEnvironmentError(
            f"speculative decoding does not go with pipeline_parallel_size on CPUs: only the last "
            f"worker of this {this} can propose tokens, and the others fail",
            hint="tensor_parallel_size goes with it",
        )
    if options.enforce_eager and options.pipeline_parallel_size > 1:
        return MissingEnvironmentError(
            f"enforce_eager does not go with pipeline_parallel_size on CPUs: this {this} makes "
            "room for what one worker hands to the next only while it compiles, and fails at its "
            "first token",
            hint="leave enforce_eager out; tensor_parallel_size goes with it",
        )
    there = usable_cores() if cores is None else cores
    if BIND not in base and count > len(there):
        return MissingEnvironmentError(
            f"{count} workers need {count} cores, and {len(there)} can be used here",
            hint="tensor_parallel_size × pipeline_parallel_size can be up to "
            f"{len(there)}; {BIND}, such as 0|0, lets workers share cores",
        )
    return None


def binding(
    options: VllmOptions,
    environment: EngineEnvironment,
    base: Mapping[str, str],
    cores: Sequence[int] | None = None,
) -> str | None:
    """Return the cores of each worker; None where vLLM chooses, or whoever set it in ``base``.

    By itself vLLM gives each worker a memory node (NUMA), and refuses where there are fewer.
    """
    count = workers(options)
    by_ray = options.distributed_executor_backend == "ray"
    if environment.platform != "cpu" or count == 1 or by_ray or BIND in base:
        return None
    there = usable_cores() if cores is None else cores
    share = len(there) // count
    # As vLLM does on a memory node: one core of each share is for the rest of the engine.
    used = max(1, share - 1)
    shares = (there[i * share : i * share + used] for i in range(count))
    return "|".join(",".join(map(str, part)) for part in shares)


def usable_cores(folder: Path = _CPUS) -> list[int]:
    """Return one logical CPU of each core that this process may use, those of a node together."""
    found: dict[tuple[int, str], int] = {}
    for cpu in sorted(os.sched_getaffinity(0)):
        place = folder / f"cpu{cpu}"
        nodes = [int(p.name[4:]) for p in place.glob("node[0-9]*")]
        try:
            siblings = (place / "topology" / "thread_siblings_list").read_text().strip()
        except OSError:
            siblings = str(cpu)  # this kernel does not say: a core of its own
        found[min(nodes, default=0), siblings] = cpu
    return [cpu for (_, _), cpu in sorted(found.items(), key=lambda item: (item[0][0], item[1]))]
