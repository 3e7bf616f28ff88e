"""One gateway, from bound sockets to drained exit: the supervisor's process."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from modelops.config import GatewayConfig, ServerConfig
from modelops.errors import MissingEnvironmentError
from modelops.progress import Progress
from modelops_servers import logs
from modelops_servers.announcement import Ready, announce
from modelops_servers.exposure import check_exposure
from modelops_servers.supervisor.supervisor import Supervisor
from modelops_servers.unblocked import unblocked_stderr

BACKLOG = 2048
_STDERR = 2
_HOST_HINT = "choose an address of this machine with --host, such as 127.0.0.1"


def serve(
    config: GatewayConfig,
    progress: Progress,
    on_ready: Callable[[Ready], None],
) -> None:
    """Serve until SIGTERM or SIGINT, then drain and return; a second signal ends at once.

    /livez answers as soon as a front runs, /readyz once every required model is ready.

    Raises:
        UsageError: the host is reachable from elsewhere and no API key is set.
        MissingEnvironmentError: the address cannot be listened on, or an engine's needs are not
            there.
        ModelopsError: a required model cannot be loaded; nothing is served then.
    """
    server = config.server
    check_exposure(server.host, server.api_keys)
    _hold_standard_streams()
    with ExitStack() as stack:
        listeners = {"http": stack.enter_context(_bound(server, server.port, "--port"))}
        if server.admin_port is not None:
            listeners["admin"] = stack.enter_context(
                _bound(server, server.admin_port, "--admin-port")
            )
        # A parent that does not read its pipe must not keep this process from its children.
        stack.enter_context(unblocked_stderr())
        logs.configure()
        asyncio.run(_run(config, listeners, progress, on_ready))


async def _run(
    config: GatewayConfig,
    listeners: dict[str, socket.socket],
    progress: Progress,
    on_ready: Callable[[Ready], None],
) -> None:
    fds = {name: listener.fileno() for name, listener in listeners.items()}
    supervisor = Supervisor(config, fds, progress)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _on_signal, stop, number)
    stopping = asyncio.create_task(stop.wait())
    watching = asyncio.create_task(supervisor.watch())
    starting = asyncio.create_task(supervisor.start())
    drain_seconds = 0.0
    try:
        await asyncio.wait({starting, stopping, watching}, return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            await starting
            on_ready(announce(config, supervisor.models.values(), listeners))
            await asyncio.wait({stopping, watching}, return_when=asyncio.FIRST_COMPLETED)
        if watching.done():
            await watching
        drain_seconds = config.server.drain_seconds
        progress(f"stopping: requests in flight have up to {drain_seconds:g} s")
    finally:
        for task in (starting, stopping, watching):
            task.cancel()
        await asyncio.gather(starting, stopping, watching, return_exceptions=True)
        await supervisor.stop(drain_seconds)


def _hold_standard_streams() -> None:
    """Open the standard streams that whoever started this closed: no socket may get their place."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= _STDERR:
        pass
    os.close(fd)


def _on_signal(stop: asyncio.Event, number: int) -> None:
    if stop.is_set():
        # The second one does not wait; the guardians see to every child.
        sys.stdout.flush()
        os._exit(128 + number)
    stop.set()


@contextlib.contextmanager
def _bound(server: ServerConfig, port: int, flag: str) -> Iterator[socket.socket]:
    """Bind before anything is loaded, so that a port in use is told at once."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            server.host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise MissingEnvironmentError(
            f"cannot listen on {server.host}: {error.strerror or error}",
            hint=_HOST_HINT,
        ) from error
    with listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(address)
            listener.listen(BACKLOG)
        except OSError as error:
            here = error.errno != errno.EADDRNOTAVAIL
            raise MissingEnvironmentError(
                f"cannot listen on {server.host}:{port}: {error.strerror or error}",
                hint=f"choose another port with {flag}; {flag} 0 takes a free one"
                if here
                else _HOST_HINT,
            ) from error
        listener.setblocking(False)
        yield listener
