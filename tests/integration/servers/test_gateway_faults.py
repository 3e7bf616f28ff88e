"""The fault cases of the gateway, against real server processes."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import requests
from running_server import Server, Starter, command

X = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
KEY = "k3y-of-the-test-0123456789"


def steps(count: int) -> dict[str, Any]:
    return {"name": "steps", "datatype": "INT64", "shape": [1], "data": [count]}


def rounds_for(server: Server, seconds: float) -> int:
    """How many rounds of the slow model take about ``seconds`` here and now."""
    began = time.monotonic()
    assert server.infer("slow", X, steps(100_000)).ok
    return int(100_000 * seconds / (time.monotonic() - began))


def raw(server: Server, data: bytes, seconds: float = 10) -> bytes:
    """Send bytes as they are and return all that comes back until the server closes."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=seconds) as link:
        link.sendall(data)
        got = b""
        try:
            while part := link.recv(65536):
                got += part
        except (TimeoutError, ConnectionResetError):
            pass
    return got


@pytest.mark.parametrize(
    "name",
    ["..%2Fx", "../x", "%2e%2e/%2e%2e/etc/passwd", "a/b", "%00", "mlp%00", "m" * 10_000,
     "ml%D1%80", "MLP", "mlp%20", "%F0%9F%92%A9", "%ff", "{model}"],
)  # fmt: skip
def test_h1_odd_model_names_are_404_or_400(server: Server, name: str) -> None:
    for method, suffix in (("GET", ""), ("GET", "/ready"), ("POST", "/infer")):
        head = f"{method} /v2/models/{name}{suffix} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        reply = raw(server, head.encode() + b"Content-Length: 2\r\n\r\n{}")
        status = int(reply.split(b" ", 2)[1])
        assert status in (400, 404, 405), (name[:40], method, reply[:200])
        assert len(reply) < 2000


def test_h6_a_body_over_the_limit_is_413(server: Server) -> None:
    url = "/v2/models/floats/infer"
    assert server.post(url, data=b"x" * (3 * 2**20)).status_code == 413
    headers = {"Inference-Header-Content-Length": "100"}
    assert server.post(url, data=b"x" * (25 * 2**20), headers=headers).status_code == 413
    headers = {"Inference-Header-Content-Length": str(3 * 2**20)}
    assert server.post(url, data=b"x" * (4 * 2**20), headers=headers).status_code == 413
    assert server.get("/livez").ok


def test_h6_a_chunked_body_over_the_limit_is_413(server: Server) -> None:
    def chunks() -> Any:
        for _ in range(48):
            yield b"x" * 65536

    for path in ("/v2/models/mlp/infer", "/v1/embeddings"):
        assert server.post(path, data=chunks()).status_code == 413


@pytest.mark.parametrize("length", ["-5", "5, 6", "0x10", "1_0", "9" * 30, "+5"])
def test_h6_an_impossible_content_length_is_refused(server: Server, length: str) -> None:
    head = (
        "POST /v2/models/mlp/infer HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Content-Length: {length}\r\n\r\n{{}}"
    )
    reply = raw(server, head.encode())
    assert reply.split(b" ", 2)[1] in (b"400", b"413"), reply[:200]


def test_h6_expect_continue_over_the_limit_is_told_before_the_body(server: Server) -> None:
    head = (
        "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
        "Content-Length: 90000000\r\n\r\n"
    )
    began = time.monotonic()
    assert raw(server, head.encode()).split(b" ", 2)[1] == b"413"
    assert time.monotonic() - began < 3


