"""Which model is meant, by what the server says of its models."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

import pytest

from modelops.errors import MeasurementError, ModelNotFoundError, UsageError
from modelops_loadtests import preflight
from modelops_loadtests.preflight import http_get, resolve_model

LISTED = {"data": [{"id": "org/chat"}, {"id": "embed"}]}


def server(**replies: tuple[int, Any]) -> Any:
    """Answer GETs of the paths that are given, with __ for /; others are 404."""
    known = {"/v1/models": (200, LISTED), **{k.replace("__", "/"): v for k, v in replies.items()}}
    return lambda path: known.get(path, (404, None))


def test_a_listed_model_is_taken() -> None:
    assert resolve_model(server(), "org/chat") == "org/chat"


def test_an_alias_is_not_listed_and_yet_known() -> None:
    get = server(__v1__models__alias=(200, {"id": "org/chat"}))
    assert resolve_model(get, "alias") == "alias"


def test_what_is_neither_is_refused_with_the_nearest() -> None:
    with pytest.raises(ModelNotFoundError, match="no model 'enbed'") as caught:
        resolve_model(server(), "enbed")
    assert "did you mean 'embed'?" in str(caught.value.hint)


def test_of_several_the_only_one_that_is_ready_is_meant() -> None:
    get = server(__v2__models__embed__ready=(200, None))
    assert resolve_model(get, None) == "embed"
    with pytest.raises(UsageError, match="2 models; which one"):
        resolve_model(server(), None)


@pytest.mark.parametrize(("pause", "said"), [(0.05, "timed out"), (None, "more than 1 MB")])
def test_a_reply_that_does_not_end_is_not_waited_for(
    pause: float | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "_MOST_BYTES", 1 << 20)
    over = threading.Event()

    def answer() -> None:
        peer, _ = listening.accept()
        with peer, contextlib.suppress(OSError):
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 999999999\r\n\r\n")
            while not over.wait(pause or 0):
                peer.sendall(b" " * (1 if pause else 1 << 16))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=answer)
        thread.start()
        get = http_get(f"http://127.0.0.1:{listening.getsockname()[1]}", {}, timeout=0.4)
        with pytest.raises(MeasurementError, match=said):
            get("/v1/models")
        over.set()
        thread.join(10)
