from __future__ import annotations

import base64
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from modelops.errors import InputError, ModelNotFoundError, UsageError
from modelops_loadtests.scenarios.embeddings import EmbeddingsScenario, read_texts
from modelops_loadtests.scenarios.scenario import BadAnswerError, Reply, Settings
from modelops_loadtests.scenarios.tensors import TensorsScenario
from modelops_loadtests.spec import base_url

METADATA = {
    "inputs": [
        {
            "name": "ids",
            "datatype": "INT64",
            "shape": [-1, -1],
            "parameters": {"shape": ["batch", "sequence"], "bounds": [3, 9]},
        },
        {"name": "mels", "datatype": "FP32", "shape": [-1, 4]},
    ],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 2]}],
    "parameters": {"dims": {"batch": {"min": 1, "max": 8}, "sequence": {"min": 2, "max": 32}}},
}


def nothing(_path: str) -> tuple[int, Any]:
    raise AssertionError("asked the server")


def described(_path: str) -> tuple[int, Any]:
    return 200, METADATA


def vectors(*embeddings: Any) -> bytes:
    data = [{"index": i, "embedding": e} for i, e in enumerate(embeddings)]
    return json.dumps({"data": data}).encode()


HALF = base64.b64encode(np.array([0.5, 1.0], "<f4")).decode()
NAN = base64.b64encode(np.array([0.5, np.nan], "<f4")).decode()


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (vectors([1.0, 2.0]), "wrong_count"),
        (vectors([1.0], [1.0], [1.0]), "wrong_count"),
        (vectors([1.0], []), "invalid_body"),
        (vectors([1.0], [1.0, 2.0]), "invalid_body"),
        (vectors([1.0], [None]), "not_finite"),
        (vectors([1.0], [float("nan")]), "not_finite"),
        (vectors([1.0], [float("-inf")]), "not_finite"),
        (vectors(HALF, NAN), "not_finite"),
        (vectors(HALF, "?"), "invalid_body"),
        (vectors([1.0], "abc"), "invalid_body"),
        (vectors([1.0], [[1.0]]), "invalid_body"),
        (vectors([1.0], ["x"]), "invalid_body"),
        (vectors([1.0], None), "invalid_body"),
        (b"", "invalid_body"),
        (b"[]", "invalid_body"),
        (b'{"data": {}}', "invalid_body"),
        (b'{"data": [1, 2]}', "invalid_body"),
        (b'{"error": {"message": "no"}}', "error_in_body"),
        (b'{"data": [], "error": "no"}', "error_in_body"),
        (
            b'{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}',
            "wrong_count",
        ),
    ],
)
def test_a_wrong_answer_is_a_failure_of_a_known_kind(body: bytes, kind: str) -> None:
    scenario = EmbeddingsScenario.prepare(Settings("m", batch=2), nothing)
    with pytest.raises(BadAnswerError) as caught:
        scenario.check(scenario.request(Random(0)), Reply({}, body))
    assert caught.value.kind == kind


def test_a_right_answer_in_either_encoding() -> None:
    scenario = EmbeddingsScenario.prepare(Settings("m", batch=2), nothing)
    request = scenario.request(Random(0))
    assert len(json.loads(request.body)["input"]) == 2
    assert scenario.check(request, Reply({}, vectors([1.0], [2.0]))).items == 2
    assert scenario.check(request, Reply({}, vectors(HALF, HALF))).input_tokens is None


def test_texts_come_from_lines_or_jsonl_and_a_bad_line_is_named(tmp_path: Path) -> None:
    lines, objects, bad = (tmp_path / n for n in ("a.txt", "b.jsonl", "c.jsonl"))
    lines.write_text("one\n\ntwo\n")
    objects.write_text('"one"\n{"text": "two"}\n{"input": "three"}\n')
    bad.write_text('"one"\n{"txt": "two"}\n')
    assert read_texts(lines) == ("one", "two")
    assert read_texts(objects) == ("one", "two", "three")
    with pytest.raises(InputError, match="line 2"):
        read_texts(bad)
    with pytest.raises(InputError):
        read_texts(tmp_path / "missing")


def test_tensors_fit_the_metadata_and_the_sizes_asked_for() -> None:
    scenario = TensorsScenario.prepare(Settings("m", dims={"sequence": 5}, batch=3), described)
    ids, mels = json.loads(scenario.request(Random(0)).body)["inputs"]
    assert (ids["shape"], mels["shape"]) == ([3, 5], [3, 4])
    assert min(ids["data"]) >= 3
    assert max(ids["data"]) <= 9