def test_h19_ten_thousand_junk_names_make_one_series(server: Server) -> None:
    with requests.Session() as session:
        for i in range(300):
            session.post(f"{server.url}/v2/models/junk{i}/infer", data=b"{}", timeout=10)
            session.get(f"{server.url}/junk/{i}", timeout=10)
            session.get(f"{server.url}/v2/models/junk{i}", timeout=10)
            body = {"model": f"junk{i}", "input": "x"}
            session.post(f"{server.url}/v1/embeddings", json=body, timeout=10)
        session.request("BREW", f"{server.url}/livez", timeout=10)
    text = server.get("/metrics").text
    assert "junk" not in text
    assert "BREW" not in text
    counts = re.findall(r'request_duration_seconds_count\{model="other",route="([^"]+)"', text)
    assert len(counts) == len(set(counts)) or len(counts) < 40
    known = {"other", "/livez", "/readyz", "/metrics"}
    assert all(r in known or r.startswith(("/v1/", "/v2")) for r in counts), counts


@pytest.mark.parametrize("given", ["a" * 129, "a\tb", "a b", "é", "{}", 'x"y', "x\\ny", ""])
def test_h20_a_bad_request_id_is_replaced(server: Server, given: str) -> None:
    reply = server.get("/livez", headers={"X-Request-Id": given.encode()})
    assert re.fullmatch(r"[0-9a-f]{32}", reply.headers["X-Request-Id"])


def test_h20_a_good_request_id_is_echoed_everywhere(server: Server) -> None:
    headers = {"X-Request-Id": "job-7:a.B_c"}
    for path in ("/livez", "/v2/models/nope", "/nope"):
        assert server.get(path, headers=headers).headers["X-Request-Id"] == "job-7:a.B_c"
    reply = server.post("/v2/models/mlp/infer", json={"inputs": [X]}, headers=headers)
    assert reply.headers["X-Request-Id"] == "job-7:a.B_c"


def test_h20_a_megabyte_of_request_id_harms_nobody(server: Server) -> None:
    head = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Request-Id: "
    reply = raw(server, head + b"a" * 2**20 + b"\r\n\r\n")
    assert len(reply) < 2000
    assert server.get("/livez").ok


def test_a_native_failure_is_an_error_and_the_model_lives_on(server: Server) -> None:
    def shape(*sizes: int) -> dict[str, Any]:
        return {"name": "shape", "datatype": "INT64", "shape": [2], "data": list(sizes)}

    reply = server.infer("breakable", X, shape(1, 4))
    assert reply.status_code == 502, reply.text
    assert "onnxruntime" in reply.json()["error"]
    assert server.infer("breakable", X, shape(1, 1)).ok
    assert server.get("/readyz").ok


def test_s21_one_bad_request_of_eight_harms_no_other(server: Server) -> None:
    bad = {**X, "shape": [1, 5], "data": [1, 2, 3, 4, 5]}
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda i: server.infer("mlp", bad if i == 3 else X), range(8)))
    assert [r.status_code for r in replies] == [400 if i == 3 else 200 for i in range(8)]


def test_other_methods_and_paths_answer_in_form(server: Server) -> None:
    reply = server.get("/v2/models/mlp/infer")
    assert reply.status_code == 405
    assert reply.headers["Allow"] == "POST"
    assert server.get("/v1/nope").json()["error"]["type"] == "invalid_request_error"
    assert "error" in server.get("/v2/nope").json()
    assert requests.head(server.url + "/readyz", timeout=10).status_code == 200


def test_pages_are_whole_and_load_nothing_from_elsewhere(server: Server) -> None:
    for path in ("/", "/docs"):
        page = server.get(path)
        assert page.ok
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert not re.search(r'(?:src|href)="(?:https?:)?//', page.text)
        for script in re.findall(r'<script src="([^"]+)"', page.text):
            assert server.get(script).ok
    paths = server.get("/openapi.json").json()["paths"]
    assert {"/v1/embeddings", "/v2/models/{model}/infer", "/readyz"} <= set(paths)


def test_every_documented_route_is_there_and_answers_as_documented(server: Server) -> None:
    paths = server.get("/openapi.json").json()["paths"]
    for path, methods in paths.items():
        for method, operation in methods.items():
            target = path.format(model="mlp", version=1)
            reply = requests.request(method, server.url + target, timeout=10)
            assert str(reply.status_code) in operation["responses"], (method, path)
            assert reply.status_code in (200, 400), (method, path)
            kind = reply.headers["Content-Type"].split(";")[0]
            if reply.ok:
                assert kind in operation["responses"]["200"]["content"], path
    # Only the path names a version.
    named = server.get("/v2/models/mlp?version=9")
    assert named.ok


