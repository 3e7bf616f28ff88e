"""``modelops serve``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from modelops.cli import output
from modelops.errors import UsageError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from modelops.api.serve import ServePlan, ServeRequest


def serve(
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="Artifacts, or versions of them. Default: the newest in ./artifacts.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(help="Serve under this name (once for each SOURCE).", show_default=False),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="The engine. Default: by the artifact's format.", show_default=False),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; other than loopback needs an API key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="Port to listen on; 0 takes a free one.")] = 8080,
    provider: Annotated[
        str, typer.Option(help="Execution provider: auto, cpu, cuda or tensorrt.")
    ] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            help="Threads for one inference. Default: the usable cores.", show_default=False
        ),
    ] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            help="Ask for this key as 'Authorization: Bearer'. May be repeated. Others on this "
            "machine can see it in the process list: MODELOPS_API_KEYS (comma-separated) is safer.",
            show_default=False,
        ),
    ] = None,
    max_queue: Annotated[
        int, typer.Option(help="Requests that may wait for a model; more get 503.")
    ] = 256,
    max_body_mb: Annotated[float, typer.Option(help="Largest request body, MiB.")] = 256,
    max_json_mb: Annotated[float, typer.Option(help="Largest JSON in a request, MiB.")] = 16,
    request_seconds: Annotated[
        float, typer.Option(help="Longest a request may take before 504.")
    ] = 600,
    drain_seconds: Annotated[
        float, typer.Option(help="After SIGTERM, how long requests in flight may take.")
    ] = 30,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be served, and stop.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """Serve artifacts over HTTP: Open Inference Protocol v2 and OpenAI embeddings.

    It says when it is ready, what it serves, and a request to copy. SIGTERM or Ctrl-C drains.

    Examples:

        modelops serve artifacts/minilm

        modelops serve artifacts/minilm artifacts/ranker --port 9000

        modelops serve artifacts/minilm/3 --name embedder --provider cuda

        MODELOPS_API_KEYS=$(openssl rand -hex 24) modelops serve --host 0.0.0.0
    """
    import os

    from modelops.api.serve import explain, parse_keys
    from modelops.api.serve import serve as run

    keys = (*parse_keys(os.environ.get("MODELOPS_API_KEYS")), *parse_keys(" ".join(api_key or [])))
    fields: dict[str, Any] = {
        "sources": tuple(sources or ()),
        "names": tuple(name or ()),
        "engine": engine,
        "provider": provider,
        "threads": threads,
        "max_queue": max_queue,
        "server": {"host": host, "port": port, "drain_seconds": drain_seconds, "api_keys": keys},
        "limits": {
            "max_body_mb": max_body_mb,
            "max_json_mb": max_json_mb,
            "request_seconds": request_seconds,
        },
        "dry_run": dry_run,
    }
    plan = run(_request(fields, explain), output.note, lambda ready: _say_ready(ready, as_json))
    if dry_run:
        output.emit(plan, as_json=as_json, show=_plan(plan))


def _request(fields: dict[str, Any], explain: Any) -> ServeRequest:
    from pydantic import ValidationError

    from modelops.api.serve import ServeRequest

    try:
        return ServeRequest(**fields)
    except ValidationError as error:
        raise UsageError(explain(error), hint="modelops serve --help") from error


def _say_ready(ready: Any, as_json: bool) -> None:
    from rich.text import Text

    lines = [f"ready at {ready.url}"]
    lines += [
        f"  {model['name']} version {model['version']} ({model['task']}) by "
        f"{model['engine']} on {model['provider']}, {model['threads']} threads, "
        f"{model['precision']}; {model['provider_note']}"
        for model in ready.models
    ]
    lines += [
        f"  page {ready.url}/   API {ready.url}/docs   metrics {ready.url}/metrics",
        "try it:",
        f"  {ready.curl}",
        "stop with Ctrl-C or SIGTERM: requests in flight are finished first",
    ]
    output.emit(
        {"event": "ready", "url": ready.url, "models": list(ready.models), "curl": ready.curl},
        as_json=as_json,
        show=Text("\n".join(lines)),
    )


def _plan(plan: ServePlan) -> RenderableType:
    from rich.text import Text

    keys = f"{plan.api_keys} API keys" if plan.api_keys else "API keys off"
    lines = [f"would listen on {plan.host}:{plan.port}, {keys}"]
    lines += [f"  {m.name}: {m.source} by {m.engine} on {m.provider}" for m in plan.models]
    return Text("\n".join(lines))
