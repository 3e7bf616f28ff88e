"""OpenAI's routes over a text engine: in, across, and every byte back as it comes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from modelops.config import LimitsConfig
from modelops.errors import DeadlineError, EngineError
from modelops_servers.front.exchange import Call, Outlet, Reply, Streamed
from modelops_servers.front.json_process import DECODED_ON_LOOP_BYTES, JsonProcess
from modelops_servers.front.limits import ClientLeftError, read_body
from modelops_servers.front.openai import headers as heads
from modelops_servers.front.openai.accounts import Account, Accounts
from modelops_servers.front.openai.failures import failed_answer, failure_event
from modelops_servers.front.openai.model import Find, TextModel
from modelops_servers.front.openai.request import TextRequest, read, renamed
from modelops_servers.front.openai.scanner import StreamScanner
from modelops_servers.front.openai.usage import usage_of
from modelops_servers.front.status import FieldError
from modelops_servers.front.watch import ClientWatch

if TYPE_CHECKING:  # a front without a text model never loads the client
    from modelops_servers.front.openai.upstream import Answer

MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Largest answer in one piece; a stream has no such bound."""

_EVENTS = b"text/event-stream"

_log = structlog.stdlib.get_logger(__name__)


class TextEndpoint:
    """Answers requests on the routes of ``routes.TEXT_ROUTES``."""

    def __init__(self, find: Find, limits: LimitsConfig, json: JsonProcess) -> None:
        self._find = find
        self._limits = limits
        self._json = json
        self._accounts = Accounts(json)

    async def __call__(self, call: Call, path: str, outlet: Outlet) -> Reply | Streamed:
        """Answer one request; whatever is raised, nothing of an answer is out yet."""
        asked, account = await self._taken(call)
        try:
            return await self._admitted(call, path, outlet, asked, account)
        except ClientLeftError:
            raise
        except Exception as error:
            if not outlet.started:
                raise
            return await _fail(error, path, outlet, account)

    async def close(self) -> None:
        """Give up what is still being counted."""
        await self._accounts.close()

    async def _taken(self, call: Call) -> tuple[TextRequest, Account]:
        """Read the request and find its model; the body is as its engine is to get it."""
        limits = self._limits
        body = await read_body(
            call.receive, call.headers, limits.max_json_bytes, limits.request_seconds
        )
        large = len(body) > DECODED_ON_LOOP_BYTES
        asked = await self._json.run(read, body) if large else read(body)
        model = self._find(asked.model)
        call.model = model.name
        _check(model, asked)
        if asked.model != model.engine_name:
            if large and asked.model_at is None:
                body = await self._json.run(renamed, body, asked, model.engine_name)
            else:
                body = renamed(body, asked, model.engine_name)
        return asked, Account(model, body)

    async def _admitted(
        self, call: Call, path: str, outlet: Outlet, asked: TextRequest, account: Account
    ) -> Reply | Streamed:
        model = account.model
        tokens = asked.tokens(len(account.body), model.context)
        model.admit()
        try:
            with ClientWatch(call.receive, call.deadline):
                await model.take(tokens, call.deadline)
                try:
                    return await self._answer(call, path, outlet, asked, account)
                finally:
                    model.give(tokens)
        finally:
            model.leave()
            self._accounts.settle(account)

    async def _answer(
        self, call: Call, path: str, outlet: Outlet, asked: TextRequest, account: Account
    ) -> Reply | Streamed:
        account.reached = True
        began = time.monotonic()
        try:
            answer = await account.model.engine().open(
                "POST",
                path,
                headers=heads.to_engine(call.headers, outlet.request_id),
                body=account.body,
                deadline=call.deadline,
                streams=asked.streams,
            )
        except DeadlineError:
            raise
        except EngineError:
            account.reached = False
            raise
        try:
            account.sent(answer.status)
            if answer.status < 400 and _streams(answer):
                said: Reply | Streamed = await _relay(call, outlet, answer, account)
            else:
                said = await self._whole(answer, account)
            account.model.answered(began)
            return said
        finally:
            answer.abort()

    async def _whole(self, answer: Answer, account: Account) -> Reply:
        body = await answer.whole(MAX_ANSWER_BYTES)
        if answer.status >= 400:
            return failed_answer(answer.status, answer.headers, body)
        if len(body) > DECODED_ON_LOOP_BYTES:
            account.usage = await self._json.run(usage_of, body)
        else:
            account.usage = usage_of(body)
        account.whole = True
        return Reply([body], heads.to_client(answer.headers), answer.status)


async def _relay(call: Call, outlet: Outlet, answer: Answer, account: Account) -> Streamed:
    """Pass a stream on, each piece when it comes; the next is read when the client took this."""
    scanner = account.scanner = StreamScanner()
    metrics = account.model.metrics
    read, write, feed, clock = answer.read, outlet.write, scanner.feed, time.monotonic
    gap = metrics.gap
    before = 0.0
    await outlet.start(answer.status, heads.of_stream(answer.headers))
    while chunk := await read():
        now = clock()
        await write(chunk)
        tokens = feed(chunk)
        if tokens:
            if before:
                gap((now - before) / tokens, tokens)
            else:
                metrics.first_token(now - call.began)
            before = now
    outcome = scanner.outcome
    if outcome == "truncated":
        raise EngineError("the engine ended its stream before it was finished")
    await outlet.end()
    if outcome == "error":
        _log.warning(
            "the engine failed in its stream",
            request_id=outlet.request_id.decode(),
            model=account.model.name,
            error=(scanner.error or "")[:1024],
        )
        return Streamed(502)
    return Streamed(answer.status)


async def _fail(error: Exception, path: str, outlet: Outlet, account: Account) -> Streamed:
    """End a stream that the client has a part of: it is told, and not by a success's ending."""
    request_id = outlet.request_id.decode()
    _log.warning(
        "a stream failed",
        request_id=request_id,
        model=account.model.name,
        error=str(error)[:1024],
    )
    scanner = account.scanner
    apart = scanner is not None and not scanner.between_events
    status, event = failure_event(error, path, request_id, apart=apart)
    await outlet.write(event)
    await outlet.end()
    return Streamed(status)


def _check(model: TextModel, asked: TextRequest) -> None:
    most = asked.max_tokens
    if most is not None and model.context is not None and most > model.context:
        raise FieldError(
            f"max_tokens is {most}, and this model's context is {model.context} tokens",
            param="max_tokens",
            code="context_length_exceeded",
        )


def _streams(answer: Answer) -> bool:
    """Whether events come: the engine has the last word on what it was asked."""
    return any(n == b"content-type" and v.startswith(_EVENTS) for n, v in answer.headers)
