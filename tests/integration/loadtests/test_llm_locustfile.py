"""Plain locust with ``loadtests/llm.py``, and with a file of a user's own."""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from modelops_loadtests.mock import MockServer, Script

pytestmark = pytest.mark.slow
LLM = Path(__file__).parents[3] / "loadtests" / "llm.py"
TTFT, TPOT = "TTFT", "TPOT"
OWN = """
import orjson
from modelops_loadtests.client.request import Request
from modelops_loadtests.options import add_options
from modelops_loadtests.scenarios.scenario import Settings
from modelops_loadtests.spans import Span
from modelops_loadtests.users import CompletionUser, MixUser
from locust import events

SETTINGS = Settings("mock", output_tokens=Span(low=4, high=4))


class Own(CompletionUser):
    settings = SETTINGS

    def after(self, sent):
        assert sent.sample.output_tokens == 4, sent.sample


class Mixed(MixUser):
    settings = SETTINGS
    weights = {"chat": 1, "embeddings": 1}
"""


def locust(file: Path, url: str, *more: str) -> list[str]:
    return [*(sys.executable, "-m", "locust", "-f", str(file), "--host", url), *more]


def rows(printed: str) -> dict[str, list[float]]:
    """Read locust's last table: requests, failures, average, least, most and median."""
    table = printed.rpartition("# reqs      # fails")[2].partition("Response time percentiles")[0]
    found = {}
    for line in table.splitlines():
        if match := re.match(r"(?:POST|chat)? +(.+?) {2,}(\d+) +(\d+)\(.*?\) \|([ \d]+)\|", line):
            found[match[1]] = [float(x) for x in (match[2], match[3], *match[4].split())]
    return found


def test_streams_that_break_are_counted_and_token_times_stay_out_of_the_totals(
    tmp_path: Path,
) -> None:
    script = Script(tokens=10, ttft_ms=40, interval_ms=8, fault="cut", fault_after=4, fault_every=3)
    with MockServer(script, key="k") as server:
        done = subprocess.run(
            locust(
                *(LLM, server.url, "--headless", "-u", "3", "-r", "3", "-t", "6s"),
                *("--api-key", "k", "--exit-code-on-error", "0"),
            ),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        sent = len(server.arrivals())
    assert done.returncode == 0, done.stderr
    found = rows(done.stdout + done.stderr)
    assert set(found) == {"chat", TTFT, TPOT, "Aggregated"}
    requests, failures = found["chat"][:2]
    assert requests > 6
    assert 0 <= sent - requests <= 3  # those that the end of the run cut
    assert failures == pytest.approx(requests / 3, abs=2)
    assert found["Aggregated"][0] == requests
    assert found[TTFT][0] == requests - failures
    assert 38 <= found[TTFT][5] < 300
    assert 7 <= found[TPOT][5] < 100
    assert "unfinished" in done.stdout + done.stderr


def ask(port: int, path: str) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


def test_the_web_page_shows_a_users_own_classes(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(OWN)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with MockServer(Script(interval_ms=2)) as server:
        process = subprocess.Popen(
            locust(
                *(file, server.url, "--autostart", "-u", "2", "-r", "2"),
                *("--web-port", str(port), "--web-host", "127.0.0.1"),
            ),
            cwd=tmp_path,
            stderr=subprocess.PIPE,
        )
        found: dict[tuple[str, str], Any] = {}
        wanted = {("POST", n) for n in ("completion", "chat", "embeddings")}
        try:
            deadline = time.monotonic() + 30
            while not wanted <= found.keys() and time.monotonic() < deadline:
                time.sleep(0.2)
                with contextlib.suppress(ConnectionRefusedError):
                    told = ask(port, "/stats/requests")
                    found = {(row["method"], row["name"]): row for row in told["stats"]}
        finally:
            process.terminate()
            _, said = process.communicate(timeout=20)
    assert wanted <= found.keys()
    assert ("completion", TTFT) in found
    assert ("chat", TPOT) in found
    assert not told["errors"]
    assert b"Traceback" not in said
