"""A small server that speaks as much of the hub's API as huggingface_hub asks for."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "1234567890abcdef1234567890abcdef12345678"
PREFIX = "/org/tiny"


class Hub(ThreadingHTTPServer):
    """One repository, ``org/tiny``: the files of ``folder``."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.fetched: list[str] = []
        self.claimed: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        path = self.path.split("?")[0]
        for revision in ("", "/revision/main", "/revision/v1.0", f"/revision/{COMMIT}"):
            if path == f"/api/models{PREFIX}{revision}":
                return self._info()
        if path == f"/api/models{PREFIX}/tree/{COMMIT}":
            return self._tree()
        for revision in ("main", "v1.0", COMMIT):
            if path.startswith(head := f"{PREFIX}/resolve/{revision}/"):
                return self._file(path.removeprefix(head))
        code = "RevisionNotFound" if path.startswith(f"/api/models{PREFIX}/") else "RepoNotFound"
        return self._send(404, b"", {"X-Error-Code": code})

    def _info(self) -> None:
        files = sorted(p.name for p in self.server.folder.iterdir()) + self.server.claimed
        body = {
            "id": "org/tiny",
            "sha": COMMIT,
            "siblings": [{"rfilename": name} for name in files],
            "private": False,
            "tags": [],
        }
        self._send(200, json.dumps(body).encode(), {"Content-Type": "application/json"})

    def _tree(self) -> None:
        entries = [
            {"type": "file", "oid": "0" * 40, "size": p.stat().st_size, "path": p.name}
            for p in sorted(self.server.folder.iterdir())
        ]
        self._send(200, json.dumps(entries).encode(), {"Content-Type": "application/json"})

    def _file(self, name: str) -> None:
        data = (self.server.folder / name).read_bytes()
        if self.command == "GET":
            self.server.fetched.append(name)
        tag = hashlib.sha256(data).hexdigest()
        self._send(200, data, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def running_hub(folder: Path) -> Iterator[Hub]:
    """Serve ``folder`` as ``org/tiny``."""
    server = Hub(folder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def environment_of(url: str, cache: Path) -> dict[str, str]:
    """What a process needs to fetch from there: the library reads its settings once."""
    kept = {k: v for k, v in os.environ.items() if k != "HF_HUB_OFFLINE"}
    return kept | {"HF_ENDPOINT": url, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1"}
