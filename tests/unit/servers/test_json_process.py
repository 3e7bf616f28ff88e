"""Large JSON in its own process: nothing of it holds up the loop, and its faults are no others'."""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import json_jobs
import numpy as np
import orjson
import pytest
from json_requests import FLOATS, echoed, flat, request_of, signature_of, with_process

from modelops.errors import EngineError, OverloadedError, RequestError
from modelops_servers.dataplane.packed_strings import PackedStrings, opened, packed
from modelops_servers.front.json_process import JsonProcess, json_values
from modelops_servers.front.oip_codec import decode_request, encode_response
from modelops_servers.front.status import FieldError


@pytest.fixture(autouse=True)
def _jobs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker finds ``json_jobs`` where this process does."""
    paths = [str(Path(json_jobs.__file__).parent), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))


def test_floats_strings_and_nested_values_come_back_as_they_went() -> None:
    async def job(process: JsonProcess) -> None:
        request, text = await echoed(process, flat(50_000), FLOATS)
        assert request.tensors["x"].dtype == np.float32
        assert request.tensors["x"].shape == (50_000,)
        assert request.outputs[0].name == "y"
        assert isinstance(text, memoryview)
        sent = np.array(orjson.loads(flat(50_000))["inputs"][0]["data"], np.float32)
        got = np.array(orjson.loads(text)["outputs"][0]["data"], np.float32)
        assert (got == sent).all()

        nested = request_of("FP32", [2, 3], "[[1,2,3],[4,5,6]]")
        request, text = await echoed(process, nested, signature_of("float32", "a", "b"))
        assert request.tensors["x"].tolist() == [[1, 2, 3], [4, 5, 6]]
        assert orjson.loads(text)["outputs"][0]["data"] == [1, 2, 3, 4, 5, 6]

        words = request_of("BYTES", [2, 2], '["a","","é","ab"]')
        signature = signature_of("string", "a", "b")
        request, text = await echoed(process, words, signature)
        strings = request.tensors["x"]
        assert isinstance(strings, PackedStrings)
        assert (strings.shape, strings.dtype) == ((2, 2), object)
        assert opened(strings).tolist() == [[b"a", b""], ["é".encode(), b"ab"]]
        assert orjson.loads(text)["outputs"][0]["data"] == ["a", "", "é", "ab"]
        # A tensor that came from elsewhere and is not packed goes just as well.
        bare = dataclasses.replace(request, tensors={})
        outputs = {"y": opened(strings)}
        encoded = await process.run(encode_response, "m", "1", bare, outputs, signature)
        assert orjson.loads(encoded.parts[0])["outputs"][0]["data"] == ["a", "", "é", "ab"]

    with_process(job)


def test_binary_parts_of_any_layout_go_as_well() -> None:
    async def job(process: JsonProcess) -> None:
        array = np.arange(120_000, dtype=np.float64).reshape(300, 400)
        for sent in (array, array.T, array[::2, ::3], array[:0], np.float64(1).reshape(())):
            kept = await process.run(np.positive, sent)
            assert kept.shape == sent.shape
            assert (kept == sent).all()
        for size in (0, 1, 65_535, 65_536, 3_000_000):
            blob = os.urandom(size)
            assert await process.run(bytes, blob) == blob
            assert await process.run(bytes, memoryview(blob)) == blob
            assert await process.run(bytes, memoryview(blob)[::-1]) == blob[::-1]

    with_process(job)


def test_texts_come_back_as_they_went() -> None:
    async def job(process: JsonProcess) -> None:
        large = "漢é𝄞a" * 200_000
        many = ["", "a", "é", "漢" * 30_000, "\ud800", *map(str, range(500))]
        for sent in (large, "\udfff" + large, many, many[:5], [*many, 1], [*many, large]):
            got = await process.run(copy.copy, sent)
            assert got == sent
            assert type(got) is type(sent)

    with_process(job)


def test_packed_strings_never_pass_for_their_strings() -> None:
    array = np.array([[b"a", b"bc"]], dtype=object)
    kept = PackedStrings.of(memoryview(packed(array)), array.shape)
    assert packed(kept) == packed(array)
    assert opened(array) is array
    with pytest.raises(TypeError):
        [bytes(item) for item in kept.ravel()]
    with pytest.raises(AttributeError):
        packed(kept[0])


def test_errors_come_back_as_themselves() -> None:
    async def job(process: JsonProcess) -> None:
        with pytest.raises(RequestError, match="not JSON") as caught:
            await process.run(decode_request, b"[" * 100_000, FLOATS, None)
        assert type(caught.value) is RequestError
        assert "not JSON" in caught.value.message
        assert caught.value.hint is None
        with pytest.raises(FieldError, match="off") as field:
            await process.run(json_jobs.raise_field)
        assert (field.value.param, field.value.code) == ("input", "too_odd")
        assert (field.value.message, field.value.hint) == ("it is off", None)
        with pytest.raises(EngineError) as engine:
            await process.run(json_jobs.raise_engine)
        assert engine.value.hint == "try again"
        with pytest.raises(ZeroDivisionError) as unforeseen:
            await process.run(divmod, 1, 0)
        assert "in another process" in unforeseen.value.__notes__[0]
        with pytest.raises(RuntimeError, match="OddError: odd"):
            await process.run(json_jobs.raise_what_cannot_travel)
        with pytest.raises((AttributeError, TypeError, ValueError), match="pickle"):
            await process.run(json_jobs.return_what_cannot_travel)
        # What cannot go there never leaves here; the process is as well as before.
        with pytest.raises((AttributeError, TypeError, ValueError), match="pickle"):
            await process.run(lambda: 1)
        pid = process.pid
        assert await process.run(os.getpid) == pid

    with_process(job)


def test_it_starts_on_need_and_holds_nothing_of_the_front() -> None:
    async def job(process: JsonProcess) -> None:
        assert process.pid is None
        await process.run(decode_request, flat(10), FLOATS, None)
        pid, parent, arguments, heavy = await process.run(json_jobs.identity)
        assert (pid, parent) == (process.pid, os.getpid())
        assert arguments[0].endswith("json_worker.py")
        assert heavy == []
        os.kill(pid, signal.SIGINT)
        os.kill(pid, signal.SIGTERM)
        assert await process.run(os.getpid) == pid

    # What runs the tests may ignore it already, and a child would inherit that.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with_process(job)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_worker_that_dies_fails_its_call_and_is_replaced() -> None:
    async def job(process: JsonProcess) -> None:
        first = await process.run(os.getpid)
        call = asyncio.create_task(process.run(time.sleep, 30))
        await asyncio.sleep(0.1)
        os.kill(first, signal.SIGKILL)
        with pytest.raises(EngineError, match="signal 9"):
            await call
        with pytest.raises(EngineError, match="exit code 3"):
            await process.run(os._exit, 3)
        second = await process.run(os.getpid)
        os.kill(second, signal.SIGKILL)
        await asyncio.sleep(0.1)
        # It died between two calls: nobody needs to know.
        third = await process.run(os.getpid)
        assert len({first, second, third}) == 3
        assert process.pid == third

    with_process(job)


def test_a_worker_that_hangs_is_ended() -> None:
    async def job(process: JsonProcess) -> None:
        first = await process.run(os.getpid)
        os.kill(first, signal.SIGSTOP)
        with pytest.raises(EngineError, match="longer than 2 s"):
            await process.run(os.getpid)
        assert await process.run(os.getpid) != first

    with_process(job, job_seconds=2)


def test_a_cancelled_call_is_forgotten_and_the_next_one_answered() -> None:
    async def job(process: JsonProcess) -> None:
        running = asyncio.create_task(process.run(time.sleep, 1))
        await asyncio.sleep(0.05)
        large = np.zeros(10_000_000, np.uint8)
        waiting = asyncio.create_task(process.run(len, large))
        await asyncio.sleep(0.05)
        kept = weakref.ref(large)
        del large
        waiting.cancel()
        running.cancel()
        ended = await asyncio.gather(running, waiting, return_exceptions=True)
        assert [type(e) for e in ended] == [asyncio.CancelledError] * 2
        del waiting, ended
        await asyncio.sleep(0.05)
        assert kept() is None
        assert await process.run(len, b"abc") == 3

    with_process(job)


def test_no_more_than_a_bounded_number_of_calls_wait() -> None:
    async def job(process: JsonProcess) -> None:
        await process.run(os.getpid)
        calls = [asyncio.create_task(process.run(time.sleep, 0.02)) for _ in range(70)]
        done = await asyncio.gather(*calls, return_exceptions=True)
        kinds = [type(d) for d in done]
        assert kinds == [type(None)] * 64 + [OverloadedError] * 6

    with_process(job)


def test_closing_fails_what_waits_and_leaves_no_process() -> None:
    async def job(process: JsonProcess) -> None:
        pid = await process.run(os.getpid)
        calls = [asyncio.create_task(process.run(time.sleep, 30)) for _ in range(3)]
        await asyncio.sleep(0.1)
        await process.close()
        for call in calls:
            with pytest.raises(EngineError):
                await call
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
        with pytest.raises(EngineError, match="stopping"):
            await process.run(os.getpid)

    with_process(job)


def test_it_dies_with_its_parent() -> None:
    code = (
        "import asyncio, os, signal\n"
        "from modelops_servers.front.json_process import JsonProcess\n"
        "process = JsonProcess()\n"
        "print(asyncio.run(process.run(os.getpid)), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    pid = int(ran.stdout)
    end = time.monotonic() + 5
    while _alive(pid):
        assert time.monotonic() < end
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_memory_and_descriptors_are_flat_over_many_jobs() -> None:
    async def job(process: JsonProcess) -> None:
        body = flat(200_000)

        async def rounds(count: int) -> tuple[int, int, int, int]:
            for _ in range(count):
                await echoed(process, body, FLOATS)
                with pytest.raises(RequestError):
                    await process.run(decode_request, body[:-1], FLOATS, None)
            return *await process.run(json_jobs.holdings), *json_jobs.holdings()

        before = await rounds(5)
        after = await rounds(15)
        assert after[1::2] == before[1::2]
        for low, high in zip(before[::2], after[::2], strict=True):
            assert high - low < 8 * 2**20
        # Killed and started again, it leaves no descriptor behind either.
        for _ in range(3):
            with pytest.raises(EngineError):
                await process.run(os._exit, 1)
        await process.run(os.getpid)
        assert json_jobs.holdings()[1] == before[3]

    with_process(job)


def test_values_are_counted_by_what_they_cost() -> None:
    numbers, few = np.zeros((10, 10)), np.array([b"", b"a" * 128], dtype=object)
    assert json_values({"a": numbers, "b": numbers}) == 200
    assert json_values({"a": few}) == 2 * 4 + 2
    kept = PackedStrings.of(memoryview(packed(few)), few.shape)
    assert json_values({"a": kept}) == 2 * 4 + 2
    assert json_values({}) == 0


def test_the_module_is_light() -> None:
    code = (
        "import sys; import modelops_servers.front.json_worker, modelops_servers.front.oip_codec\n"
        "print([n for n in ('fastapi', 'starlette', 'uvicorn', 'structlog', 'prometheus_client',"
        " 'onnxruntime', 'torch') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