def test_h9_h10_every_route_but_two_needs_a_right_key(
    starter: Starter, zoo: dict[str, Path]
) -> None:
    server = starter(str(zoo["mlp"]), env={"MODELOPS_API_KEYS": f"other-key-1234,{KEY}"})
    good = {"Authorization": f"Bearer {KEY}"}
    paths = ["/", "/docs", "/openapi.json", "/metrics", "/v2", "/v2/models/mlp", "/v1/models",
             "/v2/health/ready", "/v2/models/mlp/infer", "/v1/embeddings", "/nope", "/livez/",
             "/readyz/../v2", "//livez", "/assets/index.js"]  # fmt: skip
    for path in paths:
        for method in ("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
            reply = requests.request(method, server.url + path, timeout=10)
            assert reply.status_code == 401, (method, path)
            assert reply.headers["WWW-Authenticate"] == "Bearer"
    for path in ("/livez", "/readyz"):
        assert server.get(path).ok
    wrong = [KEY[:-1], KEY + "x", KEY.upper(), "", " ", f"{KEY},{KEY}", "é"]
    headers = [{"Authorization": f"Bearer {k}".encode()} for k in wrong]
    headers += [
        {"Authorization": KEY},
        {"Authorization": f"Basic {KEY}"},
        {"X-Api-Key": KEY},
        {"Cookie": f"Authorization=Bearer {KEY}"},
    ]
    for one in headers:
        assert server.get("/v2", headers=one).status_code == 401, one
    assert server.get(f"/v2?api_key={KEY}").status_code == 401
    assert server.get("/v2", headers=good).ok
    assert server.post("/v2/models/mlp/infer", json={"inputs": [X]}, headers=good).ok
    twice = (
        f"GET /v2 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer no\r\nAuthorization: Bearer {KEY}"
    )
    assert raw(server, twice.encode() + b"\r\nConnection: close\r\n\r\n").split()[1] == b"401"
    assert KEY not in json.dumps(server.ready)
    assert KEY not in "".join(server.log)


@pytest.mark.parametrize("host", ["x/?", "x/livez?", "127.0.0.1/livez#", "[::1]:0", ""])
def test_h8_no_host_header_opens_anything(
    starter: Starter, zoo: dict[str, Path], host: str
) -> None:
    server = starter(str(zoo["mlp"]), "--api-key", KEY)
    for path in ("/v2", "/metrics", "http://x/livez/../v2", "http://x/v2?/livez"):
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        reply = raw(server, head.encode())
        assert reply.split(b" ", 2)[1] in (b"400", b"401", b"404"), reply[:100]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--host", "0.0.0.0"), 2, "API key"),
        (("--host", "::"), 2, "API key"),
        (("--api-key", "short"), 2, "8 printable"),
        (("--provider", "gpu"), 2, "provider"),
        (("--engine", "nope"), 2, "nope"),
        (("--provider", "cuda"), 5, "cuda"),
        (("--provider", "tensorrt"), 5, "tensorrt"),
        (("--host", "203.0.113.7", "--api-key", KEY), 5, "--host"),
        (("--threads", "0"), 2, "threads"),
        (("--max-body-mb", "0"), 2, "max-body-mb"),
        (("--name", "a/b"), 2, "a/b"),
        (("--name", "a", "--name", "b"), 2, "names"),
    ],
)
def test_what_cannot_be_meant_or_done_ends_with_its_code(
    zoo: dict[str, Path], arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = subprocess.run(
        command(str(zoo["mlp"]), "--port", "0", *arguments),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert "short" not in done.stderr or "--api-key" not in arguments


def test_a_port_in_use_is_told_at_once(zoo: dict[str, Path], server: Server) -> None:
    done = subprocess.run(
        command(str(zoo["mlp"]), "--port", str(server.port)),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 5
    assert "--port 0" in done.stderr
    assert "loading" not in done.stderr


def test_a6_an_altered_artifact_is_not_served(starter: Starter, tmp_path: Path) -> None:
    from fake_artifacts import make_artifact

    path = make_artifact(tmp_path / "mlp").path
    model = path / "model.onnx"
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    model.write_bytes(data)
    done = subprocess.run(
        command(str(path), "--port", "0"), capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 4, done.stderr
    assert "model.onnx" in done.stderr


def test_s20_sigterm_drains_with_ready_503(starter: Starter, zoo: dict[str, Path]) -> None:
    server = starter(str(zoo["slow"]))
    count = rounds_for(server, 2.0)
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(server.infer, "slow", X, steps(count)) for _ in range(2)]
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        ready = server.get("/readyz")
        assert ready.status_code == 503
        assert ready.json()["models"][0]["state"] == "stopping"
        assert server.get("/livez").ok
        refused = server.infer("slow", X, steps(1))
        assert refused.status_code == 503
        assert int(refused.headers["Retry-After"]) >= 1
        assert [a.result().status_code for a in answers] == [200, 200]
    assert server.process.wait(timeout=10) == 0


def test_s20_the_drain_has_an_end_and_a_second_signal_ends_at_once(
    starter: Starter, zoo: dict[str, Path]
) -> None:
    server = starter(str(zoo["slow"]), "--drain-seconds", "0.5")
    count = rounds_for(server, 20)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(server.infer, "slow", X, steps(count))
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        assert answer.result().status_code == 503
        began = time.monotonic()
        assert server.process.wait(timeout=10) == 0
        assert time.monotonic() - began < 8
    server = starter(str(zoo["slow"]))
    thread = threading.Thread(target=lambda: _ignore(server, steps(count)), daemon=True)
    thread.start()
    time.sleep(0.5)
    server.process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    assert server.process.poll() is None
    began = time.monotonic()
    server.process.send_signal(signal.SIGINT)
    assert server.process.wait(timeout=5) == 128 + signal.SIGINT
    assert time.monotonic() - began < 1
    thread.join(5)


def _ignore(server: Server, count: dict[str, Any]) -> None:
    try:
        server.infer("slow", X, count)
    except requests.ConnectionError:
        return


def test_a_full_queue_is_503_with_retry_after_and_readiness_stays(
    starter: Starter, zoo: dict[str, Path]
) -> None:
    server = starter(str(zoo["slow"]), "--max-queue", "2")
    count = rounds_for(server, 0.6)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(server.infer, "slow", X, steps(count)) for _ in range(8)]
        time.sleep(0.3)
        assert server.get("/readyz").ok
        replies = [a.result() for a in answers]
    codes = [r.status_code for r in replies]
    assert codes.count(200) == 3
    assert codes.count(503) == 5
    assert all(int(r.headers["Retry-After"]) >= 1 for r in replies if r.status_code == 503)
    text = server.get("/metrics").text
    assert 'modelops_rejected_total{model="slow",reason="queue_full"} 5.0' in text
    assert server.stop() == 0


def test_s1_a_client_that_left_costs_no_inference(starter: Starter, zoo: dict[str, Path]) -> None:
    server = starter(str(zoo["slow"]))
    count = rounds_for(server, 1.0)
    body = json.dumps({"inputs": [X, steps(count)]})
    head = f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
    links = []
    for _ in range(6):
        link = socket.create_connection(("127.0.0.1", server.port))
        link.sendall((head + body).encode())
        links.append(link)
    time.sleep(0.3)
    for link in links:
        link.close()
    began = time.monotonic()
    assert server.infer("slow", X, steps(1)).ok
    # Only the one that was already in the runtime had to be waited for.
    assert time.monotonic() - began < 3
    model = server.get("/readyz").json()["models"][0]
    assert model["in_flight"] == 0
