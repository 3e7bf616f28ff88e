"""Raw sockets that send nonsense: refused or closed, never a failure of ours, and nothing left."""

from __future__ import annotations

import json
import re
import socket
import struct
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from fake_artifacts import make_artifact
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from raw_client import answers, connect, drip, exchange, post, rest, statuses
from running_server import Placement, Server, start, write_config

HEADER_SECONDS = 1.0
REQUEST_SECONDS = 1.5
# A connection's deadlines are looked at once a second.
MARGIN_SECONDS = 2.5
HEAD_LIMIT = 64 * 1024

INPUT = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
BODY = json.dumps({"inputs": [INPUT]}).encode()
INFER = (
    b"POST /v2/models/mlp/infer HTTP/1.1\r\nHost: gateway\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)
LIVE = b"GET /livez HTTP/1.1\r\nHost: gateway\r\n\r\n"
LAST = b"GET /livez HTTP/1.1\r\nHost: gateway\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, placement: Placement) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("raw")
    make_artifact(root / "mlp")
    config = write_config(
        root / "modelops.yaml",
        [{"name": "mlp", "source": "mlp", "inline": placement is Placement.INLINE}],
        server={"port": 0, "admin_port": 0},
        limits={
            "header_seconds": HEADER_SECONDS,
            "request_seconds": REQUEST_SECONDS,
            "max_body_mb": 1,
            "max_json_mb": 0.5,
        },
    )
    server = start("--config", str(config))
    assert server.infer("mlp", INPUT).ok
    # Large JSON is read by a process of its own, which is started now and not in a test.
    padded = BODY + b" " * 100_000
    assert eventually(lambda: server.post("/v2/models/mlp/infer", data=padded).ok, 20)
    yield server
    server.close()


@pytest.fixture
def gateway(running: Server) -> Iterator[Server]:
    """Lend the server to a test, and look whether it is as well afterwards as it was before."""
    front = running.front
    lines, descriptors = len(running.log), front.num_fds()
    yield running
    assert running.front.pid == front.pid, "the front was restarted"
    # What left in the middle is noticed in a moment, not at once.
    assert eventually(lambda: front.num_fds() <= descriptors), "a descriptor is left"
    assert eventually(lambda: in_flight(running) == 0), "a request is left"
    assert running.infer("mlp", INPUT).ok
    log = "".join(running.log[lines:])
    assert "Traceback" not in log
    assert not re.search(r'"level": "(error|critical)"', log), log
    assert not re.search(r'"status": 5\d\d', log), log
    assert "\x1b" not in log


def eventually(holds: Callable[[], bool], seconds: float = 5) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def in_flight(server: Server) -> int:
    ready = server.get("/readyz")
    assert ready.status_code == 200, ready.text
    return sum(m["in_flight"] for m in ready.json()["models"])


REFUSED = {
    "http/0.9": b"GET /livez\r\n",
    "http/0.9 with path only": b"/livez\r\n\r\n",
    "http/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
    "http/2.0": b"GET /livez HTTP/2.0\r\nHost: x\r\n\r\n",
    "http/1.9": b"GET /livez HTTP/1.9\r\nHost: x\r\n\r\n",
    "tls hello": bytes.fromhex("16030100c8010000c40303") + bytes(range(200)),
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "nul bytes": bytes(512),
    "nul in the path": b"GET /live\x00z HTTP/1.1\r\nHost: x\r\n\r\n",
    "nul in a header's name": b"GET /livez HTTP/1.1\r\nHo\x00st: x\r\n\r\n",
    "nul in a header's value": b"GET /livez HTTP/1.1\r\nHost: x\x00y\r\n\r\n",
    "control character in a value": b"GET / HTTP/1.1\r\nHost: x\r\nX-Request-Id: \x1b[31m\r\n\r\n",
    "lone carriage return": b"GET /livez HTTP/1.1\rHost: x\r\r",
    "no method": b" /livez HTTP/1.1\r\n\r\n",
    "unknown method": b"BREWWW /livez HTTP/1.1\r\n\r\n",
    "lower-case method": b"get /livez HTTP/1.1\r\n\r\n",
    "no host": b"GET /livez HTTP/1.1\r\n\r\n",
    "two hosts": b"GET /livez HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
    "two hosts of old": b"GET /livez HTTP/1.0\r\nHost: x\r\nHost: y\r\n\r\n",
    "no path": b"GET HTTP/1.1\r\nHost: x\r\n\r\n",
    "space in the path": b"GET /live z HTTP/1.1\r\nHost: x\r\n\r\n",
    "header without colon": b"GET /livez HTTP/1.1\r\nHost\r\n\r\n",
    "space before the colon": b"GET /livez HTTP/1.1\r\nHost : x\r\n\r\n",
    "folded header": b"GET /livez HTTP/1.1\r\n Host: x\r\n\r\n",
    "length and chunks": post(
        b"Content-Length: 5", b"Transfer-Encoding: chunked", body=b"0\r\n\r\n"
    ),
    "chunks and length": post(
        b"Transfer-Encoding: chunked", b"Content-Length: 5", body=b"0\r\n\r\n"
    ),
    "two lengths": post(b"Content-Length: 2", b"Content-Length: 3", body=b"{}x"),
    "the same length twice": post(b"Content-Length: 2", b"Content-Length: 2", body=b"{}"),
    "a list of lengths": post(b"Content-Length: 2, 2", body=b"{}"),
    "negative length": post(b"Content-Length: -2", body=b"{}"),
    "signed length": post(b"Content-Length: +2", body=b"{}"),
    "length in hex": post(b"Content-Length: 0x2", body=b"{}"),
    "endless length": post(b"Content-Length: " + b"9" * 40, body=b"{}"),
    "empty length": post(b"Content-Length:", body=b"{}"),
    "length of letters": post(b"Content-Length: two", body=b"{}"),
    "unknown coding": post(b"Transfer-Encoding: gzip", body=b"{}"),
    "unknown coding last": post(b"Transfer-Encoding: chunked, gzip", body=b"0\r\n\r\n"),
    "coding that looks like one": post(b"Transfer-Encoding: xchunked", body=b"0\r\n\r\n"),
    "negative chunk": post(b"Transfer-Encoding: chunked", body=b"-2\r\n{}\r\n0\r\n\r\n"),
    "chunk of letters": post(b"Transfer-Encoding: chunked", body=b"zz\r\n{}\r\n0\r\n\r\n"),
    "chunk that is longer than it says": post(
        b"Transfer-Encoding: chunked", body=b"1\r\n{}\r\n0\r\n\r\n"
    ),
    "chunk beyond all bounds": post(
        b"Transfer-Encoding: chunked", body=b"f" * 40 + b"\r\n{}\r\n0\r\n\r\n"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_nonsense_is_refused_and_what_follows_it_is_not_read(gateway: Server, name: str) -> None:
    """What stands behind a request of unclear length must never be taken for a request."""
    reply = exchange(gateway, REFUSED[name] + LAST, end=False)
    assert set(statuses(reply)) <= {400, 408, 413, 501}, reply
    assert len(answers(reply)) <= 1
    for _, body in answers(reply):
        assert list(json.loads(body)) == ["error"]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"\r\n\r\n" + LAST, 200),
        (b"GET http://elsewhere/livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200),
        (b"GET http://x:99999999/livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400),
        (b"CONNECT elsewhere:80 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"GET /livez HTTP/1.1\r\nHost: x\r\nExpect: nonsense\r\nConnection: close\r\n\r\n", 200),
        (b"GET /livez?%00&%zz#x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200),
        (b"GET /%6c%69%76%65%7a HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 200),
        (b"GET /livez%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"GET /%2e%2e/livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"GET /v2/models/%zz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"GET /v2/models/%ff%fe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"GET /v2/models/%1b%5b31m/ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"GET /v2/models/%252e%252e HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        # No redirect: it would lead to wherever the request's own Host header says.
        (b"GET /livez/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 404),
        (b"GET /v2/models/mlp/ HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n", 404),
        (b"GET //livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 404),
        (b"TRACE /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405),
        (b"PROPFIND /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", 405),
        (post(b"Content-Length: 0", b"Connection: close"), 400),
        (post(b"Connection: close"), 400),
    ],
    ids=lambda value: None if isinstance(value, int) else value.split(b"\r\n")[0].decode()[:40],
)  # fmt: skip
def test_odd_but_whole_requests_get_one_answer(gateway: Server, data: bytes, expected: int) -> None:
    reply = exchange(gateway, data, end=False)
    assert statuses(reply) == [expected]
    assert b"evil" not in reply


def test_pipelined_requests_are_answered_in_their_order(gateway: Server) -> None:
    sent = b""
    for i in range(60):
        one = INFER if i % 3 else LIVE
        sent += one.replace(b"Host: gateway", b"Host: gateway\r\nX-Request-Id: n%d" % i)
    reply = exchange(gateway, sent + LAST, end=False)
    assert statuses(reply) == [200] * 61
    ids = re.findall(rb"x-request-id: n(\d+)\r\n", reply)
    assert [int(i) for i in ids] == list(range(60))
    wrong = INFER.replace(b"[1, 4]", b"[1, 5]")
    bad = exchange(gateway, LIVE + wrong + LIVE + b"\x00" + LIVE, end=False)
    assert statuses(bad) == [200, 400, 200]


def test_a_request_byte_by_byte_is_a_request(gateway: Server) -> None:
    with connect(gateway) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in INFER.replace(b"gateway", b"gateway\r\nConnection: close"):
            link.send(bytes([byte]))
        assert statuses(rest(link)) == [200]


def test_a_client_that_sends_no_more_gets_every_answer(gateway: Server) -> None:
    """As nc -N, socat and shutdown(SHUT_WR) do it; a cut request behind them is dropped."""
    for rest_ in (b"", LIVE[:20], INFER[:-5]):
        for _ in range(5):
            assert statuses(exchange(gateway, INFER * 3 + LIVE + rest_)) == [200] * 4


@pytest.mark.parametrize("how", ["half-closed", "closed", "reset"])
def test_a_client_may_leave_after_every_byte(gateway: Server, how: str) -> None:
    for size in range(0, len(INFER), 1 if how == "half-closed" else 2):
        with connect(gateway) as link:
            link.sendall(INFER[:size])
            if how == "half-closed":
                link.shutdown(socket.SHUT_WR)
                assert set(statuses(rest(link))) <= {400, 408}, size
            elif how == "reset":
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def test_clients_may_leave_while_they_are_answered(gateway: Server) -> None:
    for _ in range(40):
        with connect(gateway) as link:
            link.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n" * 20 + INFER * 20)
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 8 * 2**20 + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a" * 2**20 + b": b\r\n\r\n",
        b"GET /" + b"a" * 2**20 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /?" + b"a" * 32 * 1024 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        LIVE[:-2] + b"".join(b"X-%d: y\r\n" % i for i in range(10_000)) + b"\r\n",
        LIVE + b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 2**20 + b"\r\n\r\n",
        post(b"Transfer-Encoding: chunked", body=b"0\r\n" + b"X: y\r\n" * 50_000 + b"\r\n"),
    ],
    ids=["one header", "one name", "path", "query", "10,000 lines", "second request", "trailers"],
)  # fmt: skip
def test_h6_headers_beyond_bounds_are_431(gateway: Server, data: bytes) -> None:
    began = time.monotonic()
    found = statuses(exchange(gateway, data, end=False))
    assert found[-1] in (400, 431), found
    assert 431 in found or found == [400]
    assert time.monotonic() - began < 5


def test_headers_within_bounds_are_not(gateway: Server) -> None:
    lines = b"".join(b"X-%d: y\r\n" % i for i in range(2000))
    data = LAST.replace(b"gateway\r\n", b"gateway\r\n" + lines)
    assert len(data) < HEAD_LIMIT
    assert statuses(exchange(gateway, data, end=False)) == [200]


def admin_port(server: Server) -> int:
    return int(server.admin_url.rsplit(":", 1)[1])


def test_h15_drips_are_ended_at_their_deadlines(gateway: Server) -> None:
    forever = [b"a"] * 1000
    admin = b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n"
    chunked = post(b"Transfer-Encoding: chunked")
    cases: list[tuple[str, int, bytes, Any, float]] = [
        ("nothing", gateway.port, b"", [b""] * 1000, HEADER_SECONDS),
        ("request line", gateway.port, b"GET /", forever, HEADER_SECONDS),
        ("method", gateway.port, b"PO", [b""] * 1000, HEADER_SECONDS),
        ("header", gateway.port, b"GET /livez HTTP/1.1\r\nX: ", forever, HEADER_SECONDS),
        ("lines", gateway.port, b"GET / HTTP/1.1\r\n", [b"A: b\r\n"] * 1000, HEADER_SECONDS),
        ("empty lines", gateway.port, b"", [b"\r\n"] * 1000, HEADER_SECONDS),
        ("second", gateway.port, LIVE + b"GET ", forever, HEADER_SECONDS),
        ("body", gateway.port, INFER[: -len(BODY)], [b" "] * 1000, REQUEST_SECONDS),
        ("no body", gateway.port, INFER[: -len(BODY)], [b""] * 1000, REQUEST_SECONDS),
        ("chunks", gateway.port, chunked, [b"1\r\n \r\n"] * 1000, REQUEST_SECONDS),
        ("chunk size", gateway.port, chunked, [b"0"] * 1000, REQUEST_SECONDS),
        ("embeddings", gateway.port, INFER[: -len(BODY)].replace(
            b"/v2/models/mlp/infer", b"/v1/embeddings"), [b" "] * 1000, REQUEST_SECONDS),
        ("unread body", gateway.port, INFER[: -len(BODY)].replace(
            b"POST /v2/models/mlp/infer", b"GET /livez"), [b" "] * 1000, HEADER_SECONDS),
        ("admin", admin_port(gateway), admin, [b" "] * 1000, REQUEST_SECONDS),
    ]  # fmt: skip
    with ThreadPoolExecutor(len(cases)) as pool:
        dripping = [pool.submit(drip, *case[1:4]) for case in cases]
        # Meanwhile everybody else is served.
        time.sleep(0.3)
        assert gateway.infer("mlp", INPUT).ok
        results = [future.result() for future in dripping]
    for (name, _, _, _, seconds), (reply, took) in zip(cases, results, strict=True):
        assert seconds - 0.2 < took < seconds + MARGIN_SECONDS, (name, took, reply)
        found = statuses(reply)
        if name in ("second", "unread body"):
            assert found.pop(0) == 200
        assert found in ([], [408], [400]), (name, reply)


def test_two_hundred_that_only_hold_on_keep_nobody_from_being_served(gateway: Server) -> None:
    links = [connect(gateway) for _ in range(200)]
    try:
        for i, link in enumerate(links):
            link.sendall(INFER[: i % 150])
        began = time.monotonic()
        for _ in range(20):
            assert gateway.infer("mlp", INPUT).ok
        assert time.monotonic() - began < 5
        time.sleep(max(HEADER_SECONDS, REQUEST_SECONDS) + MARGIN_SECONDS - 1)
        for link in links:
            link.settimeout(2)
            assert set(statuses(rest(link))) <= {408}
    finally:
        for link in links:
            link.close()


def test_http_1_0_gets_its_answer_and_an_end(gateway: Server) -> None:
    for lines in (b"", b"Connection: keep-alive\r\n", b"Host: x\r\nConnection: close\r\n"):
        reply = exchange(gateway, b"GET /livez HTTP/1.0\r\n%s\r\n" % lines, end=False)
        assert statuses(reply) == [200]
        assert b"connection: close" in reply.lower()
    old = INFER.replace(b"HTTP/1.1", b"HTTP/1.0")
    assert statuses(exchange(gateway, old, end=False)) == [200]
    # A whole document, whatever its length, without chunks.
    page = exchange(gateway, b"GET /openapi.json HTTP/1.0\r\n\r\n", end=False)
    assert b"transfer-encoding" not in page.lower()
    assert json.loads(page.partition(b"\r\n\r\n")[2])["openapi"]


def test_no_other_protocol_is_spoken(gateway: Server) -> None:
    websocket = (
        b"GET %s HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    reply = exchange(gateway, websocket % b"/livez" + LAST, end=False)
    assert statuses(reply) == [200, 200]
    assert statuses(exchange(gateway, websocket % b"/ws" + LAST, end=False)) == [404, 200]
    h2c = (
        b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
        b"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n\r\n"
    )
    assert statuses(exchange(gateway, h2c + LAST, end=False)) == [200, 200]
    upgraded = INFER.replace(b"gateway", b"gateway\r\nConnection: upgrade\r\nUpgrade: websocket")
    assert statuses(exchange(gateway, upgraded + LAST, end=False)) == [200, 200]


def test_h19_junk_makes_no_new_series(gateway: Server) -> None:
    def series() -> set[str]:
        text = gateway.get("/metrics").text
        return {line.rsplit(" ", 1)[0] for line in text.splitlines() if line[0] != "#"}

    def junk(i: int) -> bytes:
        return b"".join(
            b"%s %s HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % (method, path)
            for method, path in (
                (b"GET", b"/v2/models/junk%d/versions/%d/ready" % (i, i)),
                (b"POST", b"/v2/models/junk%d/versions/%d/infer" % (i, i)),
                (b"POST", b"/v2/models/mlp/versions/%d/infer" % (i + 2)),
                (b"MKCOL", b"/junk/%d" % i),
                (b"PUT", b"/v2/models/junk%d" % i),
                (b"GET", b"/v2/systemsharedmemory/region/junk%d/status" % i),
            )
        )

    series()
    exchange(gateway, junk(0) + LAST, end=False)
    before = series()
    for start_at in range(1, 301, 30):
        sent = b"".join(junk(i) for i in range(start_at, start_at + 30))
        found = statuses(exchange(gateway, sent + LAST, end=False))
        assert len(found) == 181
        assert set(found) == {200, 404, 405}
    assert series() == before
    assert "junk" not in "".join(before)


@pytest.mark.parametrize("given", [b"a" * 2**15, b"\xff\xfe", b"a\tb", b'"}{"', b"%0d%0aX: y"])
def test_h20_request_ids_that_are_none_are_replaced(gateway: Server, given: bytes) -> None:
    last = LAST.replace(b"gateway", b"gateway\r\nX-Request-Id: " + given)
    reply = exchange(gateway, last, end=False)
    assert statuses(reply) == [200]
    assert re.search(rb"x-request-id: [0-9a-f]{32}\r\n", reply)


def test_h5_numbers_that_are_none_and_h3_tensors_that_are_none(gateway: Server) -> None:
    for data in (b"NaN", b"1e400", b"-Infinity", b"[1]", b"{}", b'"1"', b"null", b"1.", b"0x1"):
        body = BODY.replace(b"[1, 2, 3, 4]", b"[1, 2, 3, %s]" % data)
        length = b"Content-Length: %d" % len(body)
        reply = exchange(gateway, post(length, body=body) + LAST, end=False)
        assert statuses(reply) == [400, 200], data
    deep = b'{"inputs": ' + b"[" * 100_000
    data = post(b"Content-Length: %d" % len(deep), body=deep)
    assert statuses(exchange(gateway, data + LAST, end=False)) == [400, 200]


FRAGMENTS = [
    b"\r\n", b"\n", b"\r", b"\x00", b" ", b":", b"HTTP/1.1", b"HTTP/1.0", b"Content-Length: 9\r\n",
    b"Transfer-Encoding: chunked\r\n", b"5\r\n", b"0\r\n\r\n", b"Expect: 100-continue\r\n",
    b"Connection: close\r\n", b"Upgrade: x\r\nConnection: upgrade\r\n", b"%", b"..", b"\xff",
    b"Inference-Header-Content-Length: 7\r\n", b"Content-Encoding: gzip\r\n", LIVE, INFER, BODY,
]  # fmt: skip


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    """A valid request with pieces cut out, put in, swapped and repeated."""
    data = bytearray(draw(st.sampled_from([INFER, LIVE, INFER + LIVE])))
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(data)))
        cut = draw(st.integers(0, 8))
        piece = draw(st.sampled_from(FRAGMENTS) | st.binary(max_size=6))
        data[at : at + cut] = piece
    return bytes(data)


@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,  # a find is to be met again by whoever looks for it
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=mutations() | st.binary(max_size=200))
def test_whatever_is_sent_is_never_a_failure_of_ours(gateway: Server, data: bytes) -> None:
    reply = exchange(gateway, data)
    assert all(status < 500 or status == 501 for status in statuses(reply)), reply


def test_the_client_gone_in_the_middle_of_an_operators_body(gateway: Server) -> None:
    head = b"POST /v2/repository/index HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n{"
    for _ in range(5):
        with socket.create_connection(("127.0.0.1", admin_port(gateway)), timeout=5) as link:
            link.sendall(head)


def test_no_file_of_this_machine_is_ever_answered(gateway: Server) -> None:
    for path in (
        b"/etc/passwd", b"/../../../../etc/passwd", b"/assets/../../../etc/passwd",
        b"/assets/..%2f..%2f..%2fetc%2fpasswd", b"/assets/%2e%2e%2fauth.py", b"/assets/index.js%00",
        b"/v2/models/../../../../etc/passwd", b"/assets/%2fetc%2fpasswd",
    ):  # fmt: skip
        reply = exchange(gateway, LAST.replace(b"/livez", path), end=False)
        assert statuses(reply) == [404], path
        assert b"root:" not in reply
        assert Path("/etc/passwd").read_bytes()[:20] not in reply
