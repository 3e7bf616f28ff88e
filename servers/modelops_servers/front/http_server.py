"""uvicorn, set up once: its event loop and signals belong to whoever runs it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import uvicorn

from modelops_servers.front.gateway import ASGIApp
from modelops_servers.front.http_protocol import HttpProtocol, HttpState

BACKLOG = 2048

# Clients and balancers keep idle connections for up to 75 s (nginx's default) or 60 s: the side
# that closes first must be theirs, or a reused connection is reset under a request.
_KEEP_ALIVE_SECONDS = 90
_TICKS_PER_SECOND = 10  # uvicorn's


class HttpServer(uvicorn.Server):
    """Serves ``app`` until ``should_exit`` is set; several can share one loop.

    uvicorn's own signal handling is off: it would end the process by the signal, not with 0.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        header_seconds: float = 10,
        keep_alive_seconds: float = _KEEP_ALIVE_SECONDS,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=HttpProtocol,
                interface="asgi3",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                # Nothing here asks who the client is, so nobody need be believed about it.
                proxy_headers=False,
                backlog=BACKLOG,
                # Draining is over before uvicorn is told to stop.
                timeout_graceful_shutdown=1,
            )
        )
        self.server_state: HttpState = HttpState(header_seconds, keep_alive_seconds)

    async def on_tick(self, counter: int) -> bool:
        """Add to uvicorn's ticks what the connections need once a second."""
        if counter % _TICKS_PER_SECOND == 0:
            self.server_state.tick(asyncio.get_running_loop().time())
        return await super().on_tick(counter)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield
