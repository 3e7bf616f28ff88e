"""One request, sent and recorded: the same for a closed loop's user and an arrival."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from gevent import GreenletExit

from modelops_loadtests.client.connection import Connection
from modelops_loadtests.client.exchange import Exchange
from modelops_loadtests.client.request import Request
from modelops_loadtests.samples import Sample
from modelops_loadtests.scenarios.scenario import (
    Answer,
    BadAnswerError,
    Reply,
    Scenario,
    StreamReader,
)


class Sink(Protocol):
    """Takes every sample as it ends."""

    def append(self, sample: Sample) -> None:
        """Take one."""


@dataclass(frozen=True, slots=True)
class Sent:
    """A request, what came of it, and how it was recorded."""

    request: Request
    sample: Sample
    answer: Answer


@dataclass
class Sender:
    """Sends requests of one scenario and records each as a Sample.

    ``zero`` is the ``time.perf_counter`` that all times in samples count from. With ``trace`` each
    request carries ``X-Request-Id: <trace>-<process>-<number>``, and its sample the number.
    ``told`` is called with each request that was not cut, for whoever shows them elsewhere.
    ``secret`` is in no sample, whatever a server's error repeats.
    """

    scenario: Scenario
    sink: Sink | None = None
    zero: float = 0.0
    process: int = 0
    trace: str | None = None
    told: Callable[[Sent], None] | None = None
    secret: str | None = None
    _numbers: count[int] = field(default_factory=count)

    def send(
        self,
        connection: Connection,
        request: Request,
        *,
        scheduled: float | None = None,
        user: int = 0,
        stage: int = 0,
        conversation: int | None = None,
        turn: int | None = None,
    ) -> Sent:
        """Send a request, wait for its whole reply, check it, record it.

        ``scheduled`` is seconds of the run. Never raises for what the server does.

        Raises:
            GreenletExit: the greenlet was killed meanwhile; the sample, ``cut``, is recorded.
        """
        number, request_id = None, None
        if self.trace is not None:
            number = next(self._numbers)
            request_id = f"{self.trace}-{self.process}-{number}"
        reader = self._reader(request)
        exchange = connection.send(request, reader, request_id)
        if self.secret is not None and exchange.status not in (None, 200):
            exchange.body = exchange.body.replace(self.secret.encode(), b"***")
        answer, fields = judge(self.scenario, request, exchange, reader)
        if self.secret is not None and fields.get("detail"):
            fields["detail"] = fields["detail"].replace(self.secret, "***")
        sample = Sample(
            sent=exchange.sent - self.zero,
            end=exchange.end - self.zero,
            scheduled=scheduled,
            user=user,
            process=self.process,
            scenario=request.name,
            stage=stage,
            conversation=conversation,
            turn=turn,
            number=number,
            bytes_sent=len(request.body),
            asked_input_tokens=request.input_tokens,
            asked_output_tokens=request.output_tokens,
            **self._of_exchange(exchange),
            **self._of_answer(answer),
            **fields,
        )
        if self.sink is not None:
            self.sink.append(sample)
        if sample.outcome == "cut":
            raise GreenletExit
        sent = Sent(request, sample, answer)
        if self.told is not None:
            self.told(sent)
        return sent

    def _reader(self, request: Request) -> StreamReader | None:
        if not request.stream:
            return None
        reader: StreamReader = self.scenario.reader(request)  # type: ignore[attr-defined]
        return reader

    def _of_exchange(self, exchange: Exchange) -> dict[str, Any]:
        return {
            "first_byte": self._since(exchange.first_byte),
            "status": exchange.status,
            "bytes_received": exchange.bytes_received,
            "stamps": exchange.stamps,
            "read_lag_max": exchange.read_lag_max,
            "read_lag_mean": exchange.read_lag_mean,
            "send_lag": exchange.send_lag,
        }

    def _of_answer(self, answer: Answer) -> dict[str, Any]:
        zero = self.zero
        return {
            "items": answer.items,
            "input_tokens": answer.input_tokens,
            "output_tokens": answer.output_tokens,
            "tokens_from": answer.tokens_from,
            "first_token": self._since(answer.first_token),
            "first_output": self._since(answer.first_output),
            "last_token": self._since(answer.last_token),
            "chunk_at": [at - zero for at in answer.chunk_at],
            "chunk_tokens": answer.chunk_tokens,
            "coalesced": answer.coalesced,
        }

    def _since(self, at: float | None) -> float | None:
        return None if at is None else at - self.zero


def judge(
    scenario: Scenario, request: Request, exchange: Exchange, reader: StreamReader | None
) -> tuple[Answer, dict[str, Any]]:
    """Return what was answered, also in part, and the fields of a Sample that say the outcome."""
    answer = Answer() if reader is None or not exchange.is_stream else reader.answer()
    if exchange.error == "cut":
        return answer, {"outcome": "cut"}
    try:
        if exchange.is_stream and reader is not None:
            problem = reader.problem()
            # A stream that broke off is one without its ending, unless it had told why before.
            if exchange.error is not None and (problem is None or problem.kind == "unfinished"):
                _raise_broken(exchange)
            if problem is not None:
                raise problem
        else:
            answer = _whole(scenario, request, exchange)
    except BadAnswerError as error:
        return answer, {"outcome": "error", "error": error.kind, "detail": error.detail}
    return answer, {"outcome": "ok"}


def _raise_broken(exchange: Exchange) -> None:
    kind = exchange.error or ""
    raise BadAnswerError("unfinished" if kind == "closed" else kind, exchange.detail or "")


def _whole(scenario: Scenario, request: Request, exchange: Exchange) -> Answer:
    """Return what a reply held that came in one piece, or raise BadAnswerError."""
    if exchange.error is not None:
        raise BadAnswerError(exchange.error, exchange.detail or "")
    status, headers = exchange.status or 0, exchange.headers or {}
    if 300 <= status < 400:
        where = headers.get("location", "nowhere")[:200]
        raise BadAnswerError(f"redirect_{status}", f"to {where}")
    if status != 200:
        detail = exchange.body[:200].decode("utf-8", "replace")
        raise BadAnswerError(f"http_{status}", detail)
    answer = scenario.check(request, Reply(headers, exchange.body))
    if request.stream:
        kind = headers.get("content-type", "nothing")[:80]
        raise BadAnswerError("not_a_stream", f"a stream was asked for, {kind} came")
    return answer
