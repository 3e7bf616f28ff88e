"""A fake model server with a known latency, in a process of its own; never called an engine.

``python fake_upstream.py --mode fixed --latency-ms 50`` prints ``{"port": …}`` and serves until
its stdin ends. It speaks enough of ``/v1/embeddings`` and ``/v2`` for the scenarios, and stamps
each arrival and each answer by its own clock: ``GET /arrivals``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import struct
import sys
import time
from typing import Any

MODEL = "fake"
METADATA: dict[str, Any] = {
    "name": MODEL,
    "versions": ["1"],
    "platform": "fake",
    "inputs": [
        {
            "name": "x",
            "datatype": "FP32",
            "shape": [-1, -1],
            "parameters": {"shape": ["batch", "sequence"]},
        },
        {"name": "attention_mask", "datatype": "INT64", "shape": [-1, 4]},
    ],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
    "parameters": {
        "dims": {"batch": {"min": 1, "max": 8}, "sequence": {"min": 2, "max": 128}},
    },
}
MODES = (
    "fixed", "error", "error-body", "nan", "nan-bare", "null", "empty-vector", "wrong-count",
    "no-usage", "not-json", "cut", "cut-body", "redirect", "slow", "outlier", "mixed",
)  # fmt: skip


class Server:
    def __init__(
        self, mode: str, latency: float, key: str | None, models: list[str], dies_after: int | None
    ) -> None:
        self.mode, self.latency, self.key, self.models = mode, latency, key, models
        self.dies_after = dies_after
        self.arrivals: list[tuple[float, float]] = []

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, path, _ = head.split(" ", 2)
                headers = {
                    k.lower(): v.strip()
                    for k, _, v in (line.partition(":") for line in head.split("\r\n")[1:])
                }
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                if not await self.answer(method, path, headers, body, writer):
                    break
        writer.close()

    async def answer(
        self,
        method: str,
        path: str,
        headers: dict[str, str],
        body: bytes,
        writer: asyncio.StreamWriter,
    ) -> bool:
        if self.key and headers.get("authorization") != f"Bearer {self.key}":
            return send(writer, 401, {"error": {"message": "no such key"}})
        if method == "GET":
            return send(writer, *self.get(path))
        arrived = time.monotonic()
        number = len(self.arrivals)
        if number == self.dies_after:
            os._exit(0)
        self.arrivals.append((arrived, 0.0))
        slow = self.mode == "outlier" and number % 9 == 8
        await asyncio.sleep(self.latency * (20 if slow else 1))
        mode = ("fixed" if number % 2 else "error") if self.mode == "mixed" else self.mode
        self.arrivals[number] = (arrived, time.monotonic())
        if mode == "cut":
            return False
        if mode == "error":
            return send(writer, 503, {"error": {"message": "overloaded"}})
        if mode == "redirect":
            return send(writer, 302, {}, extra="Location: /v1/elsewhere\r\n")
        if mode == "error-body":
            return send(writer, 200, {"error": {"message": "it broke inside"}})
        if mode == "not-json":
            return send(writer, 200, b"<html>hello</html>")
        if path.endswith("/infer"):
            return self.infer(mode, headers, body, writer)
        asked = json.loads(body)
        vectors: list[Any] = [[0.25, -0.5, 1.0] for _ in asked["input"]]
        if mode in ("nan", "nan-bare", "null"):
            vectors[-1] = [0.25, None if mode == "null" else float("nan"), 1.0]
        if mode == "empty-vector":
            vectors[-1] = []
        if mode == "wrong-count":
            vectors.append(vectors[0])
        data = [{"index": i, "embedding": v} for i, v in enumerate(vectors)]
        reply: dict[str, Any] = {"data": data, "model": asked["model"]}
        if mode != "no-usage":
            reply["usage"] = {"prompt_tokens": 7 * len(asked["input"])}
        return send(writer, 200, reply, cut=mode == "cut-body")

    def infer(
        self, mode: str, headers: dict[str, str], body: bytes, writer: asyncio.StreamWriter
    ) -> bool:
        length = int(headers.get("inference-header-content-length", len(body)))
        rows = json.loads(body[:length])["inputs"][0]["shape"][0]
        values = [0.5] * (3 * rows)
        if mode == "nan":
            values[0] = float("nan")
        output: dict[str, Any] = {"name": "y", "datatype": "FP32", "shape": [rows, 3]}
        if length == len(body):
            output["data"] = [None if v != v else v for v in values]
            return send(writer, 200, {"outputs": [output]})
        blob = struct.pack(f"<{len(values)}f", *values)
        output["parameters"] = {"binary_data_size": len(blob)}
        head = json.dumps({"outputs": [output]}).encode()
        extra = f"Inference-Header-Content-Length: {len(head)}\r\n"
        return send(writer, 200, head + blob, extra=extra)

    def get(self, path: str) -> tuple[int, Any]:
        if path == "/v1/models":
            return 200, {"object": "list", "data": [{"id": m} for m in self.models]}
        if path == f"/v2/models/{MODEL}":
            return 200, METADATA
        if path == "/arrivals":
            return 200, self.arrivals
        return 404, {"error": "not here"}


def send(
    writer: asyncio.StreamWriter, status: int, body: Any, extra: str = "", *, cut: bool = False
) -> bool:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\nContent-Length: {len(raw)}\r\n{extra}\r\n"
    writer.write(head.encode() + (raw[: len(raw) // 2] if cut else raw))
    return not cut


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=MODES, default="fixed")
    parser.add_argument("--latency-ms", type=float, default=5.0)
    parser.add_argument("--key")
    parser.add_argument("--model", action="append")
    parser.add_argument("--dies-after", type=int, help="requests, in the middle of the next")
    asked = parser.parse_args()
    models = asked.model or [MODEL]
    server = Server(asked.mode, asked.latency_ms / 1000, asked.key, models, asked.dies_after)
    listening = await asyncio.start_server(server.handle, "127.0.0.1", 0, limit=1 << 24)
    port = listening.sockets[0].getsockname()[1]
    sys.stdout.write(json.dumps({"port": port}) + "\n")
    sys.stdout.flush()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    listening.close()


if __name__ == "__main__":
    asyncio.run(main())
