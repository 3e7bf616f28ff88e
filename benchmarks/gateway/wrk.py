"""wrk, the one client of every contender."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

_SCRIPT = Path(__file__).with_name("wrk.lua")
_TIMEOUT_SECONDS = 20


def require() -> str:
    """Return wrk's version; end with exit code 5 where it is not installed."""
    if shutil.which("wrk") is None:
        print("wrk is not installed: apt-get install -y wrk (or brew install wrk)", file=sys.stderr)
        raise SystemExit(5)
    done = subprocess.run(["wrk", "--version"], capture_output=True, text=True, check=False)
    return done.stdout.split(" [")[0].splitlines()[0].removeprefix("wrk ")


def load(
    url: str, bodies: Path, *, connections: int, seconds: int, count: bool = False
) -> dict[str, Any]:
    """Post ``bodies`` in turn over ``connections`` for ``seconds``; see wrk.lua for what is said.

    One thread: the machine's other cores are for the contender.
    """
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", f"--timeout={_TIMEOUT_SECONDS}s"]
    command += ["-s", str(_SCRIPT), url, "--", str(bodies), *(["count"] if count else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout.strip():
        raise SystemExit(f"wrk failed: {done.stderr.strip() or done.stdout.strip()}")
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    found["rps"] = found["requests"] / found["seconds"]
    found["errors"] = found["bad_status"] + found["socket_errors"] + found["timeouts"]
    return found
