"""Locust users to import and subclass: each sends its scenario's requests, one after another.

Only for a process of locust's own: importing locust patches the standard library.
"""

from __future__ import annotations

import logging
import time
from itertools import count
from random import Random
from typing import Any, ClassVar

from gevent import sleep
from locust import User, constant, task
from locust.exception import StopTest, StopUser

from modelops.errors import ModelopsError
from modelops_loadtests.client.connection import Connection
from modelops_loadtests.client.target import Target
from modelops_loadtests.locust_rows import tell_locust
from modelops_loadtests.options import settings_of
from modelops_loadtests.preflight import http_get, key_headers, resolve_model
from modelops_loadtests.scenarios.chat import ChatScenario
from modelops_loadtests.scenarios.completion import CompletionScenario
from modelops_loadtests.scenarios.embeddings import EmbeddingsScenario
from modelops_loadtests.scenarios.mix import prepare_mix
from modelops_loadtests.scenarios.scenario import Get, Request, Scenario, Settings
from modelops_loadtests.scenarios.tensors import TensorsScenario
from modelops_loadtests.sending import Sender, Sent, Sink
from modelops_loadtests.spec import base_url

_log = logging.getLogger(__name__)


class ScenarioUser(User):
    """A closed-loop user: it sends, waits for the whole reply, checks it, and sends again.

    Subclass it, set ``scenario_class`` (and ``settings`` where the options of the command line
    are not what you want), and locust runs it. Locust's own request event is fired too, so its
    statistics and web page show the same requests. Override ``next_request`` to decide what is
    sent, ``after`` to look at what came of it.
    """

    abstract = True
    wait_time = constant(0)
    scenario_class: ClassVar[type[Any]]
    settings: ClassVar[Settings | None] = None
    timeout: ClassVar[float] = 30.0
    idle_timeout: ClassVar[float | None] = None
    sink: ClassVar[Sink | None] = None
    """Takes the raw samples, where somebody wants them."""
    api_key: ClassVar[str | None] = None
    finished: ClassVar[bool] = False
    """Set when nothing more may be sent; replies in flight are still waited for."""
    _numbers: ClassVar[count[int]] = count()
    _shared: ClassVar[tuple[Target, Sender] | None] = None
    _shared_for: ClassVar[Any] = None

    def on_start(self) -> None:
        """Connect; the first user of a test prepares the scenario for all."""
        cls = type(self)
        self.number = next(ScenarioUser._numbers)
        self.rng = Random(f"{self.seed()}/{self.number}")  # noqa: S311
        # The web page can start another test, against another host or with other options.
        asked = (cls, self.host, str(self.environment.parsed_options))
        if cls._shared is None or cls._shared_for not in (None, asked):
            try:
                cls._shared, cls._shared_for = self._share(), asked
            except ModelopsError as error:
                self.environment.process_exit_code = error.exit_code
                hint = f" ({error.hint})" if error.hint else ""
                _log.error("%s%s", error.message, hint)
                self.environment.runner.quit()
                raise StopTest(error.message) from error
        target, self.sender = cls._shared
        self.connection = Connection(target, timeout=self.timeout, idle_timeout=self.idle_timeout)

    def _share(self) -> tuple[Target, Sender]:
        """Make what all users of this class use: where the server is, and what sends to it."""
        base = base_url(self.host or "")
        headers = key_headers(self.key())
        environment = self.environment
        sender = Sender(
            scenario=self.prepare(base, headers),
            sink=self.sink,
            zero=time.perf_counter(),
            told=lambda sent: tell_locust(environment, sent),
        )
        return Target(base, headers), sender

    def on_stop(self) -> None:
        """Close the connection."""
        if connection := getattr(self, "connection", None):
            connection.close()

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
        return self.make_scenario(settings, get)

    def make_scenario(self, settings: Settings, get: Get) -> Scenario:
        """Return the scenario: one of ``scenario_class``."""
        scenario: Scenario = self.scenario_class.prepare(settings, get)
        return scenario

    @task
    def one(self) -> None:
        """Send one request, check its reply, record both."""
        if self.finished:
            raise StopUser
        sent = self.sender.send(self.connection, self.next_request(), user=self.number)
        self.after(sent)
        if sent.sample.error == "refused":
            # A refusal costs no time: without a pause a server that is gone is hammered.
            sleep(0.1)

    def next_request(self) -> Request:
        """Return what is sent next."""
        return self.sender.scenario.request(self.rng)

    def after(self, sent: Sent) -> None:
        """Look at what came of a request; here nothing is done."""


class ChatUser(ScenarioUser):
    """Sends chats to ``/v1/chat/completions``."""

    abstract = True
    scenario_class = ChatScenario


class CompletionUser(ScenarioUser):
    """Sends prompts to ``/v1/completions``."""

    abstract = True
    scenario_class = CompletionScenario


class EmbeddingsUser(ScenarioUser):
    """Sends texts to ``/v1/embeddings``."""

    abstract = True
    scenario_class = EmbeddingsScenario


class TensorsUser(ScenarioUser):
    """Sends random tensors to ``/v2/models/{model}/infer``."""

    abstract = True
    scenario_class = TensorsScenario


class MixUser(ScenarioUser):
    """Sends requests of several scenarios, as often as ``weights`` says."""

    abstract = True
    weights: ClassVar[dict[str, float]] = {"chat": 1.0}

    def make_scenario(self, settings: Settings, get: Get) -> Scenario:
        """Return the mix; all of it is sent to one model."""
        return prepare_mix(self.weights, lambda _name: settings, get)
