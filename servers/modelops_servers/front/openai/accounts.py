"""Every request's tokens are counted once, whatever ended it.

What the engine says counts. Where it has said nothing, since a stream was not asked for its usage
or ended early, the events that brought tokens count, and the engine is asked afterwards how many
tokens the prompt has. See docs/decisions for why no request is changed instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import orjson
import structlog

from modelops.errors import ModelopsError
from modelops_servers.front.json_process import DECODED_ON_LOOP_BYTES, JsonProcess
from modelops_servers.front.openai.model import TextModel
from modelops_servers.front.openai.request import Bytes, prompt_of
from modelops_servers.front.openai.scanner import StreamScanner
from modelops_servers.front.openai.usage import Usage

_MOST_WAITING = 64
_MOST_BODY_BYTES = 1 << 20
_AT_ONCE = 2
_ASK_SECONDS = 10.0
_ANSWER_BYTES = 16 << 20

_log = structlog.stdlib.get_logger(__name__)


class Account:
    """What is known of one request's tokens."""

    __slots__ = ("body", "model", "reached", "scanner", "usage", "whole")

    def __init__(self, model: TextModel, body: Bytes) -> None:
        self.model = model
        self.body = body
        """The request, as its engine got it."""
        self.reached = False
        """Whether the engine may have worked on the request."""
        self.whole = False
        """Whether the answer came in one piece, and all of it."""
        self.scanner: StreamScanner | None = None
        self.usage = Usage()

    def sent(self, status: int) -> None:
        """Take down that the engine has begun to answer."""
        self.reached = status < 400
        if len(self.body) > _MOST_BODY_BYTES:
            self.body = b""  # not to be sent again, and not to be kept while its answer comes


class Accounts:
    """Settles accounts, some of them a little later; used on one event loop."""

    def __init__(self, json: JsonProcess) -> None:
        self._json = json
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn = asyncio.Semaphore(_AT_ONCE)

    def settle(self, account: Account) -> None:
        """Record a request that has ended; call it once."""
        scanner = account.scanner
        usage = account.usage if scanner is None else scanner.usage
        if not account.reached:
            return
        metrics = account.model.metrics
        completion = usage.completion
        if completion is None and scanner is not None:
            completion = scanner.tokens
        if completion:
            metrics.completion(completion)
        if usage.prompt is not None:
            metrics.prompt(usage.prompt)
            return
        if account.whole:
            return  # the engine has answered, and tokens were not what it was about
        if self._can_ask(account):
            task = asyncio.get_running_loop().create_task(self._ask(account))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            metrics.unknown()

    async def close(self) -> None:
        """Drop what waits to be asked."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _can_ask(self, account: Account) -> bool:
        return (
            account.model.tokenizes
            and len(self._tasks) < _MOST_WAITING
            and 0 < len(account.body) <= _MOST_BODY_BYTES
        )

    async def _ask(self, account: Account) -> None:
        """Record a prompt's tokens as its engine counts them."""
        model, count = account.model, None
        try:
            async with self._turn:
                count = await self._count(account)
        except ModelopsError as error:
            _log.info("a prompt could not be counted", model=model.name, error=error.message[:256])
        if count is None:
            model.metrics.unknown()
        else:
            model.metrics.prompt(count)

    async def _count(self, account: Account) -> int | None:
        body, model = account.body, account.model
        if len(body) > DECODED_ON_LOOP_BYTES:
            asked = await self._json.run(prompt_of, body, model.engine_name)
        else:
            asked = prompt_of(body, model.engine_name)
        if asked is None or isinstance(asked, int):
            return asked
        answer = await model.engine().open(
            "POST",
            "/tokenize",
            headers={"content-type": "application/json"},
            body=asked,
            deadline=time.monotonic() + _ASK_SECONDS,
        )
        try:
            said = await answer.whole(_ANSWER_BYTES)
        finally:
            answer.abort()
        return _counted(said) if answer.status == 200 else None


def _counted(said: bytes) -> int | None:
    # {"count": 12, …, "tokens": […]}: what is long of it need not be read.
    with contextlib.suppress(orjson.JSONDecodeError):
        value = orjson.loads(said)
        if isinstance(value, dict) and type(value.get("count")) is int:
            return int(value["count"])
    return None
