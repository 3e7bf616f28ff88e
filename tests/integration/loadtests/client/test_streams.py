from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import gevent
import numpy as np
import pytest

from modelops_loadtests import definitions
from modelops_loadtests.client.connection import Connection
from modelops_loadtests.client.target import Target
from modelops_loadtests.mock import MockServer, Script
from modelops_loadtests.preflight import http_get
from modelops_loadtests.samples import Sample, SampleTable
from modelops_loadtests.scenarios.chat import ChatScenario
from modelops_loadtests.scenarios.completion import CompletionScenario
from modelops_loadtests.scenarios.scenario import Scenario, Settings
from modelops_loadtests.sending import Sender
from modelops_loadtests.spans import Span


class Client:
    """Sends chats to a mock; ``records`` are what the mock stamped, in the order of the samples."""

    def __init__(self, server: MockServer, scenario: Scenario, **limits: Any) -> None:
        self.samples: list[Sample] = []
        self._server, self._scenario = server, scenario
        self._sender = Sender(scenario, self.samples, trace="t")  # type: ignore[arg-type]
        self._connection = Connection(Target(server.url, {}), **{"timeout": 20, **limits})

    def send(self) -> Sample:
        self._sender.send(self._connection, self._scenario.request(Random(1)))
        return self.samples[-1]

    def close(self) -> None:
        self._connection.close()

    @property
    def records(self) -> list[dict[str, Any]]:
        by_id = {record["id"]: record for record in self._server.stamps()["requests"]}
        return [by_id[f"t-0-{sample.number}"] for sample in self.samples]


@contextmanager
def chatting(script: Script, *, tokens: int = 12, **settings: Any) -> Iterator[Client]:
    limits = {name: settings.pop(name) for name in ("timeout", "idle_timeout") if name in settings}
    asked = Settings("mock", output_tokens=Span(low=tokens, high=tokens), **settings)
    with MockServer(script) as server:
        scenario = ChatScenario.prepare(asked, http_get(server.url, {}, timeout=10))
        client = Client(server, scenario, **limits)
        yield client
        client.close()


def test_every_chunk_has_the_kernels_stamp_and_none_is_before_it_was_written() -> None:
    with chatting(Script(interval_ms=15), tokens=40) as client:
        sample = client.send()
        (record,) = client.records
    assert (sample.outcome, sample.stamps, sample.output_tokens) == ("ok", "kernel", 40)
    late = np.array(sample.chunk_at) - np.array(record["writing"])
    # A write may be shown a moment early: two clocks are compared, and the machine is busy.
    assert late.min() > -0.001
    assert float(np.median(late)) < 0.01
    assert sample.first_token == sample.first_output == sample.chunk_at[0]
    assert sample.sent < record["arrived"] < sample.chunk_at[0]


def test_a_client_that_is_late_reads_late_and_stamps_in_time() -> None:
    with chatting(Script(ttft_ms=100, interval_ms=1), tokens=1) as client:
        client.send()

        def hold() -> None:
            # What any greenlet does that computes: nothing else runs, and nothing is read.
            until = time.perf_counter() + 0.4
            while time.perf_counter() < until:
                pass

        holding = gevent.spawn_later(0.05, hold)
        sample = client.send()
        holding.join()
        record = client.records[-1]
    assert sample.read_lag_max is not None
    assert sample.read_lag_max > 0.15
    assert abs(sample.chunk_at[0] - record["writing"][0]) < 0.1


