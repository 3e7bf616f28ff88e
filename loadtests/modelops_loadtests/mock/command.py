"""The command line of the mock: every field of a Script is an option."""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import orjson

from modelops_loadtests.mock.clock import new_event_loop
from modelops_loadtests.mock.script import Script
from modelops_loadtests.mock.server import Server

_EPILOG = """\
One JSON line on stdout says the port; the server ends when its standard input does.

  GET /stamps     each request: when it came, and when each of its chunks was due and written
  DELETE /stamps  forget them
  GET /arrivals   [came, over] of each request
  GET /metrics    queue, running and KV cache use, in the form of vLLM's
  POST /tokenize  the toy tokenizer: each word between white space is one token

Stamps are seconds of CLOCK_MONOTONIC (Python's time.perf_counter on Linux). A client that sends
X-Request-Id finds its request by it."""


def parser() -> argparse.ArgumentParser:
    """Return the parser, with an option for each field of Script."""
    made = argparse.ArgumentParser(
        prog="python -m modelops_loadtests.mock",
        description="An OpenAI server with a scripted clock. No model answers: it is no engine.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--host", default="127.0.0.1")
    made.add_argument("--port", type=int, default=0, help="0: any that is free (default)")
    made.add_argument("--model", action="append", help="a model's name, repeatable (mock)")
    made.add_argument("--key", help="answer 401 to whoever does not bear it")
    for each in fields(Script):
        option = f"--{each.name.replace('_', '-')}"
        if isinstance(each.default, bool):
            text = f"{each.metadata['help']} ({'yes' if each.default else 'no'})"
            made.add_argument(
                option, action=argparse.BooleanOptionalAction, default=each.default, help=text
            )
            continue
        known: dict[str, Any] = {"type": type(each.default)}
        if each.name.endswith("_ms"):
            known = {"type": str, "metavar": "MS"}
        elif each.metadata["choices"]:
            known = {"choices": [c for c in each.metadata["choices"] if c]}
        text = each.metadata["help"] + (f" ({each.default})" if each.default != "" else "")
        made.add_argument(option, default=each.default, help=text, **known)
    return made


def main(arguments: Sequence[str] | None = None) -> None:
    """Serve until standard input ends."""
    made = parser()
    asked = vars(made.parse_args(arguments))
    try:
        script = Script(**{each.name: asked[each.name] for each in fields(Script)})
    except ValueError as error:
        made.error(str(error))
    # A pause of the garbage collector would be lateness, and a mock lives for minutes.
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_serve(script, asked))
    except KeyboardInterrupt:
        sys.exit(130)
    except (OSError, OverflowError) as error:
        made.error(f"cannot listen: {error}")


async def _serve(script: Script, asked: dict[str, Any]) -> None:
    server = Server(script, asked["model"] or ["mock"], asked["key"])
    listening = server.listen(asked["host"], asked["port"])
    sys.stdout.write(orjson.dumps({"port": listening.port}).decode() + "\n")
    sys.stdout.flush()
    loop, over = asyncio.get_running_loop(), asyncio.Event()

    def watch() -> None:
        while os.read(0, 4096):
            pass
        loop.call_soon_threadsafe(over.set)

    threading.Thread(target=watch, daemon=True).start()
    died = loop.create_task(server.died.wait())
    await asyncio.wait((died, loop.create_task(over.wait())), return_when=asyncio.FIRST_COMPLETED)
    listening.close()
    if died.done():
        os._exit(0)
