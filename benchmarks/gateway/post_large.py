"""A client of its own that posts one large body each second until it is told to stop.

Not more often: a server that needs most of a second for it would never be free of it, and the
probe would measure a queue without end.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gateway.bodies import Body
from gateway.connection import Connection
from gateway.contenders import BENCHMARKS

_EVERY_SECONDS = 1.0


@contextlib.contextmanager
def posting(url: str, path: str, file: Path) -> Iterator[dict[str, Any]]:
    """Post the JSON in ``file`` meanwhile; the mapping then says how it went."""
    command = [sys.executable, "-m", "gateway.post_large", url, path, str(file)]
    told: dict[str, Any] = {}
    with subprocess.Popen(
        command, cwd=BENCHMARKS, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield told
        finally:
            said, _ = child.communicate()
            told |= json.loads(said)


def main() -> None:
    url, path, file = sys.argv[1:]
    body = Body(Path(file).read_bytes())
    stop = threading.Event()

    def wait_for_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_end, daemon=True).start()
    print("started", flush=True)
    taken: list[float] = []
    failed = 0
    with Connection(url) as connection:
        while not stop.is_set():
            began = time.perf_counter()
            status, _ = connection.ask(path, body)
            took = time.perf_counter() - began
            failed += status != 200
            taken.append(took)
            stop.wait(_EVERY_SECONDS - took)
    told = {"answered": len(taken) - failed, "failed": failed, "ms": statistics.median(taken) * 1e3}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
