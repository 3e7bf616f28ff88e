"""The engine's threads: read what the fronts sent, batch it, run it, answer.

Each lane does all of it, by turns. While every lane is in the engine nothing is read: requests
gather in the sockets and are batched when one is free again, and no request pays for a hand-over
between threads. Only connections are accepted beside them: a front that was restarted need not wait
for a long call.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import select
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Sequence

import numpy as np

from modelops.errors import EngineError, ModelopsError
from modelops_servers.batching import Item, Outputs
from modelops_servers.dataplane import wire
from modelops_servers.dataplane.arena import Arena
from modelops_servers.dataplane.wire import Frame, FrameReader, Kind
from modelops_servers.lanes import Lanes
from modelops_servers.loading import Prepared
from modelops_servers.pulse import Pulse

_log = logging.getLogger(__name__)

# A larger buffer is fetched from the system and given back at every read, for 20 µs.
_READ_BYTES = 2**16
_HANDSHAKE_SECONDS = 5.0
_ACCEPT_AGAIN_SECONDS = 0.2


class Reactor:
    """Serves every front that connects to ``listener``; the desk of its ``Lanes``."""

    def __init__(self, listener: socket.socket, prepared: Prepared, pulse: Pulse) -> None:
        self._listener = listener
        self._batcher = prepared.batcher()
        self._lanes = Lanes(prepared, self._batcher, pulse, self)
        self._make = prepared.make_item.make
        self._inputs = wire.Tensors(prepared.signature.inputs)
        self._outputs = wire.Tensors(prepared.signature.outputs)
        self._connected = threading.Lock()  # around everything that is a connection's
        self._selector = selectors.EpollSelector()
        self._waker, self._wake = socket.socketpair()
        self._waker.setblocking(False)
        self._selector.register(self._waker, selectors.EVENT_READ, self._woken)
        self._stopping = False
        self._arrived: deque[Connection] = deque()
        self._connections: set[Connection] = set()
        self.unflushed: set[Connection] = set()
        pulse.unread = self._unread

    def stop(self) -> None:
        """End ``serve`` once every front has left; from any thread."""
        self._stopping = True
        self.wake()

    def wake(self) -> None:
        """End the wait for what fronts send; see ``modelops_servers.lanes.Desk``."""
        with contextlib.suppress(OSError):  # it has ended already
            self._wake.send(b"x")

    def serve(self) -> None:
        """Work until ``stop``."""
        accepting = threading.Thread(target=self._accept, name="accept", daemon=True)
        accepting.start()
        try:
            self._lanes.work()
        finally:
            # This ends the other thread's wait, which closing would not.
            self._listener.shutdown(socket.SHUT_RDWR)
            accepting.join(_HANDSHAKE_SECONDS)
            self._selector.close()
            self._waker.close()
            self._wake.close()

    def fill(self, wait: bool) -> bool:
        """Read what the fronts have sent; see ``modelops_servers.lanes.Desk``."""
        events = self._selector.select(None if wait else 0)
        with self._connected:
            for key, mask in events:
                key.data(mask)
            self._flush()
        return not self._stopping or bool(self._connections or self._arrived)

    def refuse(self, items: Sequence[tuple[Item, ModelopsError]], now: float) -> None:
        """Answer with errors; see ``modelops_servers.lanes.Desk``."""
        with self._connected:
            for item, error in items:
                connection, id = item.owner
                connection.put(wire.failure(id, error, now - item.enqueued), id)
            self._flush()

    def hand_out(
        self, batch: Sequence[Item], results: Sequence[Outputs | ModelopsError], began: float
    ) -> None:
        """Answer one batch; see ``modelops_servers.lanes.Desk``."""
        rows = float(sum([item.rows for item in batch]))
        with self._connected:
            for item, result in zip(batch, results, strict=True):
                connection, id = item.owner
                if isinstance(result, ModelopsError):
                    connection.put(wire.failure(id, result, began - item.enqueued), id)
                else:
                    waited = began - item.enqueued
                    connection.put_result(id, self._outputs, result, waited, rows)
                    rows = 0.0
            self._flush()

    def _flush(self) -> None:
        for connection in self.unflushed:
            connection.flush()
        self.unflushed.clear()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.EBADF):  # it was shut down
                    return
                _log.warning("no connection can be accepted: %s", error)
                time.sleep(_ACCEPT_AGAIN_SECONDS)
                continue
            try:
                connection = Connection(sock, self)
            except (OSError, ValueError) as error:
                _log.warning("a front could not connect: %s", error)
                sock.close()
                continue
            self._arrived.append(connection)
            self.wake()

    def watch(self, connection: Connection, writing: bool) -> None:
        """Ask for the connection's events; for room to write too where ``writing``."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if writing else 0)
        self._selector.modify(connection.socket, events, connection.on_event)

    def forget(self, connection: Connection) -> None:
        """Drop a connection that is gone."""
        self._connections.discard(connection)
        self._selector.unregister(connection.socket)

    def admit(self, connection: Connection, frame: Frame) -> Item:
        """Queue the request in ``frame``."""
        began = time.monotonic()
        tensors, _ = self._inputs.read(frame, connection.theirs)
        item = self._make(
            tensors,
            wire.when(frame.first),
            wire.when(frame.second),
            (connection, frame.id),
            began,
        )
        item.put_off(time.monotonic() - began)  # taking strings apart takes long
        self._batcher.put(item)
        return item

    def _woken(self, _events: int) -> None:
        with contextlib.suppress(BlockingIOError):
            self._waker.recv(64)
        while self._arrived:
            connection = self._arrived.popleft()
            self._connections.add(connection)
            self._selector.register(connection.socket, selectors.EVENT_READ, connection.on_event)

    def _unread(self) -> bool:
        """Whether a front has sent what this thread did not read yet; asked by another thread."""
        probe = select.poll()
        probe.register(self._selector.fileno(), select.POLLIN)
        return bool(probe.poll(0))


