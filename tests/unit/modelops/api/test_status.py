"""Asking a gateway how it is: every answer, and everything that is none."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from modelops.api import status as module
from modelops.api.status import base_url, status
from modelops.errors import InputError, MissingEnvironmentError, ModelopsError, UsageError

MODEL = {
    "name": "minilm", "version": "2", "state": "ready", "why": "warm",
    "since": "2026-01-02T03:04:05.678+00:00", "last_progress": None, "in_flight": 3,
    "next": "nothing to do", "brand_new": {"x": 1},
    "replicas": [{"id": "0", "state": "ready", "why": "", "since": None, "restarts": 2, "pid": 7}],
}  # fmt: skip
READY = {"status": "ready", "not_ready": [], "models": [MODEL], "topology": 4}
FRONT = {"index": 1, "state": "stuck", "why": "no sign of life", "since": None, "restarts": 2}


@contextlib.contextmanager
def answering(
    code: int, body: bytes, context: ssl.SSLContext | None = None, **headers: str
) -> Iterator[tuple[str, list[Any]]]:
    """Serve one answer on loopback; yield the URL and what was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append((self.path, dict(self.headers)))
            self.send_response_only(code)
            for name, value in {"Content-Length": str(len(body)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_args: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        scheme = "http" if context is None else "https"
        yield f"{scheme}://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def listening(react: Callable[[socket.socket], None]) -> Iterator[str]:
    """Accept one connection after the other and let ``react`` treat it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ended = threading.Event()

        def run() -> None:
            while not ended.is_set():
                connection, _ = listener.accept()
                with connection:
                    if not ended.is_set():
                        react(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            socket.create_connection(listener.getsockname()).close()
            thread.join()


def refused(kind: type[ModelopsError], url: str, key: SecretStr | None = None) -> ModelopsError:
    with pytest.raises(kind) as caught:
        status(url, key)
    return caught.value


def test_a_ready_gateway_is_read_with_all_that_it_tells() -> None:
    date = "Fri, 02 Jan 2026 03:05:05 GMT"
    with answering(200, json.dumps(READY).encode(), Date=date) as (url, asked):
        found = status(url)
    (model,) = found.models
    assert (found.url, found.ready, found.now) == (url, True, datetime(2026, 1, 2, 3, 5, 5, 0, UTC))
    assert (model.name, model.version, model.next) == ("minilm", "2", "nothing to do")
    assert model.replicas[0].restarts == 2
    told = json.loads(found.model_dump_json())["models"][0]
    assert told["brand_new"] == {"x": 1}
    assert told["replicas"][0]["pid"] == 7
    assert asked[0][0] == "/readyz"
    assert "Authorization" not in asked[0][1]


def test_not_ready_is_an_answer_and_only_ready_is_ready() -> None:
    loading = {
        "status": "not ready",
        "models": [{"name": "a", "version": None, "state": "loading"}],
    }
    for code, body in ((503, loading), (503, READY), (200, loading)):
        with answering(code, json.dumps(body).encode()) as (url, _):
            found = status(url)
            assert found.ready is False
            assert found.models[0].state in ("loading", "ready")


def test_a_key_is_sent_and_never_to_another_address() -> None:
    key = SecretStr("a-long-secret-key")
    with answering(200, json.dumps(READY).encode()) as (url, asked):
        status(url, key)
        assert asked[0][1]["Authorization"] == "Bearer a-long-secret-key"
        moved = answering(302, b"", Location=f"{url}/readyz")
        with moved as (first, _):
            error = refused(InputError, first, key)
        assert len(asked) == 1
    assert "HTTP 302" in error.message
    with answering(401, b"{}") as (url, _):
        error = refused(InputError, url, key)
    assert "another key" in error.message
    assert "secret-key" not in error.message


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (200, b"<html>It works!</html>"), (200, b""), (200, b"[]"), (200, b'"ready"'),
        (200, b'{"status": "ok"}'), (200, b'{"status": 1, "models": []}'),
        (200, b'{"status": "ready", "models": [1]}'), (200, b'{"status": "ready", "models": 1}'),
        (200, b'{"status": "ready", "models": [{"name": "x"}]}'), (404, json.dumps(READY).encode()),
        (502, b"bad gateway"), (500, b"{}"), (200, b"\xff\xfe"), (200, b"[" * 100_000),
    ],
)  # fmt: skip
def test_what_is_not_modelops_is_bad_input(code: int, body: bytes) -> None:
    with answering(code, body) as (url, _):
        error = refused(InputError, url)
    assert error.exit_code == 3
    assert f"HTTP {code}" in error.message


def test_nothing_there_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    error = refused(MissingEnvironmentError, url)
    assert (error.exit_code, error.message) == (
        5, f"{url} cannot be reached: nothing listens there",
    )  # fmt: skip
    assert (
        "no host of this name" in refused(MissingEnvironmentError, "http://nowhere.invalid").message
    )


def reset(connection: socket.socket) -> None:
    connection.recv(10_000)


def greet(connection: socket.socket) -> None:
    connection.sendall(b"220 mail.example.com ESMTP ready and waiting\r\n\r\n")
    connection.recv(10_000)


@pytest.mark.parametrize("react", [reset, greet])
def test_what_speaks_no_http_says_so_and_how_to_try_tls(
    react: Callable[[socket.socket], None],
) -> None:
    with listening(react) as url:
        error = refused(MissingEnvironmentError, url)
        assert "does not speak HTTP" in error.message
        assert error.hint is not None
        assert f"modelops status https{url.removeprefix('http')}" in error.hint
        error = refused(MissingEnvironmentError, url.replace("http", "https"))
        assert "TLS" in error.message or "closes the connection" in error.message


def test_a_server_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TIMEOUT_SECONDS", 0.2)
    given_up = threading.Event()

    def hang(_connection: socket.socket) -> None:
        given_up.wait(10)

    with listening(hang) as url:
        try:
            error = refused(MissingEnvironmentError, url)
        finally:
            given_up.set()
    assert "no answer within 0.2 s" in error.message


def test_tls_is_told_apart(tmp_path: Path) -> None:
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj"]
    subprocess.run(
        [*made, "/CN=localhost", "-keyout", "k.pem", "-out", "c.pem"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "c.pem", tmp_path / "k.pem")
    with answering(200, json.dumps(READY).encode(), context) as (url, _):
        error = refused(MissingEnvironmentError, url)
        assert "certificate is not trusted here: self-signed" in error.message
    with answering(200, json.dumps(READY).encode()) as (url, _):
        error = refused(MissingEnvironmentError, url.replace("http", "https"))
    assert "does not speak TLS" in error.message
    assert error.hint == f"modelops status {url}"


def test_no_proxy_is_asked_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        dead = f"http://127.0.0.1:{free.getsockname()[1]}"
    monkeypatch.setenv("http_proxy", dead)
    monkeypatch.delenv("no_proxy", raising=False)
    with answering(200, json.dumps(READY).encode()) as (url, _):
        assert status(url).ready


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("127.0.0.1:9000", "http://127.0.0.1:9000"), ("localhost", "http://localhost"),
        ("http://a/", "http://a"), ("https://a/base/", "https://a/base"),
        ("http://a/readyz", "http://a"), ("http://a/b/readyz/", "http://a/b"),
        ("http://[::1]:8080", "http://[::1]:8080"), ("HTTP://A", "http://A"),
    ],
)  # fmt: skip
def test_a_base_url_is_found_in_what_people_type(text: str, url: str) -> None:
    assert base_url(text) == url


@pytest.mark.parametrize(
    "text",
    ["", "ftp://a", "file:///etc/passwd", "http://", "http://a:99999", "http://a:x", "http://a b",
     "http://a?x=1", "http://u:secret@a", "http://a\n", "http://é", "http://[::1", ":8080"],
)  # fmt: skip
def test_what_is_no_url_is_a_usage_error(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        base_url(text)
    assert "secret" not in caught.value.message


@pytest.mark.parametrize("more", [{}, {"fronts": [FRONT]}], ids=["older", "newer"])
def test_fronts_are_told_where_the_gateway_tells_of_them(more: dict[str, Any]) -> None:
    with answering(200, json.dumps(READY | more).encode()) as (url, _):
        found = status(url)
    assert [front.restarts for front in found.fronts] == ([2] if more else [])
