"""Several workers: what cannot be is refused before a start, and each has its own cores."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelops.config import VllmOptions
from modelops.environments import EngineEnvironment
from modelops.errors import InputError, MissingEnvironmentError
from modelops_servers.keeper import parallel, ray_cluster
from modelops_servers.keeper.geometry import Geometry, geometry_of

MakeEnvironment = Callable[..., EngineEnvironment]

SMOLLM2 = geometry_of(
    {"num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64}
)


def options(**fields: Any) -> VllmOptions:
    return VllmOptions.model_validate(fields)


def test_a_model_is_divided_by_whole_heads_and_layers() -> None:
    for tensor in (1, 3, 9):
        parallel.check(options(tensor_parallel_size=tensor), SMOLLM2)
    with pytest.raises(InputError, match=r"9 attention heads .* among 4") as caught:
        parallel.check(options(tensor_parallel_size=4), SMOLLM2)
    assert caught.value.hint == "tensor_parallel_size can be 1, 3, 9"
    parallel.check(options(pipeline_parallel_size=30), SMOLLM2)
    with pytest.raises(InputError, match="30 layers"):
        parallel.check(options(pipeline_parallel_size=31), SMOLLM2)


def test_a_model_that_does_not_say_is_left_to_the_engine() -> None:
    silent = Geometry(None, None, None, latent=False, alike=True, dtype=None)
    parallel.check(options(tensor_parallel_size=4, pipeline_parallel_size=4), silent)


def test_on_cpus_each_worker_needs_a_core(environment: MakeEnvironment) -> None:
    def lacking(count: int, cores: int, base: dict[str, str] | None = None) -> object:
        asked = options(tensor_parallel_size=count)
        return parallel.lacking(asked, environment("cpu"), base or {}, range(cores))

    assert lacking(1, 1) is None
    assert lacking(2, 2) is None
    assert "4 workers need 4 cores, and 2" in str(lacking(4, 2))
    assert lacking(4, 2, {parallel.BIND: "0|0|1|1"}) is None
    on_gpus = options(tensor_parallel_size=8, speculative={}, pipeline_parallel_size=2)
    assert parallel.lacking(on_gpus, environment("cuda"), {}, range(2)) is None


def test_on_cpus_speculation_goes_with_tensor_but_not_with_pipeline_parallel(
    environment: MakeEnvironment,
) -> None:
    both = {"speculative": {}, "tensor_parallel_size": 2}
    assert parallel.lacking(options(**both), environment("cpu"), {}, range(8)) is None
    both["pipeline_parallel_size"] = 2
    found = parallel.lacking(options(**both), environment("cpu"), {}, range(8))
    assert isinstance(found, MissingEnvironmentError)
    assert "speculative decoding does not go with pipeline_parallel_size" in found.message


def test_on_cpus_stages_have_to_be_compiled(environment: MakeEnvironment) -> None:
    eager = options(pipeline_parallel_size=2, enforce_eager=True)
    found = parallel.lacking(eager, environment("cpu"), {}, range(8))
    assert "enforce_eager does not go with pipeline_parallel_size" in str(found)
    assert parallel.lacking(eager, environment("cuda"), {}, range(8)) is None
    compiled = options(pipeline_parallel_size=2)
    assert parallel.lacking(compiled, environment("cpu"), {}, range(8)) is None


@pytest.mark.parametrize(
    ("count", "cores", "expected"),
    [
        (2, [0, 1], "0|1"),
        (2, [0, 2, 4, 6], "0|4"),
        (2, list(range(8)), "0,1,2|4,5,6"),
        (3, list(range(8)), "0|2|4"),
    ],
)
def test_each_worker_has_cores_of_its_own_and_leaves_one_of_its_share(
    environment: MakeEnvironment, count: int, cores: list[int], expected: str
) -> None:
    asked = options(tensor_parallel_size=count)
    assert parallel.binding(asked, environment("cpu"), {}, cores) == expected


def test_cores_are_not_chosen_where_somebody_else_does(environment: MakeEnvironment) -> None:
    two = options(pipeline_parallel_size=2)
    cores = [0, 1]
    assert parallel.binding(options(), environment("cpu"), {}, cores) is None
    assert parallel.binding(two, environment("cuda"), {}, cores) is None
    assert parallel.binding(two, environment("cpu"), {parallel.BIND: "1|0"}, cores) is None
    by_ray = options(pipeline_parallel_size=2, distributed_executor_backend="ray")
    assert parallel.binding(by_ray, environment("cpu"), {}, cores) is None


def test_one_logical_cpu_of_a_core_is_used_those_of_a_node_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for cpu in range(8):
        place = tmp_path / f"cpu{cpu}"
        (place / "topology").mkdir(parents=True)
        (place / f"node{cpu % 2}").mkdir()
        (place / "topology" / "thread_siblings_list").write_text(f"{cpu % 4},{cpu % 4 + 4}\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2, 3, 4, 5, 6})
    # Of 0 and 4 the later one; 7 is not ours; 0, 2, 4, 6 are of node 0.
    assert parallel.usable_cores(tmp_path) == [4, 6, 3, 5]
    assert parallel.usable_cores(tmp_path / "nothing") == [0, 1, 2, 3, 4, 5, 6]


def test_this_machine_has_cores() -> None:
    cores = parallel.usable_cores()
    assert cores
    assert set(cores) <= os.sched_getaffinity(0)


BY_RAY = {"tensor_parallel_size": 4, "distributed_executor_backend": "ray"}


def test_ray_starts_workers_on_gpus_alone(environment: MakeEnvironment) -> None:
    found = parallel.lacking(options(**BY_RAY), environment("cpu"), {}, range(8))
    assert "by Ray on GPUs alone" in str(found)


@pytest.mark.parametrize(
    ("kind", "hint"),
    [("managed", "modelops engine install vllm --python"), ("own", "-m pip install ray")],
)
def test_an_environment_without_ray_is_told_before_the_start(
    environment: MakeEnvironment, kind: str, hint: str
) -> None:
    here = environment("cuda", python=Path(sys.executable), kind=kind)
    found = parallel.lacking(options(**BY_RAY), here, {}, range(8))
    assert isinstance(found, MissingEnvironmentError)
    assert "cannot import ray" in found.message
    assert found.hint is not None
    assert hint in found.hint


def test_an_environment_that_has_ray_is_taken(environment: MakeEnvironment, tmp_path: Path) -> None:
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "__init__.py").touch()
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o700)
    assert ray_cluster.lacking(environment("cuda", python=python)) is None


def test_ray_looks_where_other_processes_of_this_machine_do() -> None:
    """Not in the engine's folder for temporary files: there it would never find a cluster."""
    assert ray_cluster.variables({}) == {"RAY_TMPDIR": "/tmp"}
    assert ray_cluster.variables({"TMPDIR": "/scratch"}) == {"RAY_TMPDIR": "/scratch"}
    assert ray_cluster.variables({"TMPDIR": "/scratch", "RAY_TMPDIR": "/r"}) == {"RAY_TMPDIR": "/r"}


def test_which_cluster_it_will_be_is_said() -> None:
    assert "ray start --head" in ray_cluster.note({}, 4)
    assert "at head:6379" in ray_cluster.note({"RAY_ADDRESS": "head:6379"}, 4)
