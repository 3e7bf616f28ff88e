"""How often a large binary tensor is copied on its way: docs/performance.md has the table.

Everything is real but the engine: sockets, HTTP, the endpoint, the frames and the host's loop.
Addresses are looked at wherever somebody is handed the tensor, and copies are counted in bytes.
"""

from __future__ import annotations

import asyncio
import http.client
import socket
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime as ort
import orjson
import pytest
import uvloop
from onnx import TensorProto, helper
from scripted_engine import SIGNATURE, Stage, hosted

from modelops.config import LimitsConfig
from modelops_servers.front import http_protocol, oip
from modelops_servers.front.exchange import Call
from modelops_servers.front.gateway import _send
from modelops_servers.front.hosted import HostedReplica
from modelops_servers.front.http_filling import Filling
from modelops_servers.front.http_server import HttpServer
from modelops_servers.front.json_process import JsonProcess
from modelops_servers.front.oip import InferEndpoint
from modelops_servers.front.oip_codec import Encoded, encode_response

# Most of a body that comes with its head: what one read of the socket takes at most.
FIRST_READ = 256 * 1024


class Seen:
    """What passed by, in the order of a request's way."""

    def __init__(self) -> None:
        self.filled = 0
        """Bytes that the kernel wrote straight into the memory set aside for the body."""
        self.copied: list[Any] = []
        """What numpy copied of a large size."""
        self.inputs: list[Any] = []
        self.outputs: list[Any] = []
        self.parts: list[Any] = []
        """The parts of the answer before they are joined."""
        self.written: list[Any] = []
        """What the transport was given for the socket."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    seen = Seen()
    copyto, updated = np.copyto, Filling.buffer_updated
    connected = http_protocol.HttpProtocol.connection_made

    def counted(target: Any, source: Any, **options: Any) -> None:
        if np.asarray(source).nbytes >= FIRST_READ:
            seen.copied.append(source)
        copyto(target, source, **options)

    def filled(self: Filling, count: int) -> None:
        seen.filled += count
        updated(self, count)

    def made(self: Any, transport: Any) -> None:
        connected(self, transport)
        self.transport = Recorded(transport, seen)

    def encoded(*arguments: Any) -> Encoded:
        made = encode_response(*arguments)
        seen.parts += made.parts
        return made

    monkeypatch.setattr(np, "copyto", counted)
    monkeypatch.setattr(oip, "encode_response", encoded)
    monkeypatch.setattr(Filling, "buffer_updated", filled)
    monkeypatch.setattr(http_protocol.HttpProtocol, "connection_made", made)
    return seen


class Recorded:
    """A transport that keeps what it is given to write."""

    def __init__(self, transport: Any, seen: Seen) -> None:
        self._transport = transport
        self._seen = seen

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: Any) -> None:
        self._seen.written.append(data)
        self._transport.write(data)


class OneModel:
    """One hosted replica as the endpoint asks it."""

    number = "1"
    signature = SIGNATURE
    limits = LimitsConfig()

    def __init__(self, stage: Stage) -> None:
        self.config = stage.prepared.config
        self.json = JsonProcess()
        self.leases: list[Any] = []
        self.replica = cast(HostedReplica, stage.replica)

    def find(self, name: str, version: str | None = None) -> OneModel:
        return self

    def admit(self) -> None:
        return

    def leave(self) -> None:
        return

    def lease(self, count: int) -> Any:
        self.leases.append(self.replica.lease(count))
        return self.leases[-1]

    async def infer(self, tensors: Any, deadline: float, lease: Any) -> Any:
        ticket = self.replica.submit(tensors, deadline, None, lease.offset)
        lease.hand_over()
        return await ticket.future


async def there_and_back(stage: Stage, x: Any) -> tuple[Any, OneModel]:
    """Post ``x`` over a socket; return what came back and the model that was asked."""
    model = OneModel(stage)
    endpoint = InferEndpoint(cast(Any, model))

    async def app(scope: Any, receive: Any, send: Any) -> None:
        reply = await endpoint(Call(receive, dict(scope["headers"]), 30), "m", None)
        await _send(send, reply, b"1")

    server, sock = HttpServer(cast(Any, app)), socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        got = await asyncio.to_thread(posted, sock.getsockname()[1], x)
    finally:
        server.should_exit = True
        await serving
        await model.json.close()
    return got, model


def posted(port: int, x: Any) -> Any:
    entry = {
        "name": "x",
        "datatype": "FP32",
        "shape": x.shape,
        "parameters": {"binary_data_size": x.nbytes},
    }
    head = orjson.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}})
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        length = {"Inference-Header-Content-Length": str(len(head))}
        link.request("POST", "/", head + x.tobytes(), length)
        reply = link.getresponse()
        body = reply.read()
        assert reply.status == 200, body
        start = int(reply.headers["Inference-Header-Content-Length"])
        return np.frombuffer(body[start:], "f4").reshape(x.shape)
    finally:
        link.close()


@pytest.mark.parametrize("megabytes", [1, 10])
def test_a_large_tensor_is_copied_no_oftener_than_the_table_says(
    seen: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, megabytes: int
) -> None:
    stage = Stage(8)
    infer = stage.engine.infer

    def recorded(tensors: Any, deadline: float | None) -> Any:
        outputs = infer(tensors, deadline)
        seen.inputs.append(tensors["x"])
        seen.outputs.append(outputs["y"])
        return outputs

    monkeypatch.setattr(stage.engine, "infer", recorded)
    x = np.arange(1, megabytes * 250_000 + 1, dtype="f4").reshape(1, -1)
    offsets: list[int | None] = []

    async def main() -> None:
        async with hosted(stage, tmp_path):
            got, model = await there_and_back(stage, x)
            assert (got == x * 2).all()
            assert stage.reactor is not None
            [connection] = stage.reactor._connections
            [lease] = model.leases
            part = np.frombuffer(seen.parts[1], np.uint8)
            offsets.extend(
                (
                    lease.offset,
                    connection.theirs.offset_of(seen.inputs[0]),
                    model.replica._theirs.offset_of(part),
                )
            )
            assert connection._ours.offset_of(seen.outputs[0]) is None

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main())

    # In: the kernel writes the body, the JSON too, where the host maps it; but not what came with
    # the head.
    assert -4096 < x.nbytes - seen.filled < FIRST_READ
    lease, engine, answered = offsets
    assert lease is not None
    assert engine is not None
    # The JSON lies before it; the engine is handed the very same bytes, on a boundary.
    assert 0 <= engine - lease < 4096
    assert seen.inputs[0].flags.aligned
    assert seen.inputs[0].ctypes.data % 64 == 0
    # Out: into the arena, which is the one large copy that numpy makes on the whole way …
    assert [source.nbytes for source in seen.copied] == [x.nbytes]
    assert np.shares_memory(seen.copied[0], seen.outputs[0])
    assert answered is not None
    # … and out of it, into the bytes of the answer, which the transport gets as they are.
    large = [data for data in seen.written if len(data) >= x.nbytes]
    assert [type(data) for data in large] == [bytes]
    assert sum(map(len, seen.written)) - x.nbytes < 4096


def test_the_runtime_reads_its_input_where_it_lies(tmp_path: Path) -> None:
    """A copy would raise the process's peak by as much as the tensor has bytes."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node("ReduceMax", ["x"], ["y"], keepdims=0)],
        "g",
        [info("x", TensorProto.FLOAT, ["n"])],
        [info("y", TensorProto.FLOAT, [])],
    )
    path = tmp_path / "m.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path
    )
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    x = np.ones(2**24, "f4")
    session.run(None, {"x": x[:8]})

    def risen(work: Any) -> int:
        Path("/proc/self/clear_refs").write_text("5")
        before = status("VmHWM")
        work()
        return status("VmHWM") - before

    assert risen(x.copy) > x.nbytes * 0.9, "the peak shows a copy"
    assert risen(lambda: session.run(None, {"x": x})) < x.nbytes * 0.1


def status(field: str) -> int:
    """Bytes of a line of this process's status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise KeyError(field)
