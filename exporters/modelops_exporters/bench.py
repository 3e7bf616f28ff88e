"""Artifacts, eager and compiled PyTorch on the same inputs, by turns, in one run."""

from __future__ import annotations

import os
import time
import warnings
from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from modelops.artifact import Artifact, open_artifact
from modelops.artifact.manifest import Tolerance
from modelops.artifact.text_folder import is_text
from modelops.benchmark import BenchRequest, BenchResult, BenchRow
from modelops.checkpoint import open_checkpoint
from modelops.errors import MissingEnvironmentError, UsageError
from modelops.parity import RandomInputs, compare_outputs
from modelops.progress import Progress
from modelops.protocols import Runtime, Tensors
from modelops.registry import resolve
from modelops.requests import ExportRequest
from modelops.signature import Signature
from modelops_exporters.eager import EagerRuntime
from modelops_exporters.pipeline import prepare_source
from modelops_exporters.user_space import code_folders, user_space

_LEAST_RUNS = 5
_LEAST_RUNS_A_TURN = 2
_TURN_SECONDS = 0.2
_ANY = Tolerance(atol=float("1e30"), rtol=float("1e30"), min_cosine=-1.0)


def run(request: BenchRequest, progress: Progress) -> BenchResult:
    """Measure every contender at every size, interleaved, and return one table.

    Raises:
        UsageError: sizes or source do not fit the artifacts.
        MissingEnvironmentError: torch.compile has no compiler here.
    """
    asked = ExportRequest(source=request.source or "", recipe=request.recipe)
    with user_space(*code_folders(asked)):
        return _run(request, progress)


def _run(request: BenchRequest, progress: Progress) -> BenchResult:
    threads = request.threads or len(os.sched_getaffinity(0))
    torch.set_num_threads(threads)
    artifacts = [open_artifact(path, progress=progress) for path in request.artifacts]
    if texts := [a for a in artifacts if is_text(a.manifest)]:
        raise UsageError(f"{texts[0].path} is a language model, which is measured alone")
    signature = artifacts[0].manifest.signature
    for other in artifacts[1:]:
        if [t.name for t in other.manifest.signature.inputs] != [t.name for t in signature.inputs]:
            raise UsageError(f"{other.path} does not take the inputs of {artifacts[0].path}")
    contenders: dict[str, Runtime] = _pytorch(request, artifacts[0], progress)
    for artifact in artifacts:
        progress(f"loading {artifact.path}")
        exporter = resolve("exporters", artifact.manifest.format)()
        contenders[_label(artifact, artifacts)] = exporter.load(
            artifact.path, artifact.manifest, threads=threads
        )
    rows: list[BenchRow] = []
    for dims in _sizes(request, signature):
        inputs = RandomInputs(signature, request.seed).make(dims)
        signature.bind({name: a.shape for name, a in inputs.items()})
        rows += _measure(contenders, inputs, dims, signature, request.seconds, progress)
    return BenchResult(
        threads=threads,
        versions={name: version(name) for name in ("torch", "onnxruntime")},
        rows=tuple(rows),
    )


def _label(artifact: Artifact, among: list[Artifact]) -> str:
    """Return what ``artifact`` is called in the table; its path where another is called so too."""
    labels = [f"{a.manifest.name}/{a.version} {a.manifest.format}" for a in among]
    label = labels[among.index(artifact)]
    return label if labels.count(label) == 1 else f"{artifact.path} {artifact.manifest.format}"


def _sizes(request: BenchRequest, signature: Signature) -> list[dict[str, int]]:
    if unknown := request.dims.keys() - signature.dims.keys():
        raise UsageError(f"--dim {min(unknown)}: the dims are {', '.join(signature.dims)}")
    base = {
        # 32 is a common length of what is served; short ranges take their longest.
        name: request.dims.get(name, min(r.max, max(r.min, 32)))
        for name, r in signature.dims.items()
    }
    batch = signature.batch_dim
    if batch is None:
        return [base]
    return [{**base, batch: size} for size in request.batches]


