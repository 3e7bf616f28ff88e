"""The gateway's HTTP on real sockets: bounds, order, framing, and clients that misbehave."""

from __future__ import annotations

import contextlib
import gc
import socket
import time
from typing import Any

import pytest
from raw_http import GET, HEADER_SECONDS, App, Reader, Running, answer, refused, running, until

from modelops_servers.front.http_cycle import HttpCycle
from modelops_servers.front.http_protocol import HEAD_BYTES, LINE_BYTES, HttpProtocol

# The sweep comes once a second.
LATE = HEADER_SECONDS + 1.6


# Size of the head


def head_of(size: int) -> bytes:
    """A request whose headers and target take just ``size`` bytes, lines and colons included."""
    lines = [b"Host: x"] + [b"X-%04d: %s" % (i, b"a" * 1000) for i in range(size // 1100)]
    used = len(b"/echo") + sum(len(line) + 2 for line in lines) + len(b"Last: \r\n")
    lines.append(b"Last: " + b"b" * (size - used))
    return b"GET /echo HTTP/1.1\r\n" + b"".join(line + b"\r\n" for line in lines) + b"\r\n"


def test_h6_headers_up_to_64_kib_pass_and_one_byte_more_is_431(link: socket.socket) -> None:
    reader = Reader(link)
    link.sendall(head_of(HEAD_BYTES))
    assert len(reader.json()["headers"]) > 50
    link.sendall(head_of(HEAD_BYTES + 1))
    assert "too long" in refused(link, 431)


def test_h6_headers_in_many_packets_are_counted_together(link: socket.socket) -> None:
    link.sendall(b"GET /echo HTTP/1.1\r\n")
    for i in range(40):
        link.sendall(b"X-%d: %s\r\n" % (i, b"a" * 2000))
        time.sleep(0.002)
    refused(link, 431)


def test_h6_headers_behind_a_pipelined_request_are_counted_too(link: socket.socket) -> None:
    whole = head_of(HEAD_BYTES + 1)
    link.sendall(GET + whole[:50_000])
    reader = Reader(link)
    assert reader.json()["path"] == "/echo"
    link.sendall(whole[50_000:])
    assert reader.answer()[0] == 431


def test_h6_eight_megabytes_in_one_header_are_431_and_the_client_can_read_it(
    link: socket.socket,
) -> None:
    link.sendall(b"GET /echo HTTP/1.1\r\nHost: x\r\nX-Big: ")
    for _ in range(8):
        link.sendall(b"a" * 2**20)
    refused(link, 431)


def test_h6_a_long_target_is_431(link: socket.socket) -> None:
    reader = Reader(link)
    link.sendall(GET.replace(b"/echo", b"/echo?" + b"q" * (LINE_BYTES - 6)))
    assert len(reader.json()["query"]) == LINE_BYTES - 6
    link.sendall(GET.replace(b"/echo", b"/echo?" + b"q" * (LINE_BYTES - 5)))
    refused(link, 431)


def test_h6_trailers_without_end_are_431(link: socket.socket) -> None:
    link.sendall(
        b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n"
    )
    for i in range(100):
        link.sendall(b"X-%d: %s\r\n" % (i, b"a" * 2000))
        time.sleep(0.001)
    refused(link, 431)


# Time of the head


def test_h15_a_head_that_drips_is_408_at_the_deadline(link: socket.socket) -> None:
    began = time.monotonic()
    link.sendall(b"GET /echo HTTP/1.1\r\nHost: x\r\nX: ")
    link.settimeout(0.1)
    with contextlib.suppress(OSError):
        while time.monotonic() - began < 10:
            link.sendall(b"a")
            with contextlib.suppress(TimeoutError):
                assert link.recv(12) == b"HTTP/1.1 408"
                break
    assert HEADER_SECONDS < time.monotonic() - began < LATE


def test_h15_a_head_cut_short_is_408_in_form(link: socket.socket) -> None:
    link.sendall(b"GET /echo HTTP/1.1\r\nHost: x\r\n")
    assert "within 0.5 s" in refused(link, 408)


def test_h15_a_connection_that_says_nothing_is_closed_without_a_word(link: socket.socket) -> None:
    began = time.monotonic()
    assert link.recv(1) == b""
    assert HEADER_SECONDS < time.monotonic() - began < LATE


def test_h15_empty_lines_do_not_keep_a_connection(link: socket.socket) -> None:
    reader = Reader(link)
    link.sendall(GET)
    reader.json()
    began = time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - began < 10:
            link.sendall(b"\r\n")
            link.settimeout(0.1)
            with contextlib.suppress(TimeoutError):
                assert link.recv(1) == b""
                break
    assert time.monotonic() - began < LATE


def test_h15_a_second_head_has_its_own_deadline_and_idling_has_none(link: socket.socket) -> None:
    reader = Reader(link)
    link.sendall(GET)
    reader.json()
    time.sleep(LATE)
    link.sendall(GET)
    assert reader.json()["path"] == "/echo"
    time.sleep(LATE)
    began = time.monotonic()
    link.sendall(GET[:-4])
    refused(link, 408)
    assert HEADER_SECONDS < time.monotonic() - began < LATE


def test_h15_a_body_that_drips_after_its_answer_ends_the_connection(link: socket.socket) -> None:
    link.sendall(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n")
    reader = Reader(link)
    assert reader.answer()[2] == b"early"
    began = time.monotonic()
    with contextlib.suppress(OSError):
        while time.monotonic() - began < 10:
            link.sendall(b"a")
            time.sleep(0.05)
    assert HEADER_SECONDS < time.monotonic() - began < LATE


def test_an_idle_connection_is_closed_after_the_keep_alive_time() -> None:
    with running(App(), keep_alive_seconds=1) as server, server.connect() as link:
        link.sendall(GET)
        reader = Reader(link)
        reader.json()
        began = time.monotonic()
        assert reader.rest() == b""
        assert 0.9 < time.monotonic() - began < 3


def test_a_slow_application_is_not_hurried(link: socket.socket, app: App) -> None:
    link.sendall(b"GET /held HTTP/1.1\r\nHost: x\r\n\r\nGET /ec")
    time.sleep(LATE)
    app.release.set()
    reader = Reader(link)
    assert reader.answer()[2] == b"held"
    link.sendall(b"ho HTTP/1.1\r\nHost: x\r\n\r\n")
    assert reader.json()["path"] == "/echo"


# Order and framing


def test_pipelined_requests_are_answered_in_order(link: socket.socket, app: App) -> None:
    post = b"POST /echo?%d HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc"
    link.sendall(GET.replace(b"echo", b"held") + b"".join(post % i for i in range(50)))
    time.sleep(0.05)
    app.release.set()
    reader = Reader(link)
    assert reader.answer()[2] == b"held"
    seen = [reader.json() for _ in range(50)]
    assert [s["query"] for s in seen] == [str(i) for i in range(50)]
    assert {s["body"] for s in seen} == {3}


def test_any_split_of_a_request_is_the_same_request(link: socket.socket) -> None:
    reader = Reader(link)
    data = b"POST /echo?a=%20b HTTP/1.1\r\nHost: x\r\nX-Y: z\r\nContent-Length: 4\r\n\r\nbody"
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for cut in range(1, len(data)):
        link.sendall(data[:cut])
        time.sleep(0.001)
        link.sendall(data[cut:])
        got = reader.json()
        assert (got["body"], got["query"], len(got["headers"])) == (4, "a=%20b", 3)
    for i in range(len(data)):
        link.sendall(data[i : i + 1])
    assert reader.json()["headers"][1] == ["x-y", "z"]


def test_expect_continue_is_answered_when_the_body_is_wanted(link: socket.socket) -> None:
    head = b"POST %s HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    reader = Reader(link)
    for _ in range(2):
        link.sendall(head % b"/echo")
        assert reader.answer()[0] == 100
        link.sendall(b"body")
        assert reader.json()["body"] == 4
    link.sendall(head % b"/early")
    assert reader.answer()[::2] == (200, b"early")


def test_a_chunked_body_is_read_and_its_trailers_are_no_headers(link: socket.socket) -> None:
    reader = Reader(link)
    for chunks in (b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n", b"5\r\nabcde\r\n0\r\nX-T: 1\r\n\r\n"):
        link.sendall(
            b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks
        )
        got = reader.json()
        assert got["body"] == 5
        assert [n for n, _ in got["headers"]] == ["host", "transfer-encoding"]


def test_a_head_request_has_the_length_and_no_body(link: socket.socket) -> None:
    reader = Reader(link)
    link.sendall(GET.replace(b"GET", b"HEAD") + GET)
    status, headers, _ = reader.answer(head_only=True)
    assert (status, int(headers["content-length"]) > 50) == (200, True)
    assert reader.json()["method"] == "GET"


def test_answers_of_unknown_length_and_of_none(link: socket.socket) -> None:
    reader = Reader(link)
    link.sendall(GET.replace(b"echo", b"stream") + GET.replace(b"echo", b"no_content") + GET)
    status, headers, body = reader.answer()
    assert (status, headers["transfer-encoding"], body) == (200, "chunked", b"abc")
    status, headers, _ = reader.answer()
    assert (status, headers.keys()) == (204, {"date"})
    assert reader.json()["path"] == "/echo"
    link.sendall(b"GET /stream HTTP/1.0\r\n\r\n")
    status, headers, body = reader.answer()
    assert (headers["connection"], body) == ("close", b"abc")
    assert "transfer-encoding" not in headers


@pytest.mark.parametrize(
    "head",
    [b"GET /echo HTTP/1.0\r\n\r\n", GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")],
)
def test_a_client_that_wants_no_more_is_closed_on(link: socket.socket, head: bytes) -> None:
    link.sendall(head)
    reader = Reader(link)
    assert reader.answer()[1]["connection"] == "close"
    assert reader.rest() == b""


def test_an_upgrade_is_ignored_and_its_body_is_not(link: socket.socket) -> None:
    """curl --http2 and Java's client ask for h2c with every request."""
    upgrade = b"Host: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
    reader = Reader(link)
    post = b"POST /echo HTTP/1.1\r\n" + upgrade + b"Content-Length: 5\r\n\r\n"
    get = b"GET /echo HTTP/1.1\r\n" + upgrade + b"\r\n"
    link.sendall(post + b"hello" + get * 3 + post)
    assert [reader.json()["body"] for _ in range(4)] == [5, 0, 0, 0]
    time.sleep(0.02)
    link.sendall(b"he")
    time.sleep(0.02)
    link.sendall(b"llo" + GET)
    assert reader.json()["body"] == 5
    assert reader.json()["method"] == "GET"
    chunked = post.replace(b"Content-Length: 5", b"Transfer-Encoding: chunked")
    link.sendall(chunked + b"5\r\nhello\r\n0\r\n\r\n" + GET)
    assert reader.json()["body"] == 5
    assert reader.json()["method"] == "GET"


@pytest.mark.parametrize(
    "data",
    [b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
     b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
     b"0\r\n\r\n",
     b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
     b"0\r\n\r\n",
     b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: identity, x\r\n\r\n",
     b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length : 5\r\n\r\nhello",
     b"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
     b"GET /echo HTTP/1.1\r\nHost: x\r\nX: a\r\n folded\r\n\r\n",
     b"GET /echo HTTP/1.1\r\nHost: x\r\nX: a\x00b\r\n\r\n",
     b"GET /echo HTTP/1.1\r\nHost: x\r\nX\x00: a\r\n\r\n",
     b"GET /ec\x00ho HTTP/1.1\r\nHost: x\r\n\r\n",
     b"GET /ech\xff HTTP/1.1\r\nHost: x\r\n\r\n",
     b"GET /echo\r\n\r\n",
     b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n",
     b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
     b"NONSENSE\r\n\r\n",
     b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
)  # fmt: skip
def test_what_is_no_http_is_400_and_the_end(link: socket.socket, data: bytes) -> None:
    link.sendall(data)
    refused(link, 400)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("lines", ["", "Host: x\r\n", "Host: x\r\nhost: x\r\n", "X-Host: x\r\n"])
def test_http_1_1_has_one_host_and_none_has_two(
    link: socket.socket, version: str, lines: str
) -> None:
    link.sendall(f"GET /echo HTTP/{version}\r\nA: b\r\n{lines}\r\n".encode())
    hosts = lines.lower().count("\r\nhost:") + lines.lower().startswith("host:")
    if hosts == 1 or (hosts == 0 and version == "1.0"):
        assert Reader(link).json()["path"] == "/echo"
    else:
        assert "Host" in refused(link, 400)


def test_a_host_is_counted_for_each_request_and_not_in_trailers(link: socket.socket) -> None:
    chunked = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    link.sendall(GET + chunked + b"Host: y\r\n\r\n" + GET)
    reader = Reader(link)
    assert [reader.json()["method"] for _ in range(3)] == ["GET", "POST", "GET"]
    link.sendall(GET.replace(b"Host: x\r\n", b""))
    refused(link, 400)


def test_nonsense_behind_a_request_is_never_taken_for_its_answer(
    link: socket.socket, app: App
) -> None:
    link.sendall(GET.replace(b"echo", b"held") + GET + b"\x00\x00nonsense\r\n\r\n")
    time.sleep(0.05)
    link.sendall(GET * 3)
    app.release.set()
    reader = Reader(link)
    assert reader.answer()[2] == b"held"
    assert reader.json()["path"] == "/echo"
    assert reader.rest() == b""


def test_a_broken_body_is_400_and_its_application_hears_that_the_client_left(
    link: socket.socket, app: App
) -> None:
    head = b"POST /watched HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    link.sendall(head + b"3\r\nabc\r\nnonsense")
    refused(link, 400)
    until(lambda: app.events == ["left"])


def test_a_broken_body_of_a_queued_request_ends_after_those_before(
    link: socket.socket, app: App
) -> None:
    broken = b"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nnonsense"
    link.sendall(GET.replace(b"echo", b"held") + broken)
    time.sleep(0.05)
    app.release.set()
    reader = Reader(link)
    _, headers, body = reader.answer()
    assert (headers["connection"], body) == ("close", b"held")
    assert reader.rest() == b""


# What the application does


@pytest.mark.parametrize("path", [b"raises", b"silent", b"too_long", b"injects"])
def test_an_application_that_fails_is_500(link: socket.socket, path: bytes) -> None:
    link.sendall(GET.replace(b"echo", path))
    assert "internal" in refused(link, 500)


def test_an_answer_that_fails_on_its_way_does_not_look_whole(link: socket.socket) -> None:
    link.sendall(GET.replace(b"echo", b"raises_late"))
    got = Reader(link).rest()
    assert got.endswith(b"5\r\nfirst\r\n")
    with contextlib.closing(socket.create_connection(link.getpeername())) as other:
        other.sendall(GET.replace(b"echo", b"too_short"))
        assert Reader(other).rest().endswith(b"\r\n\r\n12")


def test_every_waiting_application_hears_that_its_client_left(
    link: socket.socket, app: App
) -> None:
    link.sendall(GET.replace(b"echo", b"watched"))
    time.sleep(0.1)
    assert app.events == []
    link.close()
    until(lambda: app.events == ["left"])


def test_a_refused_upload_can_read_why(link: socket.socket) -> None:
    link.sendall(b"POST /early/close HTTP/1.1\r\nHost: x\r\nContent-Length: 50000000\r\n\r\n")
    for _ in range(50):
        link.sendall(bytes(1_000_000))
    reader = Reader(link)
    assert reader.answer()[::2] == (413, b"early")
    assert reader.rest() == b""


def test_an_upload_that_nobody_reads_stops_at_the_high_water_mark(
    link: socket.socket, app: App
) -> None:
    link.sendall(b"POST /held HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
    link.settimeout(1)
    with pytest.raises(TimeoutError):
        link.sendall(bytes(100_000_000))
    # By type: isinstance asks every object for its class, and torch has one that warns of it.
    pending = [o.pending for o in gc.get_objects() if type(o) is HttpCycle]
    assert 2**18 < max(pending) < 2**20
    app.release.set()


def test_a_client_that_reads_nothing_holds_up_only_itself_and_not_forever() -> None:
    app = App()
    with running(app, keep_alive_seconds=1) as server, server.connect() as link:
        link.sendall(GET.replace(b"echo", b"large"))
        time.sleep(0.5)
        sent = app.events.count("sent")
        assert sent < 32
        with server.connect() as other:
            other.sendall(GET)
            assert Reader(other).json()["path"] == "/echo"
        until(lambda: "over" in app.events)
        until(lambda: server.connections == 0)


@pytest.mark.parametrize("path", [b"large", b"whole"])
def test_a_client_that_reads_slowly_gets_everything(path: bytes) -> None:
    with running(App(), keep_alive_seconds=1) as server, server.connect() as link:
        link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**20)
        link.sendall(GET.replace(b"echo", path))
        size = 0
        while size < 2**26:
            part = link.recv(2**20)
            assert part
            size += len(part)
            time.sleep(0.06)


# The server as a whole


def test_two_servers_share_a_loop_and_stop_on_their_own() -> None:
    class Named(App):
        async def who(self, scope: Any, receive: Any, send: Any) -> None:
            await answer(send, str(id(self)).encode())

    apps = (Named(), Named())
    with running(*apps) as server:
        for index, app in enumerate(apps):
            with server.connect(index) as link:
                link.sendall(GET.replace(b"echo", b"who"))
                assert Reader(link).answer()[2] == str(id(app)).encode()
        server.servers[0].should_exit = True
        until(lambda: not server.servers[0].server_state.connections)
        with server.connect(1) as link:
            link.sendall(GET)
            assert Reader(link).json()["path"] == "/echo"


def test_stopping_lets_an_answer_finish_and_closes_the_rest() -> None:
    app = App()
    with running(app) as server, server.connect() as busy, server.connect() as idle:
        busy.sendall(GET.replace(b"echo", b"held"))
        idle.sendall(GET)
        reader = Reader(idle)
        reader.json()
        server.servers[0].should_exit = True
        assert reader.rest() == b""
        app.release.set()
        _, headers, body = Reader(busy).answer()
        assert (headers["connection"], body) == ("close", b"held")
    assert server.connections == 0


def test_requests_and_connections_leave_nothing_for_the_collector(server: Running) -> None:
    def there() -> list[Any]:
        return [o for o in gc.get_objects() if type(o) in (HttpCycle, HttpProtocol)]

    gc.collect()
    of_other_tests = there()
    link = server.connect()  # not before: looking through all objects takes a while
    reader = Reader(link)
    gc.disable()
    try:
        for _ in range(200):
            link.sendall(GET)
            reader.json()
            with server.connect() as other:
                other.sendall(GET)
                Reader(other).json()
        until(lambda: server.connections == 1)
        known = set(map(id, of_other_tests))
        kept = [type(o).__name__ for o in there() if id(o) not in known]
    finally:
        gc.enable()
        link.close()
    assert kept.count("HttpProtocol") <= 1  # the link's own may have been there before
    assert kept.count("HttpCycle") == 1
