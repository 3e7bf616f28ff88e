"""The real, unchanged ``openai`` client over the token path, against a scripted upstream."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from raw_http import until
from scripted_upstream import DONE, ROLE, STOP, Exchange, event, token, usage
from text_models import Stage, stage

WORDS = ["Par", "is", " 日本", "🙂"]


async def _engine(exchange: Exchange) -> None:
    """As much of an engine as these tests need; the user's words choose what it does."""
    asked = exchange.json
    if exchange.path == "/tokenize":
        await exchange.answer({"count": 9})
        return
    if exchange.path == "/v1/responses":
        await _responses(exchange)
        return
    words = asked["prompt"] if "prompt" in asked else asked["messages"][-1]["content"]
    if words == "too long":
        error = {"message": "maximum context length is 4096 tokens", "type": "BadRequestError"}
        await exchange.answer({"error": {**error, "param": None, "code": 400}}, 400)
    elif words == "die":
        exchange.reset()
    elif words == "die later":
        await exchange.head()
        await exchange.piece(event(ROLE) + event(token("Par")))
        await asyncio.sleep(0.05)
        exchange.reset()
    elif words == "cut":
        await exchange.stream(event(ROLE), event(token("Par")))
    elif words == "fail later":
        error_event = event('{"error":{"message":"it died","type":"InternalServerError"}}')
        await exchange.stream(event(ROLE), event(token("Par")), error_event, DONE)
    elif asked.get("stream"):
        wanted = (asked.get("stream_options") or {}).get("include_usage")
        tail = [event(usage(9, len(WORDS)))] if wanted else []
        await exchange.stream(
            event(ROLE), *(event(token(w)) for w in WORDS), event(STOP), *tail, DONE
        )
    elif "prompt" in asked:
        choice = {"index": 0, "text": "".join(WORDS), "finish_reason": "stop", "logprobs": None}
        await exchange.answer({**_whole("text_completion"), "choices": [choice]})
    else:
        message = {"role": "assistant", "content": "".join(WORDS)}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        await exchange.answer({**_whole("chat.completion"), "choices": [choice]})


def _whole(kind: str) -> dict[str, Any]:
    counts = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}
    return {"id": "c-1", "object": kind, "created": 1, "model": "m", "usage": counts}


async def _responses(exchange: Exchange) -> None:
    counts = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    response = {"id": "r", "object": "response", "created_at": 1, "model": "m", "output": []}
    await exchange.head()
    for number, word in enumerate(WORDS):
        delta = {
            "type": "response.output_text.delta", "delta": word, "item_id": "i",
            "output_index": 0, "content_index": 0, "sequence_number": number, "logprobs": [],
        }  # fmt: skip
        await exchange.piece(_named(delta))
    if exchange.json["input"] == "die later":
        await asyncio.sleep(0.05)
        exchange.reset()
        return
    done = {"type": "response.completed", "response": {**response, "usage": counts}}
    await exchange.piece(_named({**done, "sequence_number": len(WORDS)}))
    await exchange.end()


def _named(value: dict[str, Any]) -> bytes:
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


@pytest.fixture
def on() -> Iterator[Stage]:
    with stage(_engine, keys=("secret",)) as on:
        yield on


@pytest.fixture
def client(on: Stage) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{on.url}/v1", api_key="secret", max_retries=0) as client:
        yield client


def said(words: str) -> Any:
    return [{"role": "user", "content": words}]


def test_chat(client: openai.OpenAI, on: Stage) -> None:
    answer = client.chat.completions.create(model="chat", messages=said("hi"))
    assert answer.choices[0].message.content == "".join(WORDS)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 4
    assert (on.tokens("prompt"), on.tokens("completion")) == (9, 4)


def test_chat_by_an_alias_streamed(client: openai.OpenAI, on: Stage) -> None:
    stream = client.chat.completions.create(model="alias", messages=said("hi"), stream=True)
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "".join(WORDS)
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert all(c.usage is None for c in chunks)
    until(lambda: (on.tokens("prompt"), on.tokens("completion")) == (9, 4))


def test_chat_streamed_with_usage(client: openai.OpenAI, on: Stage) -> None:
    stream = client.chat.completions.create(
        model="chat", messages=said("hi"), stream=True, stream_options={"include_usage": True}
    )
    *_, last = stream
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.prompt_tokens == 9
    assert (on.tokens("prompt"), on.tokens("completion")) == (9, 4)


def test_completions(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="chat", prompt="hi")
    assert answer.choices[0].text == "".join(WORDS)


def test_responses_streamed(client: openai.OpenAI, on: Stage) -> None:
    events = list(client.responses.create(model="chat", input="hi", stream=True))
    words = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert words == WORDS
    assert events[-1].type == "response.completed"
    assert (on.tokens("prompt"), on.tokens("completion")) == (9, 4)


def test_errors_before_the_first_byte(client: openai.OpenAI) -> None:
    def chat(words: str, **more: Any) -> Any:
        return client.chat.completions.create(
            **{"model": "chat", "messages": said(words), "stream": True, **more}
        )

    with pytest.raises(openai.BadRequestError, match="maximum context length"):
        chat("too long")
    with pytest.raises(openai.BadRequestError, match="at most 128"):
        chat("hi", n=10**9)
    with pytest.raises(openai.NotFoundError, match="not served here"):
        chat("hi", model="other")
    with pytest.raises(openai.InternalServerError) as failed:
        chat("die")
    assert failed.value.status_code == 502
    with pytest.raises(openai.AuthenticationError):
        client.with_options(api_key="wrong").chat.completions.create(
            model="chat", messages=said("hi")
        )


@pytest.mark.parametrize("words", ["die later", "cut", "fail later"])
def test_a_stream_that_fails_is_an_error_to_the_client(client: openai.OpenAI, words: str) -> None:
    stream = client.chat.completions.create(model="chat", messages=said(words), stream=True)
    assert next(stream).choices[0].delta.role == "assistant"
    assert next(stream).choices[0].delta.content == "Par"
    with pytest.raises(openai.APIError, match=r"engine|it died"):
        next(stream)


def test_responses_that_fail_are_an_error_to_the_client(client: openai.OpenAI) -> None:
    stream = client.responses.create(model="chat", input="die later", stream=True)
    for _ in WORDS:
        next(stream)
    with pytest.raises(openai.APIError, match="engine"):
        next(stream)


def test_a_client_that_stops_reading_ends_the_generation(on: Stage) -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.head()
        while True:
            await exchange.piece(event(token("a")))
            await asyncio.sleep(0.02)

    on.upstream.script = endless
    with openai.OpenAI(base_url=f"{on.url}/v1", api_key="secret") as client:
        stream = client.chat.completions.create(model="chat", messages=said("hi"), stream=True)
        for _ in range(3):
            next(stream)
        stream.close()
        until(lambda: bool(on.upstream.left), 1)
    until(lambda: on.model.admitted == 0)
