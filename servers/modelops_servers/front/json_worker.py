"""The process in which large JSON is read and written: one job after the other, off a socket."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys
from typing import Any

from modelops_servers.front import out_of_band
from modelops_servers.front.out_of_band import Failed


def main(fd: int) -> None:
    """Answer jobs until the parent's end of the socket closes."""
    # Whoever is to stop the server tells the parent; it ends this process when nothing is left.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # Whoever sends so much can wait a little; the small requests beside it cannot.
    os.nice(5)
    # Millions of values come and go by reference counts; walking them would double the time.
    gc.disable()
    with socket.socket(fileno=fd) as sock, contextlib.suppress(EOFError, ConnectionError):
        while True:
            _job(sock)
            gc.collect()


def _job(sock: socket.socket) -> None:
    reply: Any
    try:
        function, arguments = out_of_band.receive(sock)
        reply = function(*arguments)
    except (EOFError, ConnectionError):
        raise
    except Exception as error:  # noqa: BLE001 - the caller is told of whatever it is
        reply = Failed.of(error)
    try:
        out_of_band.send(sock, reply, open_strings=False)
    except ConnectionError:
        raise
    except Exception as error:  # noqa: BLE001 - an answer that cannot be pickled
        out_of_band.send(sock, Failed.of(error), open_strings=False)


if __name__ == "__main__":
    main(int(sys.argv[1]))
