"""``modelops loadtest``."""

from __future__ import annotations

import signal
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from modelops.cli import output
from modelops.cli.output import JsonFlag

_LOAD = "Load (one of --users, --rate, --sweep, --trace)"
_TIME = "Time"
_CONTENT = "What is sent"
_JUDGE = "What must hold"


class Encoding(StrEnum):
    """How tensors and vectors travel."""

    JSON = "json"
    BINARY = "binary"


class Arrivals(StrEnum):
    """How the gaps between arrivals of an open loop are distributed."""

    POISSON = "poisson"
    CONSTANT = "constant"
    GAMMA = "gamma"


def loadtest(
    url: Annotated[str, typer.Argument(help="The server's base URL.")],
    scenario: Annotated[
        str,
        typer.Option(
            "--scenario",
            "-s",
            help="What to send: chat, completion, embeddings or tensors; or several by weight: "
            "chat=3,embeddings=1.",
        ),
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="The model to load, or SCENARIO=MODEL for each. Default: the only one that is "
            "ready.",
            show_default=False,
        ),
    ] = None,
    api_key: Annotated[
        str | None,
        typer.Option(envvar="MODELOPS_API_KEY", help="Sent as a bearer token.", show_envvar=True),
    ] = None,
    users: Annotated[
        int | None,
        typer.Option(
            "--users",
            "-u",
            min=1,
            max=10_000,
            help="Closed loop: requests in flight at a time. Default: 8.",
            show_default=False,
            rich_help_panel=_LOAD,
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            "--rate",
            "-r",
            help="Open loop: requests a second (with --turns: conversations), never waiting for "
            "earlier ones.",
            show_default=False,
            rich_help_panel=_LOAD,
        ),
    ] = None,
    arrivals: Annotated[
        Arrivals, typer.Option(help="Gaps of an open loop.", rich_help_panel=_LOAD)
    ] = Arrivals.POISSON,
    burstiness: Annotated[
        float,
        typer.Option(
            help="Shape of gamma gaps: below 1 bursts, 1 is Poisson, above 1 regular.",
            rich_help_panel=_LOAD,
        ),
    ] = 1.0,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="AXIS=LOADS",
            help="Step by step: rate=1..64 or users=1..64 doubles, then looks closer around the "
            "knee; rate=1,2,5 takes these.",
            show_default=False,
            rich_help_panel=_LOAD,
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help='Replay: JSONL of {"at": s, "input_tokens": n, "output_tokens": m}.',
            show_default=False,
            rich_help_panel=_LOAD,
        ),
    ] = None,
    connections: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most connections of an open loop. Default: as many as needed.",
            show_default=False,
            rich_help_panel=_LOAD,
        ),
    ] = None,
    processes: Annotated[
        int,
        typer.Option(min=1, max=256, help="Processes that send.", rich_help_panel=_LOAD),
    ] = 1,
    duration: Annotated[
        str | None,
        typer.Option(
            help="How long to measure (each stage): 20s, 2m. Default: 20s; of a trace, all of it.",
            show_default=False,
            rich_help_panel=_TIME,
        ),
    ] = None,
    max_duration: Annotated[
        str | None,
        typer.Option(
            help="Go on up to so long while an objective is undecided.",
            show_default=False,
            rich_help_panel=_TIME,
        ),
    ] = None,
    warmup: Annotated[
        str | None,
        typer.Option(
            help="Not measured, at the start (of each stage). Default: 2s; of a trace, 0s.",
            show_default=False,
            rich_help_panel=_TIME,
        ),
    ] = None,
    ramp: Annotated[
        str,
        typer.Option(help="Not measured, before it: load grows evenly.", rich_help_panel=_TIME),
    ] = "0s",
    drain: Annotated[
        str | None,
        typer.Option(
            help="How long replies are waited for at the end. Default: --timeout.",
            show_default=False,
            rich_help_panel=_TIME,
        ),
    ] = None,
    timeout: Annotated[str, typer.Option(help="Of one request.", rich_help_panel=_TIME)] = "30s",
    input_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="N|LOW..HIGH",
            help="Tokens of each prompt: 256, or drawn from 128..512.",
            show_default=False,
            rich_help_panel=_CONTENT,
        ),
    ] = None,
    output_tokens: Annotated[
        str | None,
        typer.Option(
            metavar="N|LOW..HIGH",
            help="Tokens asked for in each reply.",
            show_default=False,
            rich_help_panel=_CONTENT,
        ),
    ] = None,
    shared_prefix: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            help="Share of the prompt that all have in common.",
            rich_help_panel=_CONTENT,
        ),
    ] = 0.0,
    turns: Annotated[
        int,
        typer.Option(
            min=1,
            help="Requests of one conversation, each after the reply before.",
            rich_help_panel=_CONTENT,
        ),
    ] = 1,
    think: Annotated[
        str, typer.Option(help="Between a reply and the next turn.", rich_help_panel=_CONTENT)
    ] = "0s",
    tokenizer: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="A tokenizer.json, or a folder with one. Default: the server's /tokenize.",
            show_default=False,
            rich_help_panel=_CONTENT,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            help="Of sampling. Default: the server's.",
            show_default=False,
            rich_help_panel=_CONTENT,
        ),
    ] = None,
    no_stream: Annotated[
        bool,
        typer.Option(
            "--no-stream", help="Ask for whole replies, not for streams.", rich_help_panel=_CONTENT
        ),
    ] = False,
    ignore_eos: Annotated[
        bool | None,
        typer.Option(
            "--ignore-eos/--stop-at-eos",
            help="Whether replies run to their asked length. Default: where the server is known "
            "to take it.",
            show_default=False,
            rich_help_panel=_CONTENT,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Your own texts: one a line, or .jsonl of prompts or messages.",
            show_default=False,
            rich_help_panel=_CONTENT,
        ),
    ] = None,
    encoding: Annotated[
        Encoding, typer.Option(help="Of tensors and vectors.", rich_help_panel=_CONTENT)
    ] = Encoding.JSON,
    batch: Annotated[
        int,
        typer.Option(
            min=1,
            max=4096,
            help="Inputs a request: embeddings, tensors.",
            rich_help_panel=_CONTENT,
        ),
    ] = 1,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SIZE",
            help="Size of a dynamic dim: sequence=64. Repeatable.",
            show_default=False,
            rich_help_panel=_CONTENT,
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Of every random choice. Default: drawn, so that no earlier run's prompt is "
            "found in the server's cache.",
            show_default=False,
            rich_help_panel=_CONTENT,
        ),
    ] = None,
    slo: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=BOUND|FILE",
            help="An objective: ttft_p95_ms=300, tpot_p99_ms=60, error_rate=0.001, goodput_rps=5; "
            "or a YAML file of them. Repeatable.",
            show_default=False,
            rich_help_panel=_JUDGE,
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            metavar="RUN",
            help="An earlier run: its report.json or folder.",
            show_default=False,
            rich_help_panel=_JUDGE,
        ),
    ] = None,
    max_regression: Annotated[
        list[str] | None,
        typer.Option(
            metavar="METRIC=SHARE",
            help="How much worse than the baseline it may be: p95=5%. Repeatable.",
            show_default=False,
            rich_help_panel=_JUDGE,
        ),
    ] = None,
    no_calibration: Annotated[
        bool,
        typer.Option(
            "--no-calibration",
            help="Leave out the client's own error, which is otherwise measured once a machine.",
            rich_help_panel=_JUDGE,
        ),
    ] = False,
    metrics_url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Prometheus metrics of the server. Default: /metrics below its URL.",
            show_default=False,
        ),
    ] = None,
    no_server_metrics: Annotated[
        bool,
        typer.Option("--no-server-metrics", help="Do not look at the server's metrics."),
    ] = False,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The report's folder. Default: reports/…", show_default=False
        ),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Load a server with locust, measure it, and judge it.

    Exit code 6 when an objective fails or its metric is missing, 7 when the run cannot be
    believed, has too few samples, or nothing was measured. The report is an HTML page, a JSON
    file, a Markdown summary and every raw sample.

    Examples:

        modelops loadtest http://127.0.0.1:8080 --scenario embeddings --slo e2e_p95_ms=300 --slo error_rate=0

        modelops loadtest http://127.0.0.1:8000 --scenario chat --rate 5 --input-tokens 256 --output-tokens 64 --slo ttft_p95_ms=300

        modelops loadtest http://127.0.0.1:8000 --scenario chat --sweep rate=1..64 --duration 20s --slo slo.yaml

        modelops loadtest http://127.0.0.1:8080 --scenario tensors --model minilm --dim sequence=64 --encoding binary
    """  # noqa: E501
    from modelops.api import loadtest as api

    request = api.LoadtestRequest(
        url=url,
        scenario=scenario,
        model=tuple(model) if model else None,
        users=users,
        rate=rate,
        arrivals=arrivals.value,
        burstiness=burstiness,
        sweep=sweep,
        trace=trace,
        connections=connections,
        processes=processes,
        duration_s=None if duration is None else api.seconds(duration),
        max_duration_s=None if max_duration is None else api.seconds(max_duration),
        warmup_s=None if warmup is None else api.seconds(warmup),
        ramp_s=api.seconds(ramp),
        drain_s=None if drain is None else api.seconds(drain),
        timeout_s=api.seconds(timeout),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        shared_prefix=shared_prefix,
        turns=turns,
        think_s=api.seconds(think),
        tokenizer=tokenizer,
        temperature=temperature,
        stream=not no_stream,
        ignore_eos=ignore_eos,
        data=data,
        encoding=encoding.value,
        batch=batch,
        dims=tuple(dim or ()),
        seed=seed,
        slo=tuple(slo or ()),
        baseline=baseline,
        max_regression=tuple(max_regression or ()),
        calibrate=not no_calibration,
        metrics_url=metrics_url,
        server_metrics=not no_server_metrics,
        output=folder,
        api_key=api_key or None,
    )
    # A pipeline that is cancelled sends SIGTERM; what was measured is kept then, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.stderr.isatty():
        with api.live() as live:
            result = api.loadtest(request, live, live.update)
    else:
        result = api.loadtest(request, output.note)
    output.emit(result.report, as_json=as_json, show=api.table(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)
