"""One text export from source to published version: load, write, prove, publish."""

from __future__ import annotations

from importlib.metadata import version
from pathlib import Path

from modelops import __version__
from modelops.artifact import TEXT_FORMAT, Store, hash_files
from modelops.artifact.manifest import Manifest, Parity, Precision, TextOptions
from modelops.artifact.text_folder import check_text
from modelops.checkpoint import open_checkpoint
from modelops.errors import UsageError, VerificationError
from modelops.parity import tolerance_for, write_samples
from modelops.parity.samples import TEXT_SAMPLES
from modelops.progress import Progress
from modelops.requests import ExportRequest, ExportResult
from modelops_exporters.clock import StepClock
from modelops_exporters.leaks import leaks
from modelops_exporters.publishing import artifact_name, conclude, role
from modelops_exporters.text import tokens_check
from modelops_exporters.text.prompts import Conversation, conversations, prompts
from modelops_exporters.text.proof import Evidence, prove
from modelops_exporters.text.runtime import STEPS, signature
from modelops_exporters.text.source import TextSource
from modelops_exporters.text.writing import ENTRY, dtypes_in, write

# One row of logits is held three times while its log-probabilities are taken.
_BYTES_PER_LOGIT = 12


def run(request: ExportRequest, progress: Progress) -> ExportResult:
    """Export, prove and publish; or publish nothing. See ``to_huggingface``."""
    _refuse_options(request)
    clock = StepClock(progress)
    with clock.step("loading the checkpoint"):
        source = read_source(request, progress)
        chats, chat_notes = conversations(source.tokenizer)
        source.notes += chat_notes
    root = request.output or Path("artifacts") / source.default_name
    name = artifact_name(request, source.default_name, root)
    store = Store(root)
    with store.staging() as folder:
        with clock.step(f"writing the {TEXT_FORMAT} folder"):
            write(source, folder)
        with clock.step("checking files and tokens"):
            draft = _draft(request, source, name, folder)
            failures, checks = _checks(source, folder, draft, chats)
        with clock.step("proving parity"):
            evidence = _prove(source, folder, draft, chats, request, progress)
        parity = draft.parity.model_copy(update={"points": evidence.points, "checks": checks})
        draft = draft.model_copy(update={"parity": parity})
        if evidence.samples:
            write_samples(folder / TEXT_SAMPLES, evidence.samples)
        failures = (*failures, *evidence.failures)
        return conclude(
            request,
            draft,
            clock,
            failures,
            store,
            folder,
            progress,
            source_bytes=source.source_bytes,
            prompts=evidence.prompts,
        )


def read_source(request: ExportRequest, progress: Progress) -> TextSource:
    """Open and vet the source, and read all of it but its weights.

    Raises:
        InputError: it is bad, unsafe, or no language model that is read.
    """
    checkpoint = open_checkpoint(request.source, weights_key=request.weights_key, progress=progress)
    if checkpoint.format == "gguf":
        from modelops_exporters.text import from_gguf

        return from_gguf.prepare(checkpoint, progress)
    from modelops_exporters.text import from_folder

    return from_folder.prepare(checkpoint, progress)


def _refuse_options(request: ExportRequest) -> None:
    given = {
        "--model": request.model,
        "--model-arg": request.model_args,
        "--recipe": request.recipe,
        "--input": request.inputs,
        "--dim": request.dims,
        "--output-name": request.output_names,
        "--opset": request.opset,
    }
    for option, value in given.items():
        if value:
            raise UsageError(
                f"{option} is of other targets: a language model's folder says all of itself"
            )


def _draft(request: ExportRequest, source: TextSource, name: str, folder: Path) -> Manifest:
    tools = ("torch", "transformers", "safetensors", *source.toolchain)
    return Manifest(
        name=name,
        digest="",
        format=TEXT_FORMAT,
        task="text-generation",
        entry=ENTRY,
        signature=signature(int(source.config.vocab_size), source.max_tokens),
        source=source.source,
        toolchain={"modelops": __version__, **{tool: version(tool) for tool in tools}},
        precision=Precision(
            asked=str(source.dtype).removeprefix("torch."),
            found=", ".join(sorted(dtypes_in(folder))),
        ),
        text=TextOptions(max_tokens=source.max_tokens),
        parity=Parity(
            tolerance=request.tolerance or tolerance_for("float32"),
            seed=request.seed,
            memory_budget=request.memory_budget,
            points=(),
        ),
        notes=tuple(dict.fromkeys(source.notes)),
        files=hash_files(folder, role),
    )


def _checks(
    source: TextSource, folder: Path, draft: Manifest, chats: list[Conversation]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what is wrong with the written folder, and what was shown to be right."""
    check_text(folder, draft)
    wrong = [*leaks(folder)]
    if draft.precision.found != draft.precision.asked:
        wrong.append(f"written as {draft.precision.found}, not {draft.precision.asked}")
    shown: list[str] = []
    try:
        found, shown = tokens_check.compare(source, folder, chats)
        wrong += found
    except VerificationError as error:
        wrong.append(error.message)
    for claim, proof in source.proofs.items():
        found = proof(folder)
        wrong += found
        shown += [] if found else [claim]
    return tuple(wrong), tuple(shown)


def _prove(
    source: TextSource,
    folder: Path,
    draft: Manifest,
    chats: list[Conversation],
    request: ExportRequest,
    progress: Progress,
) -> Evidence:
    vocabulary = int(source.config.vocab_size)
    affordable = request.memory_budget // (_BYTES_PER_LOGIT * vocabulary)
    asked = prompts(
        source.tokenizer,
        chats,
        longest=min(source.max_tokens, STEPS + max(1, affordable)),
        vocabulary=vocabulary,
        seed=request.seed,
    )
    return prove(source, folder, asked, draft.parity.tolerance, progress)
