from __future__ import annotations

import contextlib
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_upstream import Exchange, ScriptedUpstream, scripted, silent

from modelops_loadtests.client.connection import Connection
from modelops_loadtests.client.request import Request
from modelops_loadtests.client.response import MAX_HEAD_BYTES
from modelops_loadtests.client.target import Target

ASKED = Request("/v1/x", b'{"a": 1}', {"Content-Type": "application/json"}, 1, "x")


@pytest.fixture
def upstream() -> Iterator[ScriptedUpstream]:
    with scripted() as made:
        yield made


def connected(upstream: ScriptedUpstream, *, timeout: float = 10.0) -> Connection:
    return Connection(Target(upstream.url + "/below", {"X-All": "yes"}), timeout=timeout)


def test_a_connection_is_kept_and_made_anew_where_the_server_closed_it(
    upstream: ScriptedUpstream,
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.answer({"n": len(upstream.requests)})
        if len(upstream.requests) == 2:
            exchange.close()

    upstream.script = answer
    connection = connected(upstream)
    replies = []
    for _ in range(4):
        replies.append(connection.send(ASKED))
        if len(replies) == 2:
            # Until the end of the connection has come; it has come before anything else does.
            connection._socket._sock.setblocking(True)
            connection._socket._sock.recv(1, socket.MSG_PEEK)
            connection._socket._sock.setblocking(False)
    assert [r.error for r in replies] == [None] * 4
    assert replies[3].body == b'{"n": 4}'
    assert upstream.connections == 2
    asked = upstream.requests[0]
    assert (asked.path, asked.headers["x-all"], asked.body) == ("/below/v1/x", "yes", ASKED.body)
    connection.close()


OK = b"HTTP/1.1 200 OK\r\n"
SIZED = OK + b"Content-Length: 5\r\n\r\nhello"
REPLIES = {
    "length": SIZED,
    "chunked": OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
    "until the end": OK + b"\r\nhello",
    "interim": b"HTTP/1.1 103 Early\r\nX: 1\r\n\r\n" + SIZED,
}


@pytest.mark.parametrize("form", REPLIES)
@pytest.mark.parametrize("bytewise", [False, True])
def test_a_reply_in_any_framing(upstream: ScriptedUpstream, form: str, bytewise: bool) -> None:
    async def answer(exchange: Exchange) -> None:
        raw = REPLIES[form]
        for piece in [raw[i : i + 1] for i in range(len(raw))] if bytewise else [raw]:
            await exchange.send(piece)
        if form == "until the end":
            exchange.close()

    upstream.script = answer
    connection = connected(upstream)
    for _ in range(2):
        exchange = connection.send(ASKED)
        assert (exchange.error, exchange.status, exchange.body) == (None, 200, b"hello")
        assert exchange.sent < (exchange.first_byte or 0) <= exchange.end
    assert upstream.connections == (2 if form == "until the end" else 1)
    connection.close()


@pytest.mark.parametrize(
    ("raw", "kind"),
    [
        (b"", "closed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe", "closed"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", "closed"),
        (b"SMTP ready\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * (MAX_HEAD_BYTES + 9), "protocol"),
        (b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "protocol"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\n.", "protocol"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 4000, "protocol"),
    ],
)
def test_a_broken_reply_is_of_a_known_kind(
    upstream: ScriptedUpstream, raw: bytes, kind: str
) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.send(raw)
        exchange.close()

    upstream.script = answer
    connection = connected(upstream)
    exchange = connection.send(ASKED)
    assert exchange.error == kind, exchange.detail
    connection.close()


def test_a_reply_has_a_bound_and_so_has_what_follows_it(
    upstream: ScriptedUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    trailers = b"".join(b"X-%d: y\r\n" % number for number in range(1000))
    reply = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + trailers + b"\r\n"

    async def answer(exchange: Exchange) -> None:
        await exchange.send(reply)

    upstream.script = answer
    connection = connected(upstream)
    whole = connection.send(ASKED)
    assert (whole.error, whole.headers) == (None, {"transfer-encoding": "chunked"})
    monkeypatch.setattr("modelops_loadtests.client.exchange.MAX_REPLY_BYTES", len(reply) - 1)
    long = connection.send(ASKED)
    assert long.error == "protocol", long.detail
    connection.close()


def test_a_server_that_answers_before_it_has_taken_all_is_heard(upstream: ScriptedUpstream) -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]

    def answer() -> None:
        peer, _ = listening.accept()
        peer.recv(65536)
        peer.sendall(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(1 << 20):
            pass
        peer.close()

    thread = threading.Thread(target=answer)
    thread.start()
    connection = Connection(Target(f"http://127.0.0.1:{port}", {}), timeout=20)
    large = Request("/", b"x" * 20_000_000, {}, 1, "x")
    exchange = connection.send(large)
    assert (exchange.error, exchange.status, exchange.body) == (None, 413, b"no")
    connection.close()
    thread.join(10)
    listening.close()


def test_limits(upstream: ScriptedUpstream) -> None:
    upstream.script = silent
    whole = connected(upstream, timeout=0.3).send(ASKED)
    assert (whole.error, whole.status) == ("timeout", None)
    assert 0.25 < whole.end - whole.sent < 5
    idle = Connection(Target(upstream.url, {}), timeout=20, idle_timeout=0.3).send(ASKED)
    assert idle.error == "timeout"
    assert "no byte for 0.3 s" in (idle.detail or "")


def test_nobody_there_and_no_such_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert Connection(Target(f"http://127.0.0.1:{port}", {}), timeout=9).send(ASKED).error == (
        "refused"
    )
    unknown = Connection(Target("http://nobody.invalid:1", {}), timeout=9).send(ASKED)
    assert unknown.error == "dns"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate of 127.0.0.1's own, and its key, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed here")
    key, made = tmp_path / "key.pem", tmp_path / "made.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *(
                "-nodes",
                "-days",
                "2",
                "-subj",
                "/CN=test",
                "-addext",
                "subjectAltName=IP:127.0.0.1",
            ),
            *("-keyout", str(key), "-out", str(made)),
        ],
        check=True,
        capture_output=True,
    )
    made.write_bytes(made.read_bytes() + key.read_bytes())
    return made


def test_tls_is_checked_and_its_stamps_are_our_own(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    listening = socket.create_server(("127.0.0.1", 0))
    url = f"https://127.0.0.1:{listening.getsockname()[1]}"

    def answer() -> None:
        for _ in range(2):
            peer, _ = listening.accept()
            with contextlib.suppress(OSError), context.wrap_socket(peer, server_side=True) as safe:
                for _ in range(2):
                    safe.recv(65536)
                    safe.sendall(SIZED)
            peer.close()

    thread = threading.Thread(target=answer)
    thread.start()
    unknown = Connection(Target(url, {}), timeout=10).send(ASKED)
    assert unknown.error == "tls", unknown.detail
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    connection = Connection(Target(url, {}), timeout=10)
    for _ in range(2):
        exchange = connection.send(ASKED)
        assert (exchange.error, exchange.body) == (None, b"hello"), exchange.detail
        assert (exchange.stamps, exchange.read_lag_max) == ("user", None)
    connection.close()
    thread.join(10)
    listening.close()