def _pytorch(request: BenchRequest, artifact: Artifact, progress: Progress) -> dict[str, Runtime]:
    if not request.against:
        return {}
    if request.source is None:
        raise UsageError("eager and compile need the checkpoint", hint="add --source CHECKPOINT")
    asked = ExportRequest(source=request.source, recipe=request.recipe)
    checkpoint = open_checkpoint(request.source, progress=progress)
    if checkpoint.sha256 != artifact.manifest.source.sha256:
        raise UsageError(f"{artifact.path} was not exported from {request.source}")
    prepared = prepare_source(checkpoint, asked, progress)
    signature = artifact.manifest.signature
    outputs = tuple(t.name for t in signature.outputs)
    found: dict[str, Runtime] = {}
    for kind in request.against:
        model: Any = prepared.model
        if kind == "compile":
            progress("compiling")
            model = torch.compile(model, dynamic=True)
        runtime = EagerRuntime(model, signature.inputs, outputs)
        if kind == "compile":
            _warm_compiler(runtime, RandomInputs(signature, request.seed), signature)
        found[f"torch {kind}"] = runtime
    return found


def _warm_compiler(runtime: Runtime, maker: RandomInputs, signature: Signature) -> None:
    sizes = {n: min(r.max, max(r.min, 3)) for n, r in signature.dims.items()}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # inductor's own deprecations
            runtime.run(maker.make(sizes))
    except Exception as error:
        if "compiler" in str(error).lower() or "InductorError" in type(error).__name__:
            raise MissingEnvironmentError(
                f"torch.compile does not work here: {str(error).splitlines()[0]}",
                hint="install g++ 9 or newer, or leave out compile (modelops doctor tells)",
            ) from error
        raise


def _turn(runtime: Runtime, inputs: Tensors) -> list[float]:
    """Time one contender for a moment, by turns: a slow one of the machine's falls on all of them.

    The first call is left out: the threads of the one before may still be spinning.
    """
    runtime.run(inputs)
    found: list[float] = []
    while sum(found) < _TURN_SECONDS or len(found) < _LEAST_RUNS_A_TURN:
        started = time.perf_counter()
        runtime.run(inputs)
        found.append(time.perf_counter() - started)
    return found


def _measure(
    contenders: dict[str, Runtime],
    inputs: Tensors,
    dims: dict[str, int],
    signature: Signature,
    seconds: float,
    progress: Progress,
) -> list[BenchRow]:
    shown = " ".join(f"{k}={v}" for k, v in dims.items())
    answers: dict[str, dict[str, npt.NDArray[Any]]] = {}
    for name, runtime in contenders.items():
        progress(f"warming {name}, {shown}")
        for _ in range(2):
            answers[name] = runtime.run(inputs)
    times: dict[str, list[float]] = {name: [] for name in contenders}
    progress(f"measuring {shown}")
    deadline = time.perf_counter() + seconds * len(contenders)
    while time.perf_counter() < deadline or len(next(iter(times.values()))) < _LEAST_RUNS:
        for name, runtime in contenders.items():
            times[name] += _turn(runtime, inputs)
    first = next(iter(contenders))
    base = float(np.median(times[first]))
    items = dims.get(signature.batch_dim or "", 1)
    rows = []
    for name, samples in times.items():
        middle = float(np.median(samples))
        found = compare_outputs(signature.outputs, answers[first], answers[name], _ANY)
        cosines = [o.cosine for o in found if o.cosine is not None]
        rows.append(
            BenchRow(
                contender=name,
                dims=dims,
                runs=len(samples),
                p50_ms=middle * 1e3,
                p95_ms=float(np.percentile(samples, 95)) * 1e3,
                items_per_second=items / middle,
                speedup=base / middle,
                cosine=min(cosines) if cosines else None,
            )
        )
    return rows
