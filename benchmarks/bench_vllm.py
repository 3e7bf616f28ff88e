"""vLLM beside the gateway in front of it: one engine, asked directly and through it by turns.

`modelops serve … --engine vllm` starts the engine on a unix socket. A light client speaks to that
socket and to the gateway by turns, 1, 8 and 32 streams, and what is compared are turns of the same
round. On a machine whose engine takes all cores its own noise is many times what the gateway adds:
so the same is also measured with a scripted upstream that sends a token every 10 ms, where the
little that is added can be seen. The clients keep their connections, as the pools of `openai`,
LiteLLM and LangChain do; a second table has a new connection for each stream (the gateway keeps its
own to the engine either way), whose making is not counted, but what a server does with a new one
is. Each figure comes with the interval that its rounds leave open.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway import report
from gateway.artifacts import RESULTS, smollm2
from gateway.bodies import Body
from gateway.processes import Running, free_port
from streams.beside import Found, judge, rounds_of
from streams.client import Stream
from streams.contenders import GATEWAY, PATH, everyone, scripted
from streams.wire import Script, chat, request, unframed

LEVELS = (1, 8, 32)
_ENGINE = {1: (16, 1, 8), 8: (8, 1, 5), 32: (4, 1, 5)}
"""Of each level: tokens of an answer, answers one after another, rounds. An engine on few cores
takes as long for a token of 32 streams as for 32 tokens of one."""
_CLOCK = Script(50, 1, 20_000, 10_000)
_CLOCK_SECONDS = 0.52
_CLOCK_ROUNDS = 12
_STAGGER_SECONDS = 0.05
_CONNECTIONS = ("kept", "new")
_START_SECONDS = 600


def on_a_clock(levels: list[int], rounds: int, *, keep: bool) -> dict[int, list[Found]]:
    """Measure with the scripted upstream; clients ``keep`` their connections or make new ones."""
    found = {}
    upstream = scripted()
    try:
        gateway = next(c for c in everyone() if c.name == GATEWAY).start(upstream.url)
        try:
            asked = request(_CLOCK.body, keep=keep)
            for level in levels:
                found[level] = judge(
                    rounds_of(
                        upstream.port,
                        gateway.port,
                        [(asked, asked)] * level,
                        each=2,
                        # Spread over one stream's length: those who ask together wait in line.
                        stagger=_CLOCK_SECONDS / level,
                        rounds=rounds,
                        check=_numbered,
                        keep=keep,
                    )
                )
        finally:
            gateway.stop()
    finally:
        upstream.stop()
    return found


def _numbered(stream: Stream) -> None:
    if unframed(stream.answer) != _CLOCK.answer:
        raise SystemExit("a stream is not what was sent")


def with_the_engine(artifact: Path, levels: list[int], quick: bool) -> dict[int, list[Found]]:
    """Measure with vLLM itself."""
    port = free_port()
    command = [sys.executable, "-m", "modelops", "serve", str(artifact), "--engine", "vllm"]
    command += ["--name", "chat", "--enforce-eager", "--max-model-len", "2048"]
    log = RESULTS / "logs" / "vllm.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    server = Running("modelops with vLLM", [*command, "--port", str(port)], port, log, {})
    try:
        server.wait(PATH, Body(chat("Hello", max_tokens=1)), seconds=_START_SECONDS, pause=1)
        socket = _socket_of(server)
        found = {}
        for level in levels:
            tokens, each, rounds = _ENGINE[level]
            bodies = [
                chat(
                    f"Write story number {number} about the sea.",
                    max_tokens=tokens, min_tokens=tokens, ignore_eos=True, temperature=0,
                    stream_options={"include_usage": True},
                )
                for number in range(level)
            ]  # fmt: skip
            found[level] = judge(
                rounds_of(
                    socket,
                    port,
                    [(request(body, keep=True),) * 2 for body in bodies],
                    each=each,
                    stagger=_STAGGER_SECONDS,
                    rounds=1 if quick else rounds,
                    check=_of_length(tokens),
                    keep=True,
                )
            )
        return found
    finally:
        server.stop()


def _of_length(tokens: int) -> Callable[[Stream], Any]:
    def check(stream: Stream) -> None:
        body = unframed(stream.answer)
        if b'"completion_tokens":%d' % tokens not in body or not body.endswith(b"[DONE]\n\n"):
            raise SystemExit(f"a stream has not {tokens} tokens: {body[-500:]!r}")

    return check


def _socket_of(server: Running) -> str:
    """Return the unix socket that the engine was told to listen on."""
    for process in server.tree():
        words = process.cmdline()
        if "--uds" in words:
            return str(words[words.index("--uds") + 1])
    raise SystemExit("no process of the server was started with --uds")


def show(title: str, found: dict[int, list[Found]]) -> None:
    """Print one table."""
    table = report.table_of(
        f"\n{title}", "streams", "figure", "measured", "95 % interval", "rounds",
        "direct to itself", "target", "",
    )  # fmt: skip
    for level, figures in found.items():
        for figure in figures:
            sign = "≤" if figure.at_most else "≥"
            table.add_row(
                str(level), figure.name, f"{figure.value:.2f}",
                f"{figure.low:.2f}–{figure.high:.2f}", f"{figure.lowest:.2f}–{figure.highest:.2f}",
                f"{figure.noise:.2f}", f"{sign} {figure.bound:g}", figure.word,
            )  # fmt: skip
    report.console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--artifact", type=Path, help="a text artifact [SmolLM2, exported once]")
    parser.add_argument("--streams", type=int, action="append", choices=LEVELS)
    parser.add_argument("--without-engine", action="store_true", help="only the scripted upstream")
    parser.add_argument("--quick", action="store_true", help="1 round of each: does it run?")
    parser.add_argument(
        "--rounds", type=int, default=_CLOCK_ROUNDS, help="on the clock [%(default)s]"
    )
    parser.add_argument(
        "--connections", choices=_CONNECTIONS, action="append", help="on the clock [both]"
    )
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # end what was started
    levels = options.streams or list(LEVELS)
    where = report.machine()
    content: dict[str, Any] = {"machine": where}
    every = _CLOCK.every_us / 1000
    for kind in options.connections or _CONNECTIONS:
        rounds = 1 if options.quick else options.rounds
        clock = content[f"clock, {kind}"] = on_a_clock(levels, rounds, keep=kind == "kept")
        show(f"a scripted upstream, a token every {every:g} ms; {kind} connections", clock)
    if options.without_engine:
        report.console.print("NOT MEASURED: vLLM itself: left out by --without-engine")
    elif why := _missing():
        report.console.print(f"NOT MEASURED: vLLM itself: {why}")
    else:
        engine = with_the_engine(options.artifact or smollm2(), levels, options.quick)
        content["engine"] = engine
        show("vLLM, SmolLM2-135M-Instruct, --enforce-eager", engine)
    report.console.print(where)
    print(f"written to {report.save('vllm', content)}", file=sys.stderr)


def _missing() -> str:
    """Why vLLM cannot be started here; nothing where it can."""
    from modelops.environments import find_environment
    from modelops.errors import ModelopsError

    try:
        find_environment("vllm")
    except ModelopsError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main()