class Connection:
    """One front: its socket, its arena (requests) and the one for it (results)."""

    def __init__(self, sock: socket.socket, reactor: Reactor) -> None:
        self.socket = sock
        self._reactor = reactor
        sock.settimeout(_HANDSHAKE_SECONDS)
        _, fds, _, _ = socket.recv_fds(sock, 1, 1)
        if len(fds) != 1:
            raise ValueError("it sent no arena")
        self.theirs = Arena(fds[0])
        self.theirs.close()
        self._ours = Arena.create()
        socket.send_fds(sock, [b"A"], [self._ours.fd])
        self._ours.close()
        sock.setblocking(False)
        self._reader = FrameReader()
        self._items: dict[int, Item] = {}
        self._taken: dict[int, list[int]] = {}
        self._out: list[bytes] = []
        self._rest = memoryview(b"")
        self._gone = False

    def on_event(self, events: int) -> None:
        """Read what is there, write what waits."""
        if events & selectors.EVENT_WRITE:
            self.flush()
        if events & selectors.EVENT_READ:
            self._read()

    def put(self, frame: bytes, id: int) -> None:
        """Queue a frame that ends request ``id``."""
        self._items.pop(id, None)
        if not self._gone:
            self._out.append(frame)
            self._reactor.unflushed.add(self)

    def put_result(
        self,
        id: int,
        outputs: wire.Tensors,
        result: dict[str, np.ndarray],
        waited: float,
        rows: float,
    ) -> None:
        """Queue the outputs of request ``id``."""
        if self._gone:
            return
        taken: list[int] = []
        try:
            frame = outputs.write(Kind.RESULT, id, result, self._ours, taken, waited, rows)
        except Exception as error:  # noqa: BLE001 - one odd answer must not end all others
            _log.exception("an answer cannot be sent")
            what = error.message if isinstance(error, ModelopsError) else repr(error)
            frame = wire.failure(id, EngineError(f"the answer cannot be sent: {what}"), waited)
        if taken:
            self._taken[id] = taken
        self.put(frame, id)

    def flush(self) -> None:
        """Write as much as the socket takes now."""
        if self._gone:
            return
        had = bool(self._rest)
        if self._out:
            self._rest = memoryview(b"".join([self._rest, *self._out]))
            self._out.clear()
        try:
            while self._rest:
                self._rest = self._rest[self.socket.send(self._rest) :]
        except BlockingIOError:
            pass
        except OSError:
            self._leave()
            return
        if had != bool(self._rest):
            self._reactor.watch(self, writing=bool(self._rest))

    def _read(self) -> None:
        try:
            data = self.socket.recv(_READ_BYTES)
            if not data:
                self._leave()
                return
            for frame in self._reader.feed(data):
                self._on_frame(frame)
        except BlockingIOError:
            return
        except OSError:
            self._leave()
        except ModelopsError as error:
            _log.error("a front sent what is no frame: %s", error)
            self._leave()

    def _on_frame(self, frame: Frame) -> None:
        if frame.kind == Kind.REQUEST:
            try:
                self._items[frame.id] = self._reactor.admit(self, frame)
            except ModelopsError as error:
                self.put(wire.failure(frame.id, error, 0.0), frame.id)
        elif frame.kind == Kind.CANCEL:
            item = self._items.get(frame.id)
            if item is not None:
                item.cancelled = True
        elif frame.kind == Kind.FREE:
            for offset in self._taken.pop(frame.id, ()):
                self._ours.free(offset)

    def _leave(self) -> None:
        """The front is gone: nobody waits for its requests any more."""
        if self._gone:
            return
        self._gone = True
        for item in self._items.values():
            item.cancelled = True
        self._items.clear()
        self._reactor.forget(self)
        self.socket.close()
