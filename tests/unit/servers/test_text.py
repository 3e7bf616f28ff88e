"""Text to tensors: in steps, each item judged by its own length, and never in the loop's way."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import uvloop
from loop_ticker import STALL, stalls
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from modelops.errors import RequestError
from modelops.signature import DimRange, Padding, Signature, TensorSpec
from modelops_servers.front.embeddings import _batches
from modelops_servers.front.embeddings_codec import EmbeddingRequest
from modelops_servers.text import TextInputs

MOST = 512


def text_inputs() -> TextInputs:
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]", "a", "b"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    names = ("input_ids", "attention_mask")
    signature = Signature(
        inputs=tuple(TensorSpec(name=n, dtype="int64", shape=("batch", "seq")) for n in names),
        outputs=(TensorSpec(name="y", dtype="float32", shape=("batch", 4)),),
        dims={"batch": DimRange(min=1, max=64), "seq": DimRange(min=2, max=MOST)},
        padding=Padding(dim="seq", mask="attention_mask", values=dict.fromkeys(names, 0)),
    )
    return TextInputs(tokenizer, signature, MOST)


def request_of(**given: Any) -> EmbeddingRequest:
    items = {"texts": None, "rows": None, **given}
    return EmbeddingRequest(model="m", encoding_format="float", dimensions=None, **items)


@pytest.mark.parametrize(
    "request_",
    [
        request_of(texts=["a " * 500] * 2048),
        request_of(texts=["a" * 7800] * 2048),
        request_of(rows=[[4] * 500] * 600),
    ],
    ids=["many tokens", "many characters", "token ids"],
)
def test_the_largest_requests_hold_up_nothing_else(request_: EmbeddingRequest) -> None:
    text = text_inputs()

    async def main() -> list[float]:
        async def work() -> None:
            batches, tokens = await _batches(text, request_)
            items = len(request_.texts or request_.rows or [])
            assert sum(len(batch.items) for batch in batches) == items
            assert tokens >= 3 * items

        return await stalls(work)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        worst = runner.run(main())
    assert min(worst) < STALL, worst


def test_in_steps_every_text_gets_the_tokens_that_it_gets_alone() -> None:
    text = text_inputs()
    texts = ["a b " * (i % 7) + "c" * (i * 997 % 60_000 + 1) for i in range(50)]
    assert sum(map(len, texts)) > 2 * 2**18
    assert text.tokenize(texts) == [text.tokenize([one])[0] for one in texts]


def test_the_first_text_that_is_too_long_is_named_and_none_behind_it_is_looked_at() -> None:
    text = text_inputs()
    texts = ["a"] * 9 + ["a " * MOST]
    with pytest.raises(RequestError, match=rf"input\[9\] has {MOST + 2}"):
        text.tokenize([*texts, "a" * 200_000, "a" * 200_000, None])  # type: ignore[list-item]


def test_a_text_that_cannot_fit_is_refused_unread() -> None:
    text = text_inputs()
    assert text.tokenize([" " * 262_143 + "a"]) == [[1, 4, 2]]
    with pytest.raises(RequestError, match=r"262145 characters of input\[1\]"):
        text.tokenize(["a", " " * 262_145])
