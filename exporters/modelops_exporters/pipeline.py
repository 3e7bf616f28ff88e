"""One export from source to published version: load, trace, write, prove, publish."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from modelops import __version__
from modelops.artifact import Store, hash_files
from modelops.artifact.manifest import (
    Manifest,
    Parity,
    Precision,
    Tolerance,
)
from modelops.checkpoint import Checkpoint, open_checkpoint
from modelops.errors import ExportError, ParityError, UsageError, VerificationError
from modelops.parity import (
    check_parity,
    choose_points,
    compare_outputs,
    tolerance_for,
    write_samples,
)
from modelops.parity.check import Sample, check_padding
from modelops.parity.inputs import Arrays
from modelops.parity.samples import SAMPLES
from modelops.progress import Progress
from modelops.protocols import Demanding, ExportedProgram, Exporter, TextExporter, Written
from modelops.registry import resolve
from modelops.report.conversion import ConversionReport
from modelops.requests import ExportRequest, ExportResult
from modelops.signature import Signature
from modelops_exporters.blame import name_the_layer
from modelops_exporters.clock import StepClock
from modelops_exporters.conversion import (
    Conversion,
    aside,
    asked_precision,
    convert_written,
    cost,
    refuse_what_cannot_be,
)
from modelops_exporters.eager import EagerRuntime
from modelops_exporters.inputs import PreparedInputs
from modelops_exporters.leaks import leaks
from modelops_exporters.memory import memory_estimate
from modelops_exporters.own_data import OwnData, read_own_data
from modelops_exporters.own_data import prove as prove_own
from modelops_exporters.precision import precision_of
from modelops_exporters.prepared import Prepared
from modelops_exporters.publishing import artifact_name, conclude, role
from modelops_exporters.tracing import Traced, trace
from modelops_exporters.user_space import code_folders, user_space

# Which targets convert, and take what only they know; what is not named here means nothing there.
_TAKES = {"onnx": {"precision", "calibration", "options"}, "tensorrt": {"options"}}
# Bytes that a timed call may need: a short look, not a benchmark.
_TIMED_BUDGET = 16 * 2**20


@dataclass(frozen=True)
class _Proof:
    parity: Parity
    samples: list[Sample]
    failures: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return self.parity.passed and not self.failures


def run(request: ExportRequest, progress: Progress) -> ExportResult:
    """Export, prove and publish; or publish nothing.

    Raises:
        UsageError: what was asked cannot be meant.
        InputError: the source is bad, unsafe, or does not fit the model or the target.
        VerificationError: the artifact is not what was asked, or not what eager computes.
    """
    # A factory or recipe may import what lies beside it at any time, also while it is traced.
    with user_space(*code_folders(request)):
        return _run(request, progress)


def _run(request: ExportRequest, progress: Progress) -> ExportResult:
    target = resolve("exporters", request.target)()
    refuse_what_the_target_has_not(request, text=isinstance(target, TextExporter))
    if isinstance(target, TextExporter):
        return target.export(request, progress)
    exporter: Exporter = target
    if isinstance(exporter, Demanding):
        exporter.require(request.options)
    refuse_what_cannot_be(request)
    clock = StepClock(progress)
    with clock.step("loading the checkpoint"):
        checkpoint = open_checkpoint(
            request.source, weights_key=request.weights_key, progress=progress
        )
        prepared = prepare_source(checkpoint, request, progress)
    root = request.output or Path("artifacts") / prepared.default_name
    name = artifact_name(request, prepared.default_name, root)
    store = Store(root)
    with clock.step("tracing"):
        traced, eager = _trace(prepared, request)
    nbytes = memory_estimate(traced.exported.program, traced.signature)
    own = read_own_data(request, prepared, traced.signature, nbytes)
    conversion: Conversion | None = None
    with store.staging() as folder, aside() as original:
        with clock.step(f"writing {exporter.format}"):
            written = exporter.write(
                traced.exported, folder, {**request.options, "opset": request.opset}, progress
            )
            _carry(prepared, folder)
        if request.precision is not None and exporter.format == "onnx":
            with clock.step(f"converting to {request.precision}"):
                conversion = convert_written(
                    request,
                    prepared,
                    traced.signature,
                    traced.example,
                    nbytes,
                    folder / written.entry,
                    _tolerance(request, prepared),
                    Path(original),
                    progress,
                )
        draft = _draft(
            request, prepared, exporter, traced.signature, written, name, folder, conversion
        )
        with clock.step("checking the graph"):
            problems = (*exporter.check(folder, draft), *leaks(folder))
        with clock.step("proving parity"):
            proof = _prove(exporter, folder, draft, prepared, traced, eager, request, progress, own)
        failures = (*problems, *proof.failures)
        notes = (*draft.notes, *_sample_notes(folder, proof.samples))
        draft = draft.model_copy(update={"parity": proof.parity, "notes": notes})
        gains = None
        if conversion is not None and proof.samples:
            with clock.step("timing it beside float32"):
                gains = _gains(
                    conversion, exporter, folder, draft, prepared, traced, request, progress
                )
        return conclude(
            request,
            draft,
            clock,
            failures,
            store,
            folder,
            progress,
            source_bytes=prepared.source_bytes,
            conversion=gains,
        )


def _gains(
    conversion: Conversion,
    exporter: Exporter,
    folder: Path,
    draft: Manifest,
    prepared: Prepared,
    traced: Traced,
    request: ExportRequest,
    progress: Progress,
) -> ConversionReport:
    signature = traced.signature
    points = choose_points(
        signature.dims,
        example=traced.example,
        nbytes=memory_estimate(traced.exported.program, signature),
        budget=min(request.memory_budget, _TIMED_BUDGET),
    )
    outputs = tuple(t.name for t in signature.outputs)
    return cost(
        conversion,
        folder / draft.entry,
        exporter.load(folder, draft),
        exporter.load(conversion.original.parent, draft),
        EagerRuntime(prepared.model, signature.inputs, outputs),
        PreparedInputs(prepared, signature, request.seed),
        [p.dims for p in points[:3]],
        progress,
    )


def refuse_what_the_target_has_not(request: ExportRequest, *, text: bool) -> None:
    """Raise UsageError where something was asked that means nothing to the target."""
    takes = _TAKES.get(request.target, set())
    if not text:
        takes = {*takes, "data", "metric", "max_drop"}
    for asked in ("calibration", "data", "max_drop", "metric", "options", "precision"):
        if asked in takes:
            continue
        if getattr(request, asked) not in (None, {}):
            flag = "--option" if asked == "options" else "--" + asked.replace("_", "-")
            raise UsageError(f"{flag} means nothing for --to {request.target}")


def prepare_source(checkpoint: Checkpoint, request: ExportRequest, progress: Progress) -> Prepared:
    """Build the model that ``checkpoint`` belongs to, as ``request`` says, weights loaded.

    Raises:
        UsageError: the request's parts contradict each other.
        InputError: the model cannot be built, or the weights do not fit it.
    """
    if checkpoint.format == "gguf":
        raise ExportError(
            f"{checkpoint.name} is a GGUF file, which becomes an artifact of a text engine only",
            hint="export it with --to vllm",
        )
    if request.recipe is not None and request.model is not None:
        raise UsageError("--recipe and --model both say where the model comes from; give one")
    if request.recipe is not None:
        from modelops_exporters import recipe

        if request.inputs:
            raise UsageError("--input belongs to --model; a recipe has inputs(**dims)")
        prepared = recipe.prepare(checkpoint, request)
    elif request.model is not None or checkpoint.format != "huggingface":
        from modelops_exporters import factory

        prepared = factory.prepare(checkpoint, request)
    else:
        from modelops_exporters import huggingface

        if request.inputs:
            raise UsageError("--input belongs to --model; a folder with config.json knows its own")
        prepared = huggingface.prepare(checkpoint, progress)
        if unknown := request.dims.keys() - prepared.dims.keys():
            raise UsageError(
                f"--dim {min(unknown)}: the dims of this model are {', '.join(prepared.dims)}"
            )
        prepared.dims |= request.dims
        prepared.output_names = request.output_names or prepared.output_names
    prepared.settle_dims()
    return prepared


def _trace(prepared: Prepared, request: ExportRequest) -> tuple[Traced, EagerRuntime]:
    traced = trace(prepared, seed=request.seed)
    signature = traced.signature
    outputs = tuple(t.name for t in signature.outputs)
    eager = EagerRuntime(prepared.model, signature.inputs, outputs, afresh=True)
    maker = PreparedInputs(prepared, signature, request.seed)
    tolerance = _tolerance(request, prepared)
    _check_repeatable(signature, eager, maker.random(traced.example), tolerance)
    if signature.padding is None:
        return traced, eager
    point = {
        name: min(r.max, max(r.min, 2 * traced.example[name] - 1))
        for name, r in signature.dims.items()
    }
    inputs = maker.random(point, padded=True)
    found = check_padding(signature, eager, eager, inputs, tolerance)
    if all(o.passed for o in found):
        return traced, eager
    why = next(o.why for o in found if not o.passed)
    prepared.notes.append(
        f"eager's own answer for an item changes when it is padded ({why}): items are never "
        "padded to join a batch"
    )
    plain = signature.model_copy(update={"padding": None})
    return Traced(ExportedProgram(traced.exported.program, plain), traced.example), eager


def _check_repeatable(
    signature: Signature, eager: EagerRuntime, inputs: Arrays, tolerance: Tolerance
) -> None:
    """Refuse a model that answers one input twice in two ways: parity would be chance."""
    first, second = eager.run(inputs), eager.run(inputs)
    for found in compare_outputs(signature.outputs, first, second, tolerance):
        # NaN is parity's to tell; here only what changes from run to run.
        if found.why is not None and found.max_abs is not None:
            raise ParityError(
                f"eager PyTorch itself answers the same input in two ways: output "
                f"{found.output!r}, {found.why}",
                hint="a random operator or a dropout runs also in eval(); take it out of forward",
            )


def _carry(prepared: Prepared, folder: Path) -> None:
    for name, content in prepared.carried.items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, bytes):
            target.write_bytes(content)
        else:
            shutil.copyfile(content, target)


def _draft(
    request: ExportRequest,
    prepared: Prepared,
    exporter: Exporter,
    signature: Signature,
    written: Written,
    name: str,
    folder: Path,
    conversion: Conversion | None = None,
) -> Manifest:
    found = precision_of(prepared.model)
    asked = asked_precision(request) or prepared.precision_asked or found
    if conversion is not None:
        found = conversion.converted.precision
    return Manifest(
        name=name,
        digest="",
        format=exporter.format,
        task=prepared.task,
        entry=written.entry,
        signature=signature,
        source=prepared.source,
        toolchain={"modelops": __version__, **written.toolchain},
        precision=Precision(asked=asked, found=found),
        quantization=conversion.quantization if conversion is not None else None,
        opset=written.opset,
        requires=written.requires,
        built=written.built,
        text=prepared.text,
        executable=exporter.executable,
        parity=Parity(
            tolerance=_tolerance(request, prepared),
            seed=request.seed,
            memory_budget=request.memory_budget,
            points=(),
        ),
        notes=(
            *dict.fromkeys(
                (*prepared.notes, *written.notes, *(conversion.notes if conversion else ()))
            ),
        ),
        files=hash_files(folder, role),
    )


def _tolerance(request: ExportRequest, prepared: Prepared) -> Tolerance:
    found = request.precision or precision_of(prepared.model)
    return request.tolerance or prepared.tolerance or tolerance_for(found)


def _prove(
    exporter: Exporter,
    folder: Path,
    draft: Manifest,
    prepared: Prepared,
    traced: Traced,
    eager: EagerRuntime,
    request: ExportRequest,
    progress: Progress,
    own: OwnData | None = None,
) -> _Proof:
    signature = traced.signature
    points = choose_points(
        signature.dims,
        example=traced.example,
        nbytes=memory_estimate(traced.exported.program, signature),
        budget=request.memory_budget,
    )
    try:
        runtime = exporter.load(folder, draft)
        parity, samples = check_parity(
            signature,
            eager,
            runtime,
            maker=PreparedInputs(prepared, signature, request.seed),
            points=points,
            tolerance=draft.parity.tolerance,
            seed=request.seed,
            budget=request.memory_budget,
            progress=progress,
        )
        parity = name_the_layer(parity, samples, exporter, folder, draft)
        if own is None:
            return _Proof(parity, samples, ())
        found = prove_own(own, eager, runtime, draft.parity.tolerance, progress)
    except VerificationError as error:
        # The artifact does not load or run at all: as wrong as a wrong answer, and kept as one.
        return _Proof(draft.parity, [], (error.message,))
    parity = parity.model_copy(
        update={
            "points": (*parity.points, found.point),
            "checks": (*parity.checks, *found.checks),
        }
    )
    return _Proof(parity, samples, found.failures)


def _sample_notes(folder: Path, samples: list[Sample]) -> list[str]:
    if not samples:
        return []
    kept = write_samples(folder / SAMPLES, samples)
    left = len(samples) - len(kept)
    return [f"the {left} largest checked points are not kept as golden samples"] if left else []
