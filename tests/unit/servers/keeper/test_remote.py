"""A server that somebody else runs: ready, away and back again, and each reason why."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from modelops.config import ModelConfig
from modelops.errors import MissingEnvironmentError
from modelops_servers.keeper import remote
from modelops_servers.keeper.remote import RemoteKeeper
from modelops_servers.keeper.seat import OpenAIServer

BIG = {"id": "big", "max_model_len": 4096}


class Remote:
    """A server that answers as it is told."""

    def __init__(self) -> None:
        self.models: Any = {"data": [BIG]}
        self.status = 200
        self.health = 404
        self.seen: list[tuple[str, str | None]] = []
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    @contextlib.asynccontextmanager
    async def there(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        try:
            yield
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split()[1]
        key = next((s[15:] for s in head.split("\r\n") if s.startswith("Authorization: ")), None)
        self.seen.append((path, key))
        status = self.health if path == "/health" else self.status
        body = json.dumps(self.models).encode() if path == "/v1/models" else b""
        writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n".encode())
        writer.write(b"Connection: close\r\nLocation: http://127.0.0.1:1/\r\n\r\n" + body)
        await writer.drain()
        writer.close()

    def config(self, **options: Any) -> ModelConfig:
        url = f"http://127.0.0.1:{self.port}/v1"
        return ModelConfig(name="m", engine="openai", url=url, options=options)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Remote:
    monkeypatch.setattr(remote, "_POLL_SECONDS", 0.02)
    monkeypatch.setattr(remote, "_FIRST_SECONDS", 0.2)
    return Remote()


def run(config: ModelConfig, scenario: Callable[[RemoteKeeper], Awaitable[None]]) -> None:
    async def main() -> None:
        keeper = RemoteKeeper(config)
        try:
            await scenario(keeper)
        finally:
            await keeper.close()

    asyncio.run(main())


def test_it_is_ready_once_it_lists_the_model(server: Remote) -> None:
    async def scenario(keeper: RemoteKeeper) -> None:
        async with server.there():
            described = await keeper.start()
        assert keeper.standing.state == "ready"
        assert described["served_model_name"] == "big"
        assert described["max_model_len"] == 4096

    run(server.config(), scenario)
    assert {path for path, _ in server.seen} == {"/health", "/v1/models"}


def test_its_key_is_sent_and_kept_out_of_the_configuration(
    server: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UPSTREAM_KEY", "sk-upstream")
    config = server.config(key_variable="UPSTREAM_KEY")
    assert "sk-upstream" not in config.model_dump_json()

    async def scenario(keeper: RemoteKeeper) -> None:
        async with server.there():
            await keeper.start()

    run(config, scenario)
    assert {key for _, key in server.seen} == {"Bearer sk-upstream"}
    monkeypatch.delenv("UPSTREAM_KEY")
    with pytest.raises(MissingEnvironmentError, match="UPSTREAM_KEY, which is not set"):
        OpenAIServer.check(config)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"status": 401}, "asks for a key"),
        ({"status": 500}, "answers with 500"),
        ({"status": 302}, "answers with 302"),
        ({"health": 503}, "its engine is not well"),
        ({"models": {"data": []}}, "has no model 'm'; it lists none"),
        ({"models": {"data": [BIG, {"id": "small"}]}}, "no model 'm'; it lists big, small"),
        ({"models": ["big"]}, "not what an OpenAI server says"),
        ({"models": {"data": [{"id": 1}, 2]}}, "not what an OpenAI server says"),
    ],
)
def test_why_it_is_not_ready_is_told(server: Remote, change: dict[str, Any], says: str) -> None:
    for name, value in change.items():
        setattr(server, name, value)

    async def scenario(keeper: RemoteKeeper) -> None:
        async with server.there():
            with pytest.raises(MissingEnvironmentError) as caught:
                await keeper.start()
        assert says in caught.value.message

    run(server.config(), scenario)


def test_one_that_is_not_there_is_told_within_seconds(server: Remote) -> None:
    async def scenario(keeper: RemoteKeeper) -> None:
        with pytest.raises(MissingEnvironmentError, match="does not answer"):
            await keeper.start()

    run(server.config(), scenario)


def test_one_of_several_models_is_found_by_its_own_name(server: Remote) -> None:
    server.models = {"data": [{"id": "small"}, BIG]}

    async def scenario(keeper: RemoteKeeper) -> None:
        async with server.there():
            assert (await keeper.start())["served_model_name"] == "big"

    run(server.config(model="big"), scenario)


def test_one_that_goes_away_fails_and_comes_back_by_itself(server: Remote) -> None:
    async def scenario(keeper: RemoteKeeper) -> None:
        async def until(state: str) -> None:
            async with asyncio.timeout(5):
                while keeper.standing.state != state:
                    await asyncio.sleep(0.01)

        async with server.there():
            await keeper.start()
            watching = asyncio.create_task(keeper.watch())
        await until("failed")
        assert "does not answer" in keeper.standing.why
        assert "by itself" in (keeper.standing.next or "")
        async with server.there():
            await until("ready")
        watching.cancel()

    run(server.config(), scenario)
