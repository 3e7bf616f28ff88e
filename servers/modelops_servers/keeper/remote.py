"""A server that somebody else runs: nothing is started, and it is looked at from time to time."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

from modelops.config import ModelConfig, OpenAIOptions
from modelops.errors import EngineError, MissingEnvironmentError
from modelops_servers.keeper.client import EngineClient, UnansweredError
from modelops_servers.keeper.remote_key import key_of
from modelops_servers.keeper.standing import Standing

_POLL_SECONDS = 2.0
_ANSWER_SECONDS = 5.0
_FIRST_SECONDS = 10.0
# One lost answer is no outage.
_MISSES = 2
_OK = 200
_REFUSED = (401, 403)
_UNAVAILABLE = 503
_NEXT = "it is asked again every 2 s, and turns ready by itself"

_log = logging.getLogger(__name__)


class RemoteKeeper:
    """Watches one OpenAI server by its ``/models``, and by ``/health`` where it has that."""

    def __init__(self, config: ModelConfig) -> None:
        self.standing = Standing(f"looking for {config.url}")
        self._config = config
        assert isinstance(config.options, OpenAIOptions)  # noqa: S101 - the config sees to it
        assert config.url is not None  # noqa: S101
        self._options = config.options
        self._url = config.url
        self._client = EngineClient(config.url, key=key_of(config))
        self._health: str | None = config.url.removesuffix("/v1") + "/health"

    async def start(self) -> dict[str, Any]:
        """Return what it says it is, as soon as it lists the model.

        Raises:
            MissingEnvironmentError: it cannot be reached, or does not have the model.
        """
        end = time.monotonic() + min(_FIRST_SECONDS, self._config.load_seconds)
        while True:
            try:
                served = await self._look()
                break
            except EngineError as error:
                if time.monotonic() > end:
                    raise MissingEnvironmentError(
                        error.message, hint="start that server, or see to its address and key"
                    ) from error
                self.standing.set("loading", error.message)
            await asyncio.sleep(_POLL_SECONDS / 4)
        self.standing.last_progress = time.time()
        self.standing.set("ready", f"{self._url} answers")
        return {
            "engine": self._config.engine,
            "engine_version": None,
            "provider": "remote",
            "precision": None,
            "url": self._url,
            "served_model_name": served["id"],
            "max_model_len": served.get("max_model_len"),
        }

    async def watch(self) -> None:
        """Look at it for ever; that it is away is no error of ours, and ends by itself."""
        misses = 0
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            try:
                await self._look()
            except EngineError as error:
                misses += 1
                if misses >= _MISSES:
                    if self.standing.state == "ready":
                        _log.warning("%s: %s", self._config.name, error.message)
                    self.standing.set("failed", error.message, _NEXT)
                continue
            misses = 0
            self.standing.last_progress = time.time()
            self.standing.set("ready", f"{self._url} answers")

    async def stop(self, seconds: float | None) -> None:  # noqa: ARG002 - as of any keeper
        """Leave it as it is: it is not ours."""
        self.standing.set("stopping", "no longer looked at")

    async def close(self) -> None:
        """Let go of the connection."""
        await self._client.__aexit__(None, None, None)

    async def _look(self) -> dict[str, Any]:
        """Return its entry of the model.

        Raises:
            EngineError: it does not answer, not well, or does not have the model.
        """
        try:
            if self._health is not None:
                status, _ = await self._client.get(self._health, _ANSWER_SECONDS)
                if status == _UNAVAILABLE:
                    raise EngineError(f"{self._health} says 503: its engine is not well")
                if status != _OK:
                    self._health = None  # it has none
            status, body = await self._client.get("/models", _ANSWER_SECONDS)
        except UnansweredError as error:
            raise EngineError(f"{self._url} does not answer: {error}") from error
        if status in _REFUSED:
            raise EngineError(
                f"{self._url}/models refuses our key ({status})"
                if self._options.key_variable
                else f"{self._url}/models asks for a key ({status}): set options.key_variable"
            )
        if status != _OK:
            raise EngineError(f"{self._url}/models answers with {status}")
        return self._find(body)

    def _find(self, body: bytes) -> dict[str, Any]:
        try:
            listed = [m for m in json.loads(body)["data"] if isinstance(m["id"], str)]
        except (ValueError, LookupError, TypeError) as error:
            raise EngineError(f"{self._url}/models is not what an OpenAI server says") from error
        wanted = self._options.model
        if wanted is None and len(listed) == 1:
            return dict(listed[0])
        wanted = wanted or self._config.name
        for model in listed:
            if model["id"] == wanted:
                return dict(model)
        names = ", ".join(m["id"][:64] for m in listed[:10]) or "none"
        raise EngineError(f"{self._url} has no model {wanted!r}; it lists {names}")
