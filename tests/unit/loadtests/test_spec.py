from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from modelops.errors import UsageError
from modelops_loadtests.load.sweep import parse
from modelops_loadtests.spans import Span
from modelops_loadtests.spec import RunSpec, parse_weights


def spec(**options: Any) -> RunSpec:
    return RunSpec.checked({"url": "127.0.0.1:1", "scenario": "chat", **options})


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"users": 4, "rate": 2.0}, "--users and --rate are two kinds of load"),
        ({"sweep": "rate=1..4", "trace": Path("t.jsonl")}, "--sweep and --trace"),
        ({"rate": 2.0, "burstiness": 0.5}, "--burstiness shapes gamma"),
        ({"arrivals": "constant"}, "--arrivals is of an open loop"),
        ({"connections": 1}, "--connections bounds an open loop"),
        ({"rate": 2.0, "connections": 1, "processes": 2}, "fewer --connections"),
        ({"users": 1, "processes": 2}, "fewer --users"),
        ({"max_duration_s": 5.0}, "--max-duration is below --duration"),
        ({"sweep": "users=1..4", "max_duration_s": 50.0}, "--max-duration goes with"),
        ({"think_s": 1.0}, "--think lies between turns"),
        ({"scenario": "chat=1,embeddings=2", "turns": 3}, "embeddings has no conversation"),
        ({"baseline": Path("run")}, "go together"),
        ({"rate": 0.0}, r"--rate: input should be greater than 0"),
        ({"duration_s": float("nan")}, "--duration: "),
        ({"input_tokens": "9..2"}, "the range 9..2 is empty"),
        ({"input_tokens": "many"}, "number of tokens"),
        ({"model": ("a", "b")}, "two models for one scenario"),
        ({"scenario": "chat=0"}, "as scenarios"),
        ({"scenario": "chat,chat"}, "as scenarios"),
        ({"scenario": ""}, "as scenarios"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_the_options_name(
    options: dict[str, Any], says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        spec(**options)


def test_models_by_scenario_and_for_all() -> None:
    mixed = spec(scenario="chat=3,embeddings=1", model=("chat=org/a=b", "minilm"))
    assert mixed.weights == {"chat": 3, "embeddings": 1}
    assert (mixed.model_of("chat"), mixed.model_of("embeddings")) == ("org/a=b", "minilm")
    assert parse_weights("chat") == {"chat": 1}
    # A model may be named with an equals sign where no scenario is.
    assert spec(model=("v=2",)).model_of("chat") == "v=2"


@pytest.mark.parametrize(
    ("options", "shape", "is_open"),
    [
        ({}, "users", False),
        ({"rate": 3.0}, "rate", True),
        ({"sweep": "rate=1..4"}, "sweep", True),
        ({"sweep": "users=1..4"}, "sweep", False),
        ({"trace": Path("t.jsonl")}, "trace", True),
    ],
)
def test_the_shape_of_the_load(options: dict[str, Any], shape: str, is_open: bool) -> None:
    asked = spec(**options)
    assert (asked.shape, asked.is_open) == (shape, is_open)


def test_a_spec_survives_its_own_json_without_the_key() -> None:
    asked = spec(sweep="rate=1..5", input_tokens="128..512", output_tokens="64", api_key="s3cret")
    assert "s3cret" not in asked.model_dump_json()
    again = RunSpec.model_validate_json(asked.model_dump_json())
    assert again == asked.model_copy(update={"api_key": None})
    assert (str(again.input_tokens), str(again.output_tokens)) == ("128..512", "64")
    assert str(again.sweep) == "rate=1..5"


def test_a_span_draws_from_both_ends() -> None:
    rng = Random(1)
    assert {Span.model_validate("3..5").draw(rng) for _ in range(100)} == {3, 4, 5}


@pytest.mark.parametrize(
    ("text", "loads"),
    [
        ("rate=1..64", (1, 2, 4, 8, 16, 32, 64)),
        ("users=3..20", (3, 6, 12, 20)),
        ("rate=0.5,2,5", (0.5, 2, 5)),
    ],
)
def test_sweeps_double_or_are_taken_as_they_are(text: str, loads: tuple[float, ...]) -> None:
    assert parse(text)["loads"] == loads


@pytest.mark.parametrize(
    "text", ["rate", "qps=1..4", "rate=4..1", "rate=2,1", "rate=0,1", "users=1.5,2", "rate=a..b"]
)
def test_sweeps_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)
