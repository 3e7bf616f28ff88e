from __future__ import annotations

import shlex

import pytest

from modelops_loadtests.report import command
from modelops_loadtests.spec import RunSpec


def words(**options: object) -> list[str]:
    spec = RunSpec.model_validate({"url": "http://h:1", "scenario": "chat", **options})
    return shlex.split(command(spec.model_dump(mode="json")))


def test_the_command_repeats_the_run_and_never_shows_the_key() -> None:
    found = words(
        scenario="embeddings",
        model="my model",
        data="a folder/it's.txt",
        dims={"sequence": 64},
        slo=("error_rate=0.1%",),
        api_key="s3cret-key",
    )
    assert found[:3] == ["modelops", "loadtest", "http://h:1"]
    options = dict(zip(found[3::2], found[4::2], strict=True))
    assert options["--scenario"] == "embeddings"
    assert options["--model"] == "my model"
    assert options["--data"] == "a folder/it's.txt"
    assert options["--dim"] == "sequence=64"
    assert options["--slo"] == "error_rate=0.1%"
    assert "s3cret-key" not in found


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rate": 8, "arrivals": "gamma", "burstiness": 0.5}, "--rate 8 --arrivals gamma"),
        ({"sweep": "rate=1..64"}, "--sweep rate=1..64"),
        ({"sweep": "users=1,2,5"}, "--sweep users=1,2,5"),
        ({"input_tokens": "128..512", "output_tokens": 16}, "--input-tokens 128..512"),
        ({"turns": 4, "think_s": 0.5}, "--think 0.5s"),
        ({"model": ["chat=a"]}, "--model chat=a"),
        ({"calibrate": False}, "--no-calibration"),
        ({"max_duration_s": 90}, "--max-duration 90s"),
    ],
)
def test_each_shape_of_load_is_told(options: dict[str, object], told: str) -> None:
    assert told in " ".join(words(**options))


def test_no_option_is_forgotten() -> None:
    """Each field of a run that differs from its default shows in the command, but these."""
    elsewhere = {"url", "scenario", "api_key", "output", "trace_ids", "models"}
    changed: dict[str, object] = {
        "model": "m",
        "users": 3,
        "sweep": "rate=1,2",
        "trace": "t.jsonl",
        "arrivals": "constant",
        "burstiness": 2,
        "input_tokens": 9,
        "output_tokens": 9,
        "data": "d.txt",
        "tokenizer": "t",
        "temperature": 0.5,
        "encoding": "binary",
        "dims": {"a": 1},
        "slo": ("qps=1",),
        "baseline": "b.json",
        "max_regression": ("p95=5%",),
        "metrics_url": "http://h/m",
        "shared_prefix": 0.5,
        "stream": False,
        "ignore_eos": True,
        "calibrate": False,
        "server_metrics": False,
    }
    plain = RunSpec(url="http://h:1", scenario="chat").model_dump(mode="json")
    for name in RunSpec.model_fields.keys() - elsewhere:
        value = changed.get(name, 7)
        made = {"sweep": {"axis": "rate", "loads": [1.0, 2.0], "refine": False}}.get(name, value)
        if name in ("input_tokens", "output_tokens"):
            made = {"low": 9, "high": 9}
        assert command({**plain, name: made}) != command(plain), name


def test_what_is_a_default_is_left_out() -> None:
    assert words() == shlex.split(
        "modelops loadtest http://h:1 --scenario chat --seed 0 --duration 20s --warmup 2s "
        "--timeout 30s"
    )
