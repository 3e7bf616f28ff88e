from __future__ import annotations

import json
from collections import Counter
from random import Random
from typing import Any

import pytest

from modelops.errors import ModelopsError
from modelops_loadtests.scenarios.mix import MixScenario, prepare_mix
from modelops_loadtests.scenarios.scenario import BadAnswerError, Reply, Settings


def nothing(path: str, body: Any = None, /) -> tuple[int, Any]:
    return 404, None


def mixed(**weights: float) -> Any:
    return prepare_mix(weights, lambda name: Settings(f"model of {name}"), nothing)


def test_requests_are_drawn_by_weight_and_replies_go_to_the_scenario_they_are_of() -> None:
    mix = mixed(chat=3, embeddings=1)
    rng = Random(0)
    requests = [mix.request(rng) for _ in range(2000)]
    drawn = Counter(r.name for r in requests)
    assert 0.7 < drawn["chat"] / 2000 < 0.8
    chat = next(r for r in requests if r.name == "chat")
    embedding = next(r for r in requests if r.name == "embeddings")
    assert json.loads(chat.body)["model"] == "model of chat"
    assert chat.stream
    assert not embedding.stream
    assert not mix.reader(chat).finished
    vector = Reply({}, b'{"data": [{"index": 0, "embedding": [1.0]}]}')
    assert mix.check(embedding, vector).items == 1
    with pytest.raises(BadAnswerError, match="no choice"):
        mix.check(chat, vector)


def test_lengths_are_asked_of_those_that_have_them() -> None:
    mix = mixed(completion=1, embeddings=1)
    requests = [mix.sized(Random(n), None, 7) for n in range(20)]
    most = {r.name: json.loads(r.body).get("max_tokens") for r in requests}
    assert most == {"completion": 7, "embeddings": None}


def test_one_scenario_is_itself_and_an_unknown_one_is_refused() -> None:
    assert not isinstance(mixed(chat=1), MixScenario)
    with pytest.raises(ModelopsError):
        mixed(chat=1, chatter=1)
