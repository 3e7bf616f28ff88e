"""What an event loop feels of large JSON beside it: next to nothing."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import json_jobs
import numpy as np
import orjson
import pytest
from json_requests import FLOATS, echoed, flat, request_of, signature_of, with_process
from loop_ticker import STALL, Ticker, stalls

from modelops_servers.front.json_process import (
    DECODED_ON_LOOP_BYTES,
    ENCODED_ON_LOOP_VALUES,
    JsonProcess,
    json_values,
)
from modelops_servers.front.oip_codec import decode_request, encode_response


@pytest.fixture(autouse=True)
def _jobs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker finds ``json_jobs`` where this process does."""
    paths = [str(Path(json_jobs.__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


MIB16 = 2**24 - 1000
NESTED = ",".join(["[" + ",".join(["0.125"] * 16) + "]"] * (MIB16 // 98))
WORDS = ",".join(['"sixteen letters!"'] * (MIB16 // 19))
LARGE = {
    "flat floats": (flat(MIB16 // 20), FLOATS),
    "nested floats": (
        request_of("FP32", [MIB16 // 98, 16], f"[{NESTED}]"),
        signature_of("float32", "a", "b"),
    ),
    "strings": (request_of("BYTES", [MIB16 // 19], f"[{WORDS}]"), signature_of("string", "n")),
}


@pytest.mark.parametrize("name", LARGE)
def test_16_mb_of_json_hold_up_nothing_else(name: str) -> None:
    body, signature = LARGE[name]
    assert 15 * 2**20 < len(body) <= 2**24

    async def job(process: JsonProcess) -> list[float]:
        await process.run(decode_request, flat(10), FLOATS, None)

        async def work() -> None:
            await echoed(process, body, signature)

        return await stalls(work)

    worst = with_process(job)
    assert min(worst) < STALL, worst


@pytest.mark.parametrize("texts", [["x" * 8000] * 2000, ["漢" * 5_500_000]])
def test_16_mb_of_text_hold_up_nothing_else(texts: list[str]) -> None:
    body = orjson.dumps({"input": texts})
    assert 13 * 2**20 < len(body) <= 2**24

    async def job(process: JsonProcess) -> list[float]:
        await process.run(os.getpid)

        async def work() -> None:
            assert await process.run(json_jobs.inputs_of, body) == texts

        return await stalls(work)

    worst = with_process(job)
    assert min(worst) < STALL, worst


def test_16_mb_of_json_on_the_loop_would() -> None:
    """The positive control: the ticker sees it."""

    async def job(process: JsonProcess) -> float:
        async with Ticker() as ticker:
            decode_request(LARGE["flat floats"][0], FLOATS)
        return ticker.worst

    assert with_process(job) > 2 * STALL


def cheapest(function: Callable[[], Any]) -> float:
    times = []
    for _ in range(9):
        began = time.thread_time()
        function()
        times.append(time.thread_time() - began)
    return min(times)


@pytest.mark.parametrize(
    ("value", "datatype", "dtype"),
    [("0", "INT64", "int64"), ("0.5", "FP32", "float32"), ("[0]", "FP32", "float32"),
     ('"a"', "BYTES", "string"), ("true", "BOOL", "bool")],
)  # fmt: skip
def test_what_stays_on_the_loop_is_short(value: str, datatype: str, dtype: str) -> None:
    """The worst of each kind, as fast as this machine does it: 5 ms are meant, 20 are too much."""
    count = (DECODED_ON_LOOP_BYTES - 100) // (len(value) + 1)
    nested = value.startswith("[")
    signature = signature_of(dtype, *(("n", "m") if nested else ("n",)))
    shape = [count, 1] if nested else [count]
    body = request_of(datatype, shape, "[" + ",".join([value] * count) + "]")
    assert len(body) <= DECODED_ON_LOOP_BYTES
    assert cheapest(lambda: decode_request(body, signature)) < STALL


@pytest.mark.parametrize("kind", ["doubles", "letters", "lines"])
def test_what_is_encoded_on_the_loop_is_short(kind: str) -> None:
    if kind == "doubles":
        array: Any = np.random.default_rng(0).random(ENCODED_ON_LOOP_VALUES)
        signature = signature_of("float64", "n")
    else:
        item = b"a" if kind == "letters" else b"a" * 4096
        array = np.full(ENCODED_ON_LOOP_VALUES, item, dtype=object)
        while json_values({"y": array}) > ENCODED_ON_LOOP_VALUES:
            array = array[: len(array) * 9 // 10]
        assert len(array) > 500
        signature = signature_of("string", "n")
    request = decode_request(request_of("FP32", [1], "[1]"), signature)
    encode = functools.partial(encode_response, "m", "1", request, {"y": array}, signature)
    assert cheapest(encode) < STALL
