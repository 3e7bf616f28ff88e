"""The proof of a language model: source and written folder side by side, prompt by prompt."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from modelops.artifact.manifest import OutputParity, ParityPoint, Tolerance
from modelops.errors import VerificationError
from modelops.parity import compare_outputs
from modelops.parity.check import Sample
from modelops.progress import Progress
from modelops.report.export import PromptEvidence
from modelops.signature import TensorSpec
from modelops_exporters.text.model import load
from modelops_exporters.text.prompts import Prompt
from modelops_exporters.text.runtime import STEPS, Answer, Ids, TextRuntime
from modelops_exporters.text.source import TextSource

_TEXT_SHOWN = 400


@dataclass(frozen=True)
class Evidence:
    """Every comparison, the samples to repeat it by, and prompts and answers in words."""

    points: tuple[ParityPoint, ...]
    samples: tuple[Sample, ...]
    prompts: tuple[PromptEvidence, ...]
    failures: tuple[str, ...] = ()


def prove(
    source: TextSource,
    folder: Path,
    asked: Sequence[Prompt],
    tolerance: Tolerance,
    progress: Progress,
) -> Evidence:
    """Continue every prompt by the source's model and by the written folder's, and compare.

    The source continues each prompt greedily; then both say of the whole text how likely they hold
    each token: in eager PyTorch, in float32, one after the other, so that one is in memory.

    Raises:
        InputError: the source's own model cannot be loaded.
    """
    progress("loading the source's model")
    texts, expected = _of_source(source, asked, progress)
    gc.collect()
    progress("loading the written folder")
    found = []
    try:
        runtime = TextRuntime(load(folder))
        for number, text in enumerate(texts, 1):
            progress(f"parity, artifact {number}/{len(texts)}: {len(text)} tokens")
            found.append(runtime.answer(text))
    except VerificationError as error:
        # The folder does not load or run at all: as wrong as a wrong answer, and kept as one.
        return Evidence((), (), (), (error.message,))
    points, samples, shown = [], [], []
    rows = zip(asked, texts, expected, found, strict=True)
    for number, (prompt, text, eager, written) in enumerate(rows, 1):
        label = f"{prompt.label} {number}"
        kind: Literal["random", "realistic"] = "random" if prompt.label == "random" else "realistic"
        outputs = compare_outputs(
            _compared(eager), _all(eager, text), _all(written, None), tolerance
        )
        points.append(
            ParityPoint(
                label=label,
                dims={"sequence": len(text)},
                inputs=kind,
                padded=False,
                outputs=outputs,
            )
        )
        samples.append(Sample(f"{label}-{kind}", {"input_ids": text}, eager.compact()))
        shown.append(_words(source.tokenizer, label, prompt, written, outputs))
    return Evidence(tuple(points), tuple(samples), tuple(shown))


def _of_source(
    source: TextSource, asked: Sequence[Prompt], progress: Progress
) -> tuple[list[Ids], list[Answer]]:
    runtime = TextRuntime(source.reference())
    texts: list[Ids] = []
    answers: list[Answer] = []
    for number, prompt in enumerate(asked, 1):
        progress(f"parity, source {number}/{len(asked)}: {prompt.label}, {len(prompt.ids)} tokens")
        texts.append(runtime.continued(prompt.ids))
        answers.append(runtime.answer(texts[-1]))
    return texts, answers


def _compared(answer: Answer) -> tuple[TensorSpec, ...]:
    vocabulary = answer.logprobs.shape[1]
    return (
        TensorSpec(name="greedy_tokens", dtype="int64", shape=(STEPS,)),
        TensorSpec(name="logprobs", dtype="float32", shape=(STEPS, vocabulary)),
        TensorSpec(name="text_logprobs", dtype="float32", shape=("sequence",)),
    )


def _all(answer: Answer, continued: Ids | None) -> dict[str, Any]:
    # Of the source, the tokens that it did continue by; of the folder, those that it would.
    tokens = answer.tokens if continued is None else continued[-STEPS:]
    return {"greedy_tokens": tokens, "logprobs": answer.logprobs, "text_logprobs": answer.text}


def _words(
    tokenizer: Any, label: str, prompt: Prompt, answer: Answer, outputs: tuple[OutputParity, ...]
) -> PromptEvidence:
    gaps = [o.max_abs for o in outputs if o.max_abs is not None and o.output != "greedy_tokens"]
    text = prompt.text
    if text is not None and len(text) > _TEXT_SHOWN:
        text = text[:_TEXT_SHOWN] + "…"
    return PromptEvidence(
        label=label,
        prompt=text,
        prompt_tokens=len(prompt.ids),
        answer=tokenizer.decode(answer.tokens.tolist()),
        tokens=tuple(answer.tokens.tolist()),
        max_difference=max(gaps, default=None),
        passed=all(o.passed for o in outputs),
    )
