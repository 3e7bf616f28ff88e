"""A language model as a function: tokens in, what it says follows each of them out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from modelops.errors import VerificationError
from modelops.protocols import Tensors
from modelops.signature import DimRange, Signature, TensorSpec
from modelops_exporters.text.model import quiet

STEPS = 16
"""Tokens that every prompt is continued by."""
TOP = 20
_ROWS = 64

Ids = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Answer:
    """What a model says of a text: log-probabilities in nats, computed in float32.

    ``tokens`` [STEPS] is what it would have put in each of the last places, ``logprobs``
    [STEPS, vocabulary] how likely it held every token there, and ``text`` [sequence] how likely
    each token that stands there, given those before it (0 for the first).
    """

    tokens: Ids
    logprobs: Floats
    text: Floats

    def compact(self) -> dict[str, npt.NDArray[Any]]:
        """Return what an artifact keeps of it, by the names of ``signature``."""
        return {
            "greedy_tokens": self.tokens,
            "top_logprobs": -np.sort(-self.logprobs, axis=1)[:, :TOP],
            "text_logprobs": self.text,
        }


def signature(vocabulary: int, max_tokens: int) -> Signature:
    """Return what a text artifact is proven by: a prompt and its greedy continuation."""
    return Signature(
        inputs=(
            TensorSpec(
                name="input_ids", dtype="int64", shape=("sequence",), bounds=(0, vocabulary - 1)
            ),
        ),
        outputs=(
            TensorSpec(name="greedy_tokens", dtype="int64", shape=(STEPS,)),
            TensorSpec(name="top_logprobs", dtype="float32", shape=(STEPS, min(TOP, vocabulary))),
            TensorSpec(name="text_logprobs", dtype="float32", shape=("sequence",)),
        ),
        dims={"sequence": DimRange(min=STEPS + 1, max=max(STEPS + 1, max_tokens))},
    )


class TextRuntime:
    """One model in eager PyTorch on the CPU."""

    def __init__(self, model: Any, threads: int | None = None) -> None:
        self._model = model
        torch.set_num_threads(threads or self._threads_that_pay())

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """Say of the text ``input_ids`` what ``signature`` names.

        Raises:
            VerificationError: the model fails on it.
        """
        return self.answer(inputs["input_ids"]).compact()

    def answer(self, text: Ids) -> Answer:
        """Read a text of more than ``STEPS`` tokens, once.

        Where the tokens at its end are those that this model puts there, they are its greedy
        continuation of those before: each follows from what stands before it.
        """
        ids = torch.from_numpy(np.array(text))[None]
        with torch.inference_mode():
            logits = self._forward(ids)[0]
        last = logits[-STEPS - 1 : -1].float().log_softmax(-1)
        first = np.zeros(1, np.float32)
        return Answer(
            tokens=last.argmax(-1).numpy(),
            logprobs=last.numpy(),
            text=np.concatenate([first, _of_next(logits[:-1], ids[0, 1:])]),
        )

    def continued(self, prompt: Ids) -> Ids:
        """Return a prompt and the ``STEPS`` tokens that the model continues it by, greedily."""
        import transformers

        settings: Any = transformers.GenerationConfig
        ids = torch.from_numpy(np.array(prompt))[None]
        # Nothing of the model's own settings: neither penalties nor an end before the last step.
        self._model.generation_config = settings()
        plain = settings(do_sample=False, max_new_tokens=STEPS, pad_token_id=0)
        try:
            with quiet(), torch.inference_mode():
                found = self._model.generate(
                    ids, attention_mask=torch.ones_like(ids), generation_config=plain
                )
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise VerificationError(
                f"the source's model cannot continue a prompt of {len(prompt)} tokens: {error}"
            ) from error
        made: Ids = found[0].numpy()
        return made

    def _forward(self, ids: torch.Tensor) -> torch.Tensor:
        try:
            found: torch.Tensor = self._model(input_ids=ids, use_cache=False).logits
        except (RuntimeError, IndexError, ValueError, TypeError) as error:
            raise VerificationError(
                f"the model fails on a text of {ids.shape[1]} tokens: {error}"
            ) from error
        return found

    def _threads_that_pay(self) -> int:
        """Return PyTorch's number of threads, or one where that is faster.

        On a machine whose cores others use, threads that wait for each other are slower by far.
        """
        many, ids = torch.get_num_threads(), torch.zeros((1, 2), dtype=torch.int64)
        taken: dict[int, float] = {}
        with torch.inference_mode():
            for threads in dict.fromkeys((1, many)):
                torch.set_num_threads(threads)
                self._forward(ids)
                started = time.perf_counter()
                self._forward(ids)
                taken[threads] = time.perf_counter() - started
        torch.set_num_threads(many)
        return min(taken, key=taken.__getitem__)


def _of_next(logits: torch.Tensor, following: torch.Tensor) -> Floats:
    """Return the log-probability of each following token, a few rows at a time."""
    parts = [
        logits[at : at + _ROWS].float().log_softmax(-1).gather(1, following[at : at + _ROWS, None])
        for at in range(0, len(following), _ROWS)
    ]
    return torch.cat(parts)[:, 0].numpy()
