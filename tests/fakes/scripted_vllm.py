"""Speaks as much of vLLM as its keeper hears, and fails as it is told: no engine is in it.

Only for faults that a real one cannot be made to show. Run as ``python scripted_vllm.py
FAULT -m MODULE --uds SOCKET …``; a file named ``fault`` beside the socket changes the fault while
it runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path

_METRICS = """\
vllm:num_requests_running{{engine="0"}} {running}
vllm:num_requests_waiting{{engine="0"}} 0.0
vllm:iteration_tokens_total_count{{engine="0"}} {steps}
vllm:cache_config_info{{block_size="16",kv_cache_memory_bytes="{size}",\
kv_cache_size_tokens="{tokens}"}} 1.0
"""
_TOKENS = 1024
# Of a model with 2 layers, 2 heads for keys and values of 32 values, in bfloat16.
_BYTES = _TOKENS * 2 * 2 * 2 * 32 * 2


def say(line: str) -> None:
    """Log a line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Script:
    """What has happened, and what is to go wrong."""

    def __init__(self, fault: str, socket: Path) -> None:
        self._first = fault
        self._file = socket.with_name("fault")
        self.requests = 0
        self.steps = 0

    @property
    def fault(self) -> str:
        """What goes wrong now; nothing: ``""``."""
        try:
            return self._file.read_text().strip()
        except FileNotFoundError:
            return self._first

    async def answer(self, path: str) -> tuple[int, str]:
        """Return the status and body for a request."""
        match path, self.fault:
            case "/health", "dead":
                return 503, ""
            case (("/metrics" | "/load"), "silent"):
                await asyncio.Event().wait()
            case "/metrics", "garbage":
                return 200, "<html>"
            case "/v1/completions", ("hung" | "working"):
                self.requests += 1
                while self.fault == "working":
                    self.steps += 1
                    await asyncio.sleep(0.05)
                while self.fault == "hung":
                    await asyncio.sleep(0.05)
                self.requests -= 1
            case "/v1/completions", "refuses":
                return 400, '{"error": {"message": "no such thing"}}'
            case _, "leaves":
                say("going")
                os._exit(0)
        match path:
            case "/metrics":
                size = _BYTES * 2 if self.fault == "wide" else _BYTES
                figures = {"running": self.requests, "steps": self.steps}
                return 200, _METRICS.format(**figures, size=size, tokens=_TOKENS)
            case "/load":
                return 200, json.dumps({"server_load": self.requests})
            case "/v1/models":
                return 200, '{"data": [{"id": "tiny", "max_model_len": 512}]}'
            case "/version":
                return 200, '{"version": "0.0-scripted"}'
            case "/v1/completions":
                self.steps += 1
        return 200, "{}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        while head := await reader.readline():
            path = head.split()[1].decode()
            length = 0
            while (line := await reader.readline()).strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            await reader.readexactly(length)
            status, body = await self.answer(path)
            writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode())
            writer.write(body.encode())


async def main(fault: str, socket: Path) -> None:
    """Say what vLLM would say on its way, and serve until it is ended."""
    say("INFO 01-01 [model.py:1] Resolved architecture: LlamaForCausalLM")
    if fault == "breaks":
        say("(Worker pid=9) ERROR 01-01 00:00:00 [x.py:1] ValueError: no room")
        say("RuntimeError: Engine core initialization failed. See root cause above.")
        sys.exit(1)
    if fault == "never":
        say("INFO 01-01 [loader.py:1] Starting to load model tiny...")
        time.sleep(3600)
    say("INFO 01-01 [core.py:1] Initializing a V1 LLM engine: dtype=torch.bfloat16")
    script = Script(fault, socket)
    server = await asyncio.start_unix_server(script.serve, socket)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[sys.argv.index("--uds") + 1])))
