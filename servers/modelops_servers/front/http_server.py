"""uvicorn, set up once: its event loop and signals belong to whoever runs it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import uvicorn

from modelops_servers.front.gateway import ASGIApp

BACKLOG = 2048

# Clients and balancers keep idle connections for up to 75 s (nginx's default) or 60 s: the side
# that closes first must be theirs, or a reused connection is reset under a request.
_KEEP_ALIVE_SECONDS = 90


class HttpServer(uvicorn.Server):
    """Serves ``app`` until ``should_exit`` is set.

    uvicorn's own signal handling is off: it would end the process by the signal, not with 0.
    """

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                backlog=BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                # Draining is over before uvicorn is told to stop.
                timeout_graceful_shutdown=1,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield
