"""Locust users to import and subclass: each sends its scenario's requests, one after another.

Only for a process of locust's own: importing locust patches the standard library.
"""

from __future__ import annotations

import logging
import time
from itertools import count
from random import Random
from typing import Any, ClassVar, Protocol

from gevent import GreenletExit, sleep
from locust import User, constant, task
from locust.exception import StopTest, StopUser

from modelops.errors import ModelopsError
from modelops_loadtests.options import settings_of
from modelops_loadtests.preflight import http_get, key_headers, resolve_model
from modelops_loadtests.samples import Sample
from modelops_loadtests.scenarios.embeddings import EmbeddingsScenario
from modelops_loadtests.scenarios.scenario import (
    BadAnswerError,
    Reply,
    Request,
    Scenario,
    Settings,
)
from modelops_loadtests.scenarios.tensors import TensorsScenario
from modelops_loadtests.spec import base_url
from modelops_loadtests.transport import Exchange, Transport

_log = logging.getLogger(__name__)


class Sink(Protocol):
    """Takes every sample as it ends."""

    def append(self, sample: Sample) -> None:
        """Take one."""


def judge(scenario: Scenario, request: Request, exchange: Exchange) -> dict[str, Any]:
    """Return the outcome of an exchange, as the fields of its Sample that say so."""
    if exchange.error is not None:
        return {"outcome": "error", "error": exchange.error, "detail": exchange.detail}
    status = exchange.status or 0
    if 300 <= status < 400:
        where = exchange.headers.get("location", "nowhere")[:200]
        return {"outcome": "error", "error": f"redirect_{status}", "detail": f"to {where}"}
    if status != 200:
        detail = exchange.body[:200].decode("utf-8", "replace")
        return {"outcome": "error", "error": f"http_{status}", "detail": detail}
    try:
        answer = scenario.check(request, Reply(exchange.headers, exchange.body))
    except BadAnswerError as error:
        return {"outcome": "error", "error": error.kind, "detail": error.detail}
    return {"outcome": "ok", "items": answer.items, "input_tokens": answer.input_tokens}


class ScenarioUser(User):
    """A closed-loop user: it sends, waits for the whole reply, checks it, and sends again.

    Subclass it, set ``scenario_class`` (and ``settings`` where the options of the command line
    are not what you want), and locust runs it. Locust's own request event is fired too, so its
    statistics and web page show the same requests.
    """

    abstract = True
    wait_time = constant(0)
    scenario_class: ClassVar[type[Any]]
    settings: ClassVar[Settings | None] = None
    timeout: ClassVar[float] = 30.0
    sink: ClassVar[Sink | None] = None
    api_key: ClassVar[str | None] = None
    clock_start: ClassVar[float] = 0.0
    finished: ClassVar[bool] = False
    """Set when nothing more may be sent; replies in flight are still waited for."""
    _numbers: ClassVar[count[int]] = count()
    prepared: ClassVar[Scenario | None] = None

    def on_start(self) -> None:
        """Connect; the first user prepares the scenario for all."""
        cls = type(self)
        self.number = next(ScenarioUser._numbers)
        base = base_url(self.host or "")
        headers = key_headers(self.key())
        if cls.prepared is None:
            try:
                cls.prepared = self.prepare(base, headers)
            except ModelopsError as error:
                self.environment.process_exit_code = error.exit_code
                hint = f" ({error.hint})" if error.hint else ""
                _log.error("%s%s", error.message, hint)
                self.environment.runner.quit()
                raise StopTest(error.message) from error
        self.scenario: Scenario = cls.prepared
        self.rng = Random(f"{self.seed()}/{self.number}")  # noqa: S311
        self.transport = Transport(base, timeout=self.timeout, headers=headers)

    def on_stop(self) -> None:
        """Close the connection."""
        if transport := getattr(self, "transport", None):
            transport.close()

    def key(self) -> str | None:
        """Return the API key: the class's, else ``--api-key``, which reads MODELOPS_API_KEY."""
        return self.api_key or getattr(self.environment.parsed_options, "api_key", None) or None

    def seed(self) -> int:
        """Return what the users' random choices follow from."""
        if self.settings is not None:
            return self.settings.seed
        return getattr(self.environment.parsed_options, "seed", 0)

    def prepare(self, base: str, headers: dict[str, str]) -> Scenario:
        """Make the scenario from ``settings``, or from locust's command line."""
        get = http_get(base, headers, timeout=self.timeout)
        settings = self.settings
        if settings is None:
            asked = getattr(self.environment.parsed_options, "model", None) or None
            settings = settings_of(self.environment.parsed_options, resolve_model(get, asked))
        prepared: Scenario = self.scenario_class.prepare(settings, get)
        return prepared

    @task
    def one(self) -> None:
        """Send one request, check its reply, record both."""
        if self.finished:
            raise StopUser
        request = self.scenario.request(self.rng)
        sent = time.perf_counter()
        try:
            exchange = self.transport.send(request)
        except GreenletExit:
            self._record(request, sent, time.perf_counter(), outcome="cut")
            raise
        verdict = judge(self.scenario, request, exchange)
        self._record(
            request,
            exchange.sent,
            exchange.end,
            first_byte=exchange.first_byte,
            status=exchange.status,
            received=len(exchange.body),
            **verdict,
        )
        if exchange.error == "refused":
            # A refusal costs no time: without a pause a server that is gone is hammered.
            sleep(0.1)

    def _record(
        self,
        request: Request,
        sent: float,
        end: float,
        *,
        outcome: Any,
        first_byte: float | None = None,
        received: int = 0,
        **known: Any,
    ) -> None:
        zero = self.clock_start
        if self.sink is not None:
            self.sink.append(
                Sample(
                    sent=sent - zero,
                    end=end - zero,
                    first_byte=None if first_byte is None else first_byte - zero,
                    outcome=outcome,
                    bytes_sent=len(request.body),
                    bytes_received=received,
                    user=self.number,
                    **known,
                )
            )
        if outcome == "cut":
            return
        problem = None if outcome == "ok" else f"{known['error']}: {known.get('detail')}"
        self.environment.events.request.fire(
            request_type=request.method,
            name=request.name,
            response_time=(end - sent) * 1000,
            response_length=received,
            exception=None if problem is None else RequestFailedError(problem),
            context={},
        )


class RequestFailedError(Exception):
    """What locust is told of a request that failed."""


class EmbeddingsUser(ScenarioUser):
    """Sends texts to ``/v1/embeddings``."""

    abstract = True
    scenario_class = EmbeddingsScenario


class TensorsUser(ScenarioUser):
    """Sends random tensors to ``/v2/models/{model}/infer``."""

    abstract = True
    scenario_class = TensorsScenario
