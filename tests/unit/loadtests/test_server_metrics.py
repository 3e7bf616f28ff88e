"""Metrics of a server under load: read strictly, made into figures, and never the run's end."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modelops_loadtests import exposition
from modelops_loadtests.server_metrics import ServerMetrics, look, series

WAITING = "vllm:num_requests_waiting"


def read(text: str, *names: str) -> list[tuple[dict[str, str], float]]:
    return [(p.labels, p.value) for p in exposition.read(text.encode(), names)]


def test_samples_are_read_with_their_labels_and_nothing_else_is() -> None:
    text = (
        "# HELP a_total of things\n# TYPE a_total counter\n"
        'a_total{model="x",path="c:\\\\d \\"e\\" \\n"} 3e2 1700000000\n'
        "a_total 4\na_totals 5\nb 6\n"
        'a_total{model="y",} 7 # {trace="z"} 1\r\n'
    )
    assert read(text, "a_total") == [
        ({"model": "x", "path": 'c:\\d "e" \n'}, 300.0),
        ({}, 4.0),
        ({"model": "y"}, 7.0),
    ]


@pytest.mark.parametrize(
    "line",
    [
        *("a{", "a{x=1} 2", 'a{x="1" 2', 'a{x="1"}2', 'a{x="1"y="2"} 3'),
        *("a", "a ", "a one", "a 0x1", "a NaN", "a +Inf", "a 1e999", "a 1 x", "a 1" + " " * 9000),
    ],
)
def test_a_line_that_is_not_well_formed_or_not_finite_counts_for_nothing(line: str) -> None:
    assert read(f"{line}\na 5\n", "a") == [({}, 5.0)]


@given(st.one_of(st.binary(), st.text('va{}"\\=,# \n\r\t.0123456789eE+-_:NI').map(str.encode)))
def test_no_body_raises(body: bytes) -> None:
    for point in exposition.read(body, ("a", "v", "va")):
        assert isinstance(point.value, float)
    look(WAITING.encode() + body)


def test_a_megabyte_of_other_metrics_costs_little() -> None:
    body = b'other_bucket{le="1",model="m"} 5\n' * 40_000 + f"{WAITING} 2\n".encode()
    assert len(body) > 1 << 20
    began = time.process_time()
    assert look(body) == {(WAITING, ("", "")): 2.0}
    assert time.process_time() - began < 1


def test_a_stranger_cannot_make_it_grow() -> None:
    many = "".join(f'{WAITING}{{model="{"m" * 300}{i}"}} 1\n' for i in range(5000))
    assert len(look(many.encode())) == 1  # labels are cut, and so are the same
    distinct = "".join(f'{WAITING}{{model="m{i}"}} 1\n' for i in range(5000))
    assert len(look(distinct.encode())) == 200
    assert len(series([(0.0, look(distinct.encode()))])) == 8


def page(waiting: int, queue: tuple[float, int], tokens: int, usage: float) -> bytes:
    return f"""\
vllm:num_requests_waiting{{engine="0",model_name="m"}} {waiting}
vllm:num_requests_waiting{{engine="1",model_name="m"}} 1
vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {usage}
vllm:kv_cache_usage_perc{{engine="1",model_name="m"}} 0.1
modelops_queue_seconds_sum{{model="m"}} {queue[0]}
modelops_queue_seconds_count{{model="m"}} {queue[1]}
modelops_tokens_total{{model="m",kind="prompt"}} 7
modelops_tokens_total{{model="m",kind="completion"}} {tokens}
modelops_rejected_total{{model="m",reason="full"}} 0
""".encode()


def test_gauges_counters_and_histograms_become_figures_over_time() -> None:
    looks = [
        (0.0, look(page(3, (1.0, 10), 100, 0.5))),
        (2.0, look(page(5, (1.6, 16), 300, 0.75))),
        (3.0, look(page(0, (1.6, 16), 10, 0.2))),  # nothing queued; the server began anew
    ]
    rows = {row["title"]: row for row in series(looks)}
    assert rows["waiting in vLLM"]["points"] == [[0.0, 4.0], [2.0, 6.0], [3.0, 1.0]]
    assert rows["KV cache in use"]["points"] == [[0.0, 50.0], [2.0, 75.0], [3.0, 20.0]]
    assert rows["wait for the engine"]["points"] == [[2.0, 100.0]]
    assert rows["completion tokens"]["points"] == [[2.0, 100.0]]
    assert {row["model"] for row in rows.values()} == {"m"}
    assert "rejected per second" not in rows, "a counter that never moved says nothing"
    assert "prompt tokens" not in rows


class Metrics(http.server.BaseHTTPRequestHandler):
    status, body, seen = 200, b"", threading.Event()
    key: str | None = None

    def do_GET(self) -> None:
        type(self).key = self.headers["Authorization"]
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)
        self.seen.set()

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[str, type[Metrics]]]:
    handler = type("Handler", (Metrics,), {"seen": threading.Event()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}/metrics", handler
        listening.shutdown()
        thread.join()


def test_a_server_is_looked_at_again_and_again(server: tuple[str, type[Metrics]]) -> None:
    url, handler = server
    handler.body = page(2, (1.0, 1), 5, 0.5)
    zero = time.perf_counter()
    with ServerMetrics(url, {"Authorization": "Bearer k"}, every=0.01) as watch:
        for _ in range(3):
            handler.seen.clear()
            assert handler.seen.wait(5)
    told = watch.result(zero)
    assert handler.key == "Bearer k"
    assert told["why"] is None
    assert told["looks"] >= 2
    (row,) = [r for r in told["series"] if r["source"] == WAITING]
    assert all(0 <= t <= time.perf_counter() - zero and v == 3 for t, v in row["points"])


def test_a_server_without_metrics_is_said_so_and_asked_once(
    server: tuple[str, type[Metrics]],
) -> None:
    url, handler = server
    handler.status = 404
    with ServerMetrics(url, every=0.01) as watch:
        assert handler.seen.wait(5)
        assert watch._thread is not None
        watch._thread.join(5)
    assert watch.result(0.0) == {
        "why": "GET /metrics answered 404",
        "looks": 0,
        "missed": 0,
        "series": [],
    }


def test_a_server_that_is_not_there_costs_nothing_but_the_figures() -> None:
    with ServerMetrics("http://127.0.0.1:1/metrics", every=0.01) as watch:
        while not watch._missed:
            time.sleep(0.005)
    told = watch.result(0.0)
    assert (told["why"], told["series"]) == ("it did not answer", [])
    assert told["missed"] >= 1
