"""Speaks as much of vLLM as its benchmark hears, and answers or fails as it is told.

No engine is in it: its tokens count up from the prompt's last. Run as ``python
scripted_completions.py FAULTS -m MODULE --uds SOCKET …``; FAULTS is JSON, from vLLM's name of a KV
cache type to what goes wrong with it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from aiohttp import web

TOKENS, BLOCK = 1280, 128
# Of a model with 2 layers, 2 heads for keys and values of 32 values, in bfloat16.
BYTES = TOKENS * 2 * 2 * 2 * 32 * 2
_METRICS = """\
vllm:num_requests_running{{engine="0"}} {out}
vllm:num_requests_waiting{{engine="0"}} 0.0
vllm:num_preemptions_total{{engine="0"}} {preempted}
vllm:iteration_tokens_total_count{{engine="0"}} {steps}
vllm:cache_config_info{{block_size="{block}",kv_cache_memory_bytes="{size}",num_gpu_blocks="{blocks}",\
kv_cache_size_tokens="{tokens}"}} 1.0
"""
_FEW = 2


def say(line: str) -> None:
    """Log a line."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


class Script:
    """What has happened, and what is to go wrong."""

    def __init__(self, fault: str) -> None:
        self._fault = fault
        self._out = self._steps = self._preempted = self._streams = 0

    def application(self) -> web.Application:
        application = web.Application()
        application.add_routes(
            [
                web.get("/health", self._text("")),
                web.get("/load", self._text('{"server_load": 0}')),
                web.get("/version", self._text('{"version": "0.0-scripted"}')),
                web.get("/v1/models", self._text('{"data": [{"id": "tiny"}]}')),
                web.get("/metrics", self._metrics),
                web.post("/tokenize", self._tokenize),
                web.post("/v1/completions", self._complete),
            ]
        )
        return application

    def _text(self, text: str) -> Any:
        async def answer(_: web.Request) -> web.Response:
            return web.Response(text=text)

        return answer

    async def _metrics(self, _: web.Request) -> web.Response:
        figures = {"out": self._out, "preempted": self._preempted, "steps": self._steps}
        cache = {"block": BLOCK, "size": BYTES, "blocks": TOKENS // BLOCK, "tokens": TOKENS}
        return web.Response(text=_METRICS.format(**figures, **cache))

    async def _tokenize(self, request: web.Request) -> web.Response:
        asked = await request.json()
        return web.json_response({"tokens": [len(w) for w in asked["prompt"].split()]})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        asked = await request.json()
        self._steps += 1
        if asked.get("stream"):
            return await self._stream(request, asked)
        if "prompt_logprobs" in asked:
            shift = 0.25 if self._fault == "drifts" else 0.0
            at = [{str(t): {"logprob": -1.0 - shift, "rank": 1}} for t in asked["prompt"][1:]]
            return web.json_response({"choices": [{"prompt_logprobs": [None, *at]}]})
        if "logprobs" not in asked:
            return web.json_response({"choices": [{"text": "a"}]})
        tokens = [asked["prompt"][-1] + 1 + i for i in range(asked["max_tokens"])]
        if self._fault == "drifts":
            tokens[2] += 1000
        said = {"tokens": [f"token_id:{t}" for t in tokens], "token_logprobs": [-1.0] * len(tokens)}
        return web.json_response({"choices": [{"logprobs": said}]})

    async def _stream(self, request: web.Request, asked: dict[str, Any]) -> web.StreamResponse:
        self._streams += 1
        if self._fault == "leaves" and self._streams > 10:
            os._exit(3)
        self._out += 1
        self._preempted += self._out > _FEW
        reply = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await reply.prepare(request)
        for counted in range(1, asked["max_tokens"] + 1):
            self._steps += 1
            usage = {"prompt_tokens": len(asked["prompt"]), "completion_tokens": counted}
            said: dict[str, Any] = {"choices": [{"text": "a"}], "usage": usage}
            if self._fault == "errs" and counted == 3:
                said = {"error": {"message": "no room"}}
            await reply.write(f"data: {json.dumps(said)}\n\n".encode())
            await asyncio.sleep(0.001)
        self._out -= 1
        await reply.write(b"data: [DONE]\n\n")
        return reply


async def main(faults: dict[str, str], arguments: list[str]) -> None:
    flag = "--kv-cache-dtype"
    dtype = arguments[arguments.index(flag) + 1] if flag in arguments else "auto"
    fault = faults.get(dtype, "")
    say("INFO 01-01 [core.py:1] Initializing a V1 LLM engine: dtype=torch.bfloat16")
    if fault == "breaks":
        say("ValueError: no such kernel")
        sys.exit(1)
    runner = web.AppRunner(Script(fault).application())
    await runner.setup()
    await web.UnixSite(runner, str(Path(arguments[arguments.index("--uds") + 1]))).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1]), sys.argv[2:]))
