"""The mock over the wire: what it writes is what its script says and its stamps tell."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from modelops_loadtests.mock import MockServer, Script

CHAT = "/v1/chat/completions"
HELLO = {
    "messages": [{"role": "user", "content": "say five words"}], "stream": True, "max_tokens": 5,
    "stream_options": {"include_usage": True},
}  # fmt: skip


def ask(
    server: MockServer,
    path: str,
    body: Any,
    *,
    timeout: float = 10,
    whole: bool = False,
    **headers: str,
) -> tuple[int, bytes, list[float]]:
    """Return the status, the body, and when each of its lines of data was read.

    With ``whole`` nothing of the latter, but a reply that was cut is an error.
    """
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout)
    try:
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", path, json.dumps(body), sent)
        response = connection.getresponse()
        if whole:
            return response.status, response.read(), []
        lines, times = [], []
        while line := response.readline():
            lines.append(line)
            if line.startswith(b"data: "):
                times.append(time.perf_counter())
        return response.status, b"".join(lines), times
    finally:
        connection.close()


@pytest.mark.parametrize("framing", ["chunked", "close"])
def test_a_stream_is_stamped_as_it_is_read(framing: str) -> None:
    with MockServer(Script(ttft_ms=60, interval_ms=30, framing=framing)) as server:
        status, body, read = ask(server, CHAT, HELLO, X_Request_Id="run-1")
        (record,) = server.stamps()["requests"]
    assert (status, record["id"], record["outcome"]) == (200, "run-1", "ok")
    assert body.endswith(b"data: [DONE]\n\n")
    assert record["tokens"] == [1] * 5
    due = [record["arrived"] + 0.06 + 0.03 * n for n in range(5)]
    assert record["due"] == pytest.approx(due)
    # Read after the role chunk, and before the finish, the usage and the ending.
    for planned, before, after, seen in zip(
        due, record["writing"], record["wrote"], read[1:6], strict=True
    ):
        # A reader can be woken before the writer's send has returned, never before it began.
        assert planned <= before <= after
        assert before <= seen


def test_many_streams_at_once_are_all_written_in_time() -> None:
    """Late by the machine's other work at most: none waits for another's pace."""
    with MockServer(Script(ttft_ms=200, interval_ms=20)) as server:
        with ThreadPoolExecutor(16) as pool:
            began = time.perf_counter()
            list(pool.map(lambda _: ask(server, CHAT, HELLO | {"max_tokens": 30}), range(16)))
            took = time.perf_counter() - began
        told = server.stamps()
    assert [sum(record["tokens"]) for record in told["requests"]] == [30] * 16
    assert took < 5  # one after another: 12.5 s
    assert told["late_ms"].keys() == {"p50", "p99", "max"}
    assert sum(record["queued"] for record in told["requests"]) == 0


def test_a_mock_that_was_held_up_goes_on_at_its_pace() -> None:
    """What it owes is not written in a burst: nobody could tell that from a client that slept."""
    with MockServer(Script(ttft_ms=20, interval_ms=20)) as server:
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(ask, server, CHAT, HELLO | {"max_tokens": 20})
            while 'running{model_name="mock"} 1' not in server.metrics():
                assert not asked.done()
            os.kill(server.pid, signal.SIGSTOP)
            time.sleep(0.2)
            os.kill(server.pid, signal.SIGCONT)
            asked.result()
        (record,) = server.stamps()["requests"]
    gaps = [later - earlier for earlier, later in pairwise(record["due"])]
    assert record["due"][-1] - record["arrived"] > 20 * 0.02 + 0.1
    assert min(gaps) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("fault", "ending"),
    [
        ("error", b"data: [DONE]\n\n"),
        ("unfinished", b'"finish_reason":null}]}\n\n'),
    ],
)
def test_a_stream_that_ends_badly_by_its_events(fault: str, ending: bytes) -> None:
    with MockServer(Script(ttft_ms=0, interval_ms=1, fault=fault, fault_after=2)) as server:
        status, body, _ = ask(server, CHAT, HELLO)
    assert status == 200
    assert body.endswith(ending)
    assert body.count(b'"content":"') == 3  # the role chunk's is empty
    assert (b'data: {"error"' in body) == (fault == "error")


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("cut", http.client.IncompleteRead),
        ("reset", ConnectionResetError),
        ("stall", TimeoutError),
        ("hang-up", http.client.RemoteDisconnected),
    ],
)
def test_a_stream_that_ends_badly_by_its_connection(fault: str, error: type[Exception]) -> None:
    script = Script(ttft_ms=0, interval_ms=1, fault=fault, fault_after=2)
    with MockServer(script) as server:
        with pytest.raises(error):
            ask(server, CHAT, HELLO, timeout=0.5, whole=True)
        deadline = time.monotonic() + 5
        while not (outcome := server.stamps()["requests"][0]["outcome"]):
            assert time.monotonic() < deadline
    assert outcome == ("left" if fault == "stall" else fault)


def test_one_at_a_time_the_others_wait_in_line() -> None:
    script = Script(ttft_ms=100, interval_ms=0, concurrency=1)
    shown: list[str] = []
    with MockServer(script) as server:
        threads = [threading.Thread(target=ask, args=(server, CHAT, HELLO)) for _ in range(3)]
        for thread in threads:
            thread.start()
        while not any('num_requests_waiting{model_name="mock"} 2' in text for text in shown):
            shown.append(server.metrics())
            assert len(shown) < 1000
        for thread in threads:
            thread.join()
        records = sorted(server.stamps()["requests"], key=lambda record: record["began"])
        after = server.metrics()
    assert 'vllm:num_requests_running{model_name="mock"} 1' in shown[-1]
    assert float(shown[-1].split("kv_cache_usage_perc")[-1].split()[1]) > 0
    assert 'vllm:request_success_total{model_name="mock"} 3' in after
    for earlier, later in pairwise(records):
        assert later["began"] >= earlier["ended"]
    assert records[2]["began"] - records[2]["arrived"] > 0.15


def test_whole_replies_usage_and_the_tokenizer() -> None:
    script = Script(ttft_ms=0, interval_ms=0, reasoning_tokens=2, input_usage_factor=2)
    with MockServer(script, models=["a", "b"]) as server:
        _, body, _ = ask(server, CHAT, HELLO | {"stream": False})
        chat = json.loads(body)
        texts = {"model": "a", "input": ["one two", "three"]}
        _, body, _ = ask(server, "/v1/embeddings", texts)
        vectors = json.loads(body)
        _, body, _ = ask(server, "/tokenize", {"prompt": "one two  three\nfour"})
        tokens = json.loads(body)
        assert ask(server, "/v1/none", {})[0] == 404
        assert ask(server, CHAT, [])[0] == 400
        assert len(server.arrivals()) == 2
        server.forget()
        assert server.arrivals() == []
    message = chat["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("w0 w1", "w2 w3 w4")
    assert chat["usage"] == {"prompt_tokens": 6, "completion_tokens": 5, "total_tokens": 11}
    assert [len(item["embedding"]) for item in vectors["data"]] == [3, 3]
    assert vectors["usage"]["prompt_tokens"] == 6
    assert tokens["count"] == len(tokens["tokens"]) == len(set(tokens["tokens"])) == 4


def test_a_key_is_asked_for_but_not_by_what_watches() -> None:
    with MockServer(key="k3y") as server:
        assert ask(server, CHAT, HELLO)[0] == 401
        assert ask(server, CHAT, HELLO, Authorization="Bearer k3y")[0] == 200
        assert "vllm:" in server.metrics()


def test_the_command_says_its_port_and_ends_with_its_standard_input() -> None:
    command = [sys.executable, "-m", "modelops_loadtests.mock", "--ttft-ms", "1..2", "--tokens"]
    process = subprocess.Popen([*command, "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    out, _ = process.communicate(timeout=20)
    assert json.loads(out)["port"] > 0
    assert process.returncode == 0
    refused = subprocess.run([*command, "-1"], capture_output=True, timeout=20, check=False)
    assert refused.returncode == 2
    assert b"tokens is -1, below 0" in refused.stderr
