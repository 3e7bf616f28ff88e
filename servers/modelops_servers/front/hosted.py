"""A replica in an engine host: this front's end of the connection."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

from modelops.errors import EngineError, ModelopsError, NotReadyError
from modelops.protocols import Tensors
from modelops.signature import Signature
from modelops_servers.dataplane import wire
from modelops_servers.dataplane.arena import Arena
from modelops_servers.dataplane.wire import Frame, FrameReader, Kind
from modelops_servers.front.replica import Answer, Lease, Observer


class _Pending:
    """One request that the host has not answered; it may be that nobody waits for it any more."""

    __slots__ = ("future", "id", "taken")

    def __init__(self, id: int, future: asyncio.Future[Answer], taken: list[int]) -> None:
        self.id = id
        self.future = future
        self.taken = taken


class HostedReplica(asyncio.Protocol):
    """Sends requests as frames and answers their futures; a lost connection fails them at once."""

    def __init__(self, id: str, signature: Signature, observer: Observer) -> None:
        self.id = id
        self._inputs = wire.Tensors(signature.inputs)
        self._outputs = wire.Tensors(signature.outputs)
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, _Pending] = {}
        self._last_id = 0
        self._reader = FrameReader()
        self._closed = False
        self._waking: asyncio.Future[None] | None = None
        self.on_lost: Callable[[HostedReplica], None] = lambda _: None

    async def connect(self, path: str) -> None:
        """Connect to the host that listens at ``path`` and exchange arenas.

        Raises:
            OSError: it does not listen, or leaves in the middle; or ``close`` was called.
        """
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.setblocking(False)
            await self._loop.sock_connect(sock, path)
            self._go_on()
            self._ours = Arena.create()
            socket.send_fds(sock, [b"A"], [self._ours.fd])
            self._ours.close()
            await self._readable(sock)
            self._go_on()
            _, fds, _, _ = socket.recv_fds(sock, 1, 1)
            if len(fds) != 1:
                raise ConnectionError("the engine host left")
            self._theirs = Arena(fds[0])
            self._theirs.close()
            await self._loop.create_unix_connection(lambda: self, sock=sock)
            self._go_on()
        except BaseException:
            sock.close()
            raise

    def _go_on(self) -> None:
        if self._closed:
            raise ConnectionAbortedError("closed while it connected")

    @property
    def in_flight(self) -> int:
        """Requests that the host has not answered."""
        return len(self._pending)

    @property
    def connected(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None

    def lease(self, count: int) -> Lease | None:
        """Set aside memory of the arena; see ``Replica``."""
        offset = self.reserve(count)
        return None if offset is None else Lease(self, offset, count)

    def reserve(self, count: int) -> int | None:
        """Return the offset of ``count`` bytes of shared memory for a request's body, or None."""
        return self._ours.allocate(count)

    def reserved(self, offset: int, count: int) -> memoryview:
        """Return the memory that ``reserve`` set aside."""
        return self._ours.view(offset, count).data

    def release(self, offset: int) -> None:
        """Give back what ``reserve`` set aside for a request that was never sent."""
        self._ours.free(offset)

    def submit(
        self,
        tensors: Tensors,
        deadline: float | None,
        start_by: float | None,
        reserved: int | None = None,
    ) -> _Pending:
        """Send one request and return it; its ``future`` gets the answer.

        ``reserved`` is what ``reserve`` returned for this request; it is given back with the
        answer.

        Raises:
            NotReadyError: the connection is lost.
        """
        if self._transport is None:
            raise NotReadyError("the engine host is gone")
        taken = [] if reserved is None else [reserved]
        self._last_id = id = self._last_id + 1
        frame = self._inputs.write(Kind.REQUEST, id, tensors, self._ours, taken, deadline, start_by)
        pending = self._pending[id] = _Pending(id, self._loop.create_future(), taken)
        self._write(frame)
        return pending

    def withdraw(self, pending: _Pending) -> None:
        """Tell the host that nobody waits for this request."""
        if pending.id in self._pending:
            self._write(wire.short(Kind.CANCEL, pending.id))
            return
        # The answer came in the very turn in which its caller left, and nobody else will free it.
        future = pending.future
        if future.done() and not future.cancelled() and future.exception() is None:
            future.result().release()

    def abandon(self, error: ModelopsError) -> None:
        """Fail what is pending; the host's answers are dropped when they come."""
        for one in self._pending.values():
            if not one.future.done():
                one.future.set_exception(error)

    def close(self) -> None:
        """Close the connection, also one that is being made; what is pending fails."""
        self._closed = True
        if self._transport is not None:
            self._transport.abort()
        if self._waking is not None and not self._waking.done():
            self._waking.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        # uvloop's transports are none of asyncio's by class.
        made = cast(asyncio.Transport, transport)
        if self._closed:
            made.abort()
            return
        self._transport = made

    def data_received(self, data: bytes) -> None:
        """Answer the requests whose frames are whole."""
        try:
            for frame in self._reader.feed(data):
                self._on_frame(frame)
        except ModelopsError:
            self.close()
            raise

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Fail what is pending: the host is gone."""
        self._transport = None
        self.abandon(EngineError("the engine host ended before it answered; it is restarted"))
        self._pending.clear()
        self.on_lost(self)

    def _write(self, frame: bytes) -> None:
        # uvloop sends at the end of the loop's turn, and then all of it in one call.
        if self._transport is not None:
            self._transport.write(frame)

    def _on_frame(self, frame: Frame) -> None:
        pending = self._pending.pop(frame.id, None)
        if pending is None:
            return
        for offset in pending.taken:
            self._ours.free(offset)
        self._observer.queued(frame.first)
        if frame.kind == Kind.RESULT:
            if frame.second:
                self._observer.batch(int(frame.second))
            outputs, shared = self._outputs.read(frame, self._theirs)
            answer = Answer(outputs, self._freer(frame.id) if shared else None)
            if pending.future.done():
                answer.release()
            else:
                pending.future.set_result(answer)
        elif not pending.future.done():
            pending.future.set_exception(wire.error_of(frame))

    def _freer(self, id: int) -> Callable[[], None]:
        return lambda: self._write(wire.short(Kind.FREE, id))

    async def _readable(self, sock: socket.socket) -> None:
        ready = self._waking = self._loop.create_future()
        self._loop.add_reader(sock, lambda: None if ready.done() else ready.set_result(None))
        try:
            await ready
        finally:
            self._waking = None
            self._loop.remove_reader(sock)