def test_a_client_that_rests_while_it_sends_says_for_how_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TTFT counts from just before the write; what the client rests in it is in send_lag."""
    with chatting(Script(ttft_ms=20), tokens=1) as client:
        client.send()
        assert (client.send().send_lag or 1.0) < 0.02
        write = Connection._write

        def rests(connection: Connection, data: bytes) -> None:
            time.sleep(0.1)
            write(connection, data)

        monkeypatch.setattr(Connection, "_write", rests)
        sample = client.send()
        record = client.records[-1]
    assert sample.send_lag is not None
    assert sample.send_lag >= 0.1
    assert sample.first_token is not None
    too_long = (sample.first_token - sample.sent) - (record["writing"][0] - record["arrived"])
    assert 0.09 < too_long <= sample.send_lag + 0.02


def test_l5_a_stream_that_ends_with_its_connection_is_not_held_back() -> None:
    script = Script(framing="close", ttft_ms=50, interval_ms=50)
    with chatting(script, tokens=8) as client:
        samples = [client.send(), client.send()]
        records = client.records
    for sample, record in zip(samples, records, strict=True):
        assert (sample.outcome, sample.coalesced) == ("ok", 0)
        assert len(sample.chunk_at) == 8
        assert abs(sample.chunk_at[0] - record["writing"][0]) < 0.03
        assert np.diff(sample.chunk_at).min() > 0.005


def test_l5_chunks_that_came_together_are_counted() -> None:
    with chatting(Script(events_per_write=4, interval_ms=20), tokens=12) as client:
        sample = client.send()
    assert sample.coalesced == 9
    assert len(set(sample.chunk_at)) == 3


def test_l3_tokens_of_a_chunk_are_counted_and_not_the_chunks() -> None:
    with chatting(Script(tokens_per_chunk=4, interval_ms=40), tokens=40) as client:
        client.send()
        table = SampleTable.of(client.samples)
    assert table.chunks.counts[0] == 10
    assert definitions.tokens_per_chunk(table) == 4
    assert definitions.tpot(table)[0] == pytest.approx(0.36 / 39, abs=0.003)
    assert float(np.median(definitions.itl(table))) == pytest.approx(0.04, abs=0.01)


def test_l3_continuous_usage_tells_the_tokens_of_each_chunk() -> None:
    with chatting(Script(tokens_per_chunk=3, interval_ms=2, continuous_usage=True)) as client:
        assert client.send().chunk_tokens == [3, 3, 3, 3]


def test_l8_reasoning_begins_the_answer_and_is_not_its_output() -> None:
    script = Script(ttft_ms=100, reasoning_tokens=3, answer_ms=400, interval_ms=10)
    with chatting(script, tokens=6) as client:
        sample = client.send()
        (record,) = client.records
    assert sample.first_token is not None
    assert sample.first_output is not None
    assert sample.first_token == pytest.approx(record["writing"][0], abs=0.02)
    assert sample.first_output == pytest.approx(record["writing"][3], abs=0.02)
    assert sample.first_output - sample.first_token > 0.25


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("error", "error_in_stream"),
        ("cut", "unfinished"),
        ("unfinished", "unfinished"),
        ("reset", "reset"),
        ("stall", "timeout"),
    ],
)
def test_l2_a_stream_that_breaks_after_ten_tokens_is_a_failure_with_what_had_come(
    fault: str, kind: str
) -> None:
    script = Script(fault=fault, fault_after=10, interval_ms=5, fault_every=2)
    with chatting(script, tokens=20, idle_timeout=0.5) as client:
        broken, after = client.send(), client.send()
    assert (broken.outcome, broken.error) == ("error", kind), broken.detail
    # A reset may overtake what was written before it.
    assert len(broken.chunk_at) == 10 or (fault == "reset" and len(broken.chunk_at) <= 10)
    assert after.outcome == "ok"


def test_l13_one_token_has_no_tpot_and_no_usage_no_tokens() -> None:
    with chatting(Script(), tokens=1) as client:
        client.send()
        table = SampleTable.of(client.samples)
    assert table["output_tokens"][0] == 1
    assert np.isnan(definitions.tpot(table)).all()
    with chatting(Script(usage="never", interval_ms=2)) as client:
        sample = client.send()
    assert (sample.outcome, sample.output_tokens, sample.tokens_from) == ("ok", None, None)


def test_whole_replies_have_tokens_and_no_first_one() -> None:
    with chatting(Script(), stream=False) as client:
        sample = client.send()
    assert (sample.outcome, sample.output_tokens, sample.first_token) == ("ok", 12, None)
    assert sample.first_byte is not None


def test_prompts_have_the_tokens_that_the_server_counts() -> None:
    with MockServer(Script(interval_ms=1)) as server:
        get = http_get(server.url, {}, timeout=10)
        for kind in (ChatScenario, CompletionScenario):
            settings = Settings("mock", input_tokens=Span(low=50, high=80))
            client = Client(server, kind.prepare(settings, get))
            sample = client.send()
            client.close()
            assert sample.input_tokens == sample.asked_input_tokens
            assert 50 <= (sample.asked_input_tokens or 0) <= 80


def test_a_greenlet_that_is_killed_leaves_a_cut_sample() -> None:
    with chatting(Script(ttft_ms=20, interval_ms=50), tokens=100) as client:
        sending = gevent.spawn(client.send)
        gevent.sleep(0.4)
        sending.kill()
    (sample,) = client.samples
    assert sample.outcome == "cut"
    assert len(sample.chunk_at) > 2
