"""What an event loop feels of a request or an answer of half a million strings: next to nothing."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import orjson
import pytest
from json_requests import signature_of, with_process
from loop_ticker import STALL, stalls

from modelops.config import LimitsConfig
from modelops.errors import RequestError
from modelops_servers.dataplane import strings
from modelops_servers.dataplane.arena import Arena
from modelops_servers.dataplane.packed_strings import PackedStrings, opened, packed
from modelops_servers.dataplane.wire import FrameReader, Kind, Tensors
from modelops_servers.front.exchange import Call, Reply
from modelops_servers.front.json_process import STRINGS_ON_LOOP, JsonProcess
from modelops_servers.front.oip import InferEndpoint
from modelops_servers.front.replica import Answer
from modelops_servers.front.tensor_codec import check_strings

COUNT = 500_000
TRIES = 6
STRINGS = signature_of("string", "n")
HALF_A_MILLION = np.array([b"", *(b"w%d" % i for i in range(1, COUNT))], dtype=object)
PACKED = strings.pack(HALF_A_MILLION)

Give = Callable[[], Answer]


class OneModel:
    """The models as the infer endpoint asks them; its answers are ``give``'s."""

    def __init__(self, json: JsonProcess, give: Give) -> None:
        self.json = json
        self.limits = LimitsConfig()
        self.config = SimpleNamespace(name="m")
        self.number = "1"
        self.signature = STRINGS
        self.got: dict[str, Any] = {}
        self._give = give

    def find(self, name: str, version: str | None = None) -> OneModel:
        return self

    def admit(self) -> None:
        return

    def leave(self) -> None:
        return

    def lease(self, count: int) -> None:
        return

    async def infer(self, tensors: Any, deadline: float, lease: Any) -> Answer:
        self.got = tensors
        return self._give()


def inline() -> Answer:
    """An answer whose strings are objects; nobody else holds them."""
    return Answer({"y": LOOSE.pop()})


LOOSE: list[Any] = []


def hosted() -> Answer:
    """An answer as it comes out of a result's frame."""
    arena = Arena.create(2**24)
    outputs = Tensors(STRINGS.outputs)
    frame = outputs.write(Kind.RESULT, 1, {"y": LARGE_RESULT}, arena, [])
    tensors, shared = outputs.read(FrameReader().feed(frame)[0], arena)
    assert shared
    return Answer(tensors, arena.close)


LARGE_RESULT = PackedStrings.of(memoryview(PACKED), (COUNT,))


def request_of(blob: bytes, count: int, *, binary: bool) -> tuple[bytes, dict[bytes, bytes]]:
    entry = {
        "name": "x",
        "datatype": "BYTES",
        "shape": [count],
        "parameters": {"binary_data_size": len(blob)},
    }
    head = orjson.dumps({"inputs": [entry], "parameters": {"binary_data_output": binary}})
    return head + blob, {b"inference-header-content-length": str(len(head)).encode()}


async def asked(model: OneModel, body: bytes, headers: dict[bytes, bytes]) -> Reply:
    first = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Any:
        if not first:
            await asyncio.Event().wait()
        return first.pop()

    return await InferEndpoint(cast(Any, model))(Call(receive, headers, 60), "m", None)


@pytest.mark.parametrize("give", [hosted, inline])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_half_a_million_strings_hold_up_nothing_else(give: Give, binary: bool) -> None:
    body, headers = request_of(PACKED, COUNT, binary=binary)

    async def job(process: JsonProcess) -> list[float]:
        model = OneModel(process, give)
        await process.run(os.getpid)
        replies: list[Reply] = []

        async def work() -> None:
            replies[:] = [await asked(model, body, headers)]

        LOOSE[:] = [np.array(HALF_A_MILLION.tolist(), dtype=object) for _ in range(TRIES)]
        worst = await stalls(work, TRIES)
        assert opened(model.got["x"]).tolist() == HALF_A_MILLION.tolist()
        answer = b"".join(replies[0].parts)
        if binary:
            assert answer.endswith(PACKED)
        else:
            values = orjson.loads(answer)["outputs"][0]["data"]
            assert values == [item.decode() for item in HALF_A_MILLION]
        return worst

    worst = with_process(job)
    assert min(worst) < STALL, worst


def test_half_a_million_strings_on_the_loop_would() -> None:
    """The positive control: the ticker sees it."""

    async def job(process: JsonProcess) -> list[float]:
        async def work() -> None:
            check_strings("x", memoryview(PACKED), COUNT)

        return await stalls(work, tries=1)

    assert min(with_process(job)) > STALL


@pytest.mark.parametrize("damage", ["cut", "more", "reaches beyond"])
def test_h3_many_strings_that_are_not_there_are_refused_all_the_same(damage: str) -> None:
    blob = {
        "cut": PACKED[:-6],
        "more": PACKED + bytes(4),
        "reaches beyond": b"\xff\xff\xff\xff" + PACKED[4:],
    }[damage]

    async def job(process: JsonProcess) -> None:
        body, headers = request_of(blob, COUNT, binary=True)
        with pytest.raises(RequestError, match="input 'x'"):
            await asked(OneModel(process, inline), body, headers)

    with_process(job)


def test_few_strings_need_no_other_process_however_large_they_are() -> None:
    one = strings.pack(np.array([bytes(3_000_000)], dtype=object))
    many = strings.pack(np.array([b""] * STRINGS_ON_LOOP, dtype=object))

    async def job(process: JsonProcess) -> None:
        for blob, count in ((one, 1), (many, STRINGS_ON_LOOP)):
            body, headers = request_of(blob, count, binary=True)
            answer = Answer({"y": strings.unpack(memoryview(blob), count)})
            model = OneModel(process, lambda answer=answer: answer)
            reply = await asked(model, body, headers)
            assert b"".join(reply.parts).endswith(blob)
            taken = np.frombuffer(model.got["x"].packed, np.uint8)
            assert np.shares_memory(taken, np.frombuffer(body, np.uint8)), "they stay in the body"
        assert process.pid is None

    with_process(job)


def test_what_is_walked_over_on_the_loop_is_short() -> None:
    """As fast as this machine does it: 5 ms are meant, 20 are too much."""
    few = HALF_A_MILLION[:STRINGS_ON_LOOP]
    blob = memoryview(strings.pack(few))
    for work in (lambda: strings.check(blob, len(few)), lambda: packed(few)):
        times = []
        for _ in range(9):
            began = time.thread_time()
            work()
            times.append(time.thread_time() - began)
        assert min(times) < STALL