def test_ranges_name_the_dynamic_axes_where_the_tensors_do_not() -> None:
    inputs = [{"name": n, "datatype": "INT64", "shape": [-1, -1]} for n in ("ids", "mask")]
    dims = {"batch": [1, 64], "sequence": [2, 512]}
    metadata = {**METADATA, "inputs": inputs, "parameters": {"dims": dims}}
    settings = Settings("m", dims={"sequence": 7})
    scenario = TensorsScenario.prepare(settings, lambda _path: (200, metadata))
    assert [t["shape"] for t in json.loads(scenario.request(Random(0)).body)["inputs"]] == [
        [1, 7]
    ] * 2


@pytest.mark.parametrize(
    ("bounds", "name", "expected"),
    [([1, 1], "mask", {1}), ([2, 2], "mask", {2}), ([0, 3], "token_type_ids", {0})],
)
def test_bounds_are_kept_whatever_the_name(
    bounds: list[int], name: str, expected: set[int]
) -> None:
    described = {"name": name, "datatype": "INT8", "shape": [8], "parameters": {"bounds": bounds}}
    metadata = {**METADATA, "inputs": [described], "parameters": None}
    scenario = TensorsScenario.prepare(Settings("m"), lambda _path: (200, metadata))
    (sent,) = json.loads(scenario.request(Random(0)).body)["inputs"]
    assert set(sent["data"]) == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"inputs": []},
        {"inputs": [{"name": "x", "datatype": "FP1", "shape": [1]}]},
        {"inputs": [{"name": "x", "datatype": "FP32"}]},
        {"inputs": ["x"]},
        {"parameters": {"dims": {"batch": [8, 1]}}},
        {"parameters": {"dims": {"batch": []}}},
        {"parameters": {"dims": "batch"}},
        {"parameters": ["dims"]},
        {"outputs": None},
        {
            "inputs": [
                {"name": "x", "datatype": "INT8", "shape": [1], "parameters": {"bounds": [0, 999]}}
            ]
        },
    ],
)
def test_metadata_that_is_not_the_protocols_is_an_input_error(changed: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="metadata"):
        TensorsScenario.prepare(Settings("m"), lambda _path: (200, {**METADATA, **changed}))


def test_an_unknown_dim_or_size_is_refused() -> None:
    with pytest.raises(UsageError, match=r"outside 2\.\.32"):
        TensorsScenario.prepare(Settings("m", dims={"sequence": 64}), described)
    with pytest.raises(UsageError, match="no dynamic dim"):
        TensorsScenario.prepare(Settings("m", dims={"frames": 6}), described)
    with pytest.raises(ModelNotFoundError):
        TensorsScenario.prepare(Settings("m"), lambda _path: (404, None))


@pytest.mark.parametrize(
    ("output", "kind"),
    [
        ({"shape": [1, 2], "data": [1, None]}, "not_finite"),
        ({"shape": [1, 2], "data": [1]}, "wrong_count"),
        ({"shape": [1, 3], "data": [1, 2, 3]}, "invalid_body"),
        ({"shape": [0, 2], "data": []}, "invalid_body"),
        ({"shape": [1, 2], "datatype": "FP64", "data": [1, 2]}, "invalid_body"),
        ({"shape": [1, 2]}, "invalid_body"),
        ({"shape": [1, 2], "parameters": {"binary_data_size": 8}}, "invalid_body"),
        ({"name": "z", "shape": [1, 2], "data": [1, 2]}, "wrong_count"),
    ],
)
def test_a_wrong_output_is_a_failure_of_a_known_kind(output: dict[str, Any], kind: str) -> None:
    scenario = TensorsScenario.prepare(Settings("m"), described)
    body = json.dumps({"outputs": [{"name": "y", "datatype": "FP32", **output}]}).encode()
    with pytest.raises(BadAnswerError) as caught:
        scenario.check(scenario.request(Random(0)), Reply({}, body))
    assert caught.value.kind == kind


@pytest.mark.parametrize(
    ("written", "base"),
    [
        ("http://h:1/", "http://h:1"),
        ("h:1", "http://h:1"),
        ("https://h/gw/v1/", "https://h/gw"),
        ("http://[::1]:80/v2", "http://[::1]:80"),
    ],
)
def test_base_urls(written: str, base: str) -> None:
    assert base_url(written) == base


@pytest.mark.parametrize(
    "text", ["ftp://h", "http://", "http://u:p@h", "http://h/?a=1", "http://h:x"]
)
def test_urls_that_cannot_be_meant(text: str) -> None:
    with pytest.raises(UsageError):
        base_url(text)
