"""The server: what is answered where, how many at once, and what is told of itself."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Sequence
from urllib.parse import unquote, urlsplit

from modelops_loadtests.client.clock import KernelClock
from modelops_loadtests.mock.asked import (
    BadRequestError,
    read_asked,
    read_json,
    texts_of,
    tokenize,
)
from modelops_loadtests.mock.connection import Connection, Request
from modelops_loadtests.mock.exchange import Exchange
from modelops_loadtests.mock.metrics import exposition
from modelops_loadtests.mock.script import Script
from modelops_loadtests.mock.stamps import Ledger
from modelops_loadtests.mock.whole import Whole, error_reply, json_reply, metadata
from modelops_loadtests.mock.wire import Listener

_CONTEXT = 8192
_OPEN = ("/stamps", "/arrivals", "/metrics", "/health", "/livez", "/readyz")
_TEXTS = {"/v1/chat/completions": True, "/v1/completions": False}


class Server:
    """One mock; ``key``, where given, is asked of every request for the models."""

    def __init__(self, script: Script, models: Sequence[str], key: str | None = None) -> None:
        self.script = script
        self.models = tuple(models)
        self.ledger = Ledger()
        self.running: dict[int, Exchange] = {}
        self.waiting: deque[Exchange] = deque()
        self.died = asyncio.Event()
        """Set in the middle of the request at which the script ends the process."""
        self.clock = KernelClock()
        self._key = key

    def listen(self, host: str, port: int) -> Listener:
        """Open the port; 0 is any."""
        return Listener(host, port, self._connected)

    def _connected(self, sock: socket.socket) -> None:
        Connection(self, sock)  # the loop keeps it while the socket is open

    def answer(self, connection: Connection, request: Request) -> None:
        """Answer one request, now or as the script has it."""
        path = urlsplit(request.path).path
        authorized = request.headers.get("authorization") == f"Bearer {self._key}"
        if self._key and path not in _OPEN and not authorized:
            connection.reply(error_reply(401, "no such key"))
            return
        try:
            if request.method == "POST" and path != "/tokenize":
                self._scripted(connection, request, path)
            else:
                connection.reply(self._page(request, path))
        except BadRequestError as error:
            connection.reply(error_reply(400, str(error)))

    def _scripted(self, connection: Connection, request: Request, path: str) -> None:
        if path in _TEXTS:
            asked = read_asked(request.body, self.models[0], chat=_TEXTS[path])
        elif path == "/v1/embeddings" or (path.startswith("/v2/") and path.endswith("/infer")):
            asked = None
        else:
            connection.reply(error_reply(404, "not here"))
            return
        most = self.script.dies_after
        if most and self.ledger.count >= most:
            self.died.set()
            return
        Exchange(self, connection, request, asked).enter()

    def _page(self, request: Request, path: str) -> Whole:
        what = (request.method, path)
        if what == ("POST", "/tokenize"):
            tokens = tokenize(" ".join(texts_of(read_json(request.body))))
            told = {"count": len(tokens), "max_model_len": _CONTEXT, "tokens": tokens}
            return json_reply(200, told)
        if what == ("DELETE", "/stamps"):
            self.ledger.forget()
            return json_reply(200, {})
        if request.method != "GET":
            return error_reply(405, "not with this method")
        return self._shown(path)

    def _shown(self, path: str) -> Whole:
        if path == "/v1/models":
            listed = [{"id": name, "object": "model", "owned_by": "mock"} for name in self.models]
            return json_reply(200, {"object": "list", "data": listed})
        if path == "/stamps":
            return json_reply(200, self.ledger.stamps())
        if path == "/arrivals":
            return json_reply(200, self.ledger.arrivals())
        if path == "/metrics":
            return Whole(200, exposition(self), {"content-type": "text/plain; version=0.0.4"})
        if path in _OPEN:
            return json_reply(200, {})
        model, _, rest = path.removeprefix("/v2/models/").partition("/")
        known = path.startswith("/v2/models/") and unquote(model) in self.models
        if known and rest in ("", "ready"):
            return json_reply(200, {} if rest else metadata(unquote(model)))
        return error_reply(404, "not here")
