"""``modelops serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from modelops.cli import output
from modelops.cli.typed import typed

_MODELS = "Models (or --config)"
_TORCH = "PyTorch (or options, in --config)"
_VLLM = "vLLM (or options, in --config)"
_GATEWAY = "Gateway (each overrides the configuration)"


def serve(
    ctx: typer.Context,
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[SOURCE]...",
            help="Artifacts, or versions of them; for vLLM also Hugging Face folders and hub ids. "
            "Default: the newest artifact in ./artifacts.",
            show_default=False,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Serve what this modelops.yaml says. Paths in it are relative to its folder.",
            show_default=False,
        ),
    ] = None,
    name: Annotated[
        list[str] | None,
        typer.Option(
            help="Serve under this name (once for each SOURCE).",
            show_default=False,
            rich_help_panel=_MODELS,
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            help="The engine. Default: by the artifact's format.",
            show_default=False,
            rich_help_panel=_MODELS,
        ),
    ] = None,
    provider: Annotated[
        str,
        typer.Option(
            help="Execution provider: auto, cpu, cuda or tensorrt.", rich_help_panel=_MODELS
        ),
    ] = "auto",
    threads: Annotated[
        int | None,
        typer.Option(
            help="Threads of the engine. Default: the usable cores.",
            show_default=False,
            rich_help_panel=_MODELS,
        ),
    ] = None,
    lanes: Annotated[
        int | None,
        typer.Option(
            help="Inferences side by side, sharing the threads. Default: on CPUs one a thread, "
            "where it pays.",
            show_default=False,
            rich_help_panel=_MODELS,
        ),
    ] = None,
    inline: Annotated[
        bool,
        typer.Option(
            "--inline",
            help="Run the engine inside the front: lowest latency, no isolation.",
            rich_help_panel=_MODELS,
        ),
    ] = False,
    replicas: Annotated[
        int, typer.Option(help="Engine processes for each model.", rich_help_panel=_MODELS)
    ] = 1,
    max_batch: Annotated[
        int,
        typer.Option(
            help="Most items in one call of the engine; 1 turns batching off.",
            rich_help_panel=_MODELS,
        ),
    ] = 32,
    max_delay_ms: Annotated[
        float,
        typer.Option(
            help="How long a request may be passed over for a fuller batch.",
            rich_help_panel=_MODELS,
        ),
    ] = 2,
    max_queue: Annotated[
        int,
        typer.Option(
            help="Requests that may wait for a model; more get 503.", rich_help_panel=_MODELS
        ),
    ] = 256,
    compile: Annotated[
        bool,
        typer.Option(
            "--compile",
            help="Compile the program when it is loaded; for --engine torch.",
            rich_help_panel=_TORCH,
        ),
    ] = False,
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The recipe of a SOURCE that is only weights; for --engine torch.",
            show_default=False,
            rich_help_panel=_TORCH,
        ),
    ] = None,
    kv_cache_dtype: Annotated[
        str,
        typer.Option(
            help="What keys and values are kept in: auto, bf16, fp8 or int8. Refused where this "
            "machine cannot.",
            rich_help_panel=_VLLM,
        ),
    ] = "auto",
    kv_cache_gib: Annotated[
        float | None,
        typer.Option(
            help="Memory for keys and values, GiB. Default: what is free; on CPUs at most 4.",
            show_default=False,
            rich_help_panel=_VLLM,
        ),
    ] = None,
    max_model_len: Annotated[
        int | None,
        typer.Option(
            help="Most tokens of a request, prompt and answer. Default: the model's limit.",
            show_default=False,
            rich_help_panel=_VLLM,
        ),
    ] = None,
    tensor_parallel_size: Annotated[
        int, typer.Option(help="Devices that share each layer.", rich_help_panel=_VLLM)
    ] = 1,
    pipeline_parallel_size: Annotated[
        int,
        typer.Option(help="Devices that the layers are divided among.", rich_help_panel=_VLLM),
    ] = 1,
    distributed_executor_backend: Annotated[
        str | None,
        typer.Option(
            help="What starts the workers: mp or ray. Default: vLLM's choice.",
            show_default=False,
            rich_help_panel=_VLLM,
        ),
    ] = None,
    speculative: Annotated[
        str | None,
        typer.Option(
            help='Speculative decoding: ngram, or JSON such as {"method": "ngram", "tokens": 4}.',
            show_default=False,
            rich_help_panel=_VLLM,
        ),
    ] = None,
    enforce_eager: Annotated[
        bool,
        typer.Option(
            "--enforce-eager",
            help="Compile nothing: it starts sooner and answers slower.",
            rich_help_panel=_VLLM,
        ),
    ] = False,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(
            help="A further argument, such as --engine-arg=--max-num-seqs=16. May be repeated.",
            show_default=False,
            rich_help_panel=_VLLM,
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            help="Address to listen on; other than loopback needs an API key.",
            rich_help_panel=_GATEWAY,
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 takes a free one.", rich_help_panel=_GATEWAY)
    ] = 8080,
    fronts: Annotated[
        int, typer.Option(help="HTTP processes that share the port.", rich_help_panel=_GATEWAY)
    ] = 1,
    admin_port: Annotated[
        int | None,
        typer.Option(
            help="A port that also answers loading and unloading; 0 takes a free one. "
            "Default: off.",
            show_default=False,
            rich_help_panel=_GATEWAY,
        ),
    ] = None,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            help="Ask for this key as 'Authorization: Bearer'. May be repeated. Others on this "
            "machine can see it in the process list: MODELOPS_API_KEYS (comma-separated) is safer.",
            show_default=False,
            rich_help_panel=_GATEWAY,
        ),
    ] = None,
    max_body_mb: Annotated[
        float, typer.Option(help="Largest request body, MiB.", rich_help_panel=_GATEWAY)
    ] = 256,
    max_json_mb: Annotated[
        float, typer.Option(help="Largest JSON in a request, MiB.", rich_help_panel=_GATEWAY)
    ] = 16,
    request_seconds: Annotated[
        float, typer.Option(help="Longest a request may take before 504.", rich_help_panel=_GATEWAY)
    ] = 600,
    drain_seconds: Annotated[
        float,
        typer.Option(
            help="After SIGTERM, how long requests in flight may take.", rich_help_panel=_GATEWAY
        ),
    ] = 30,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be served, and stop.")
    ] = False,
    as_json: output.JsonFlag = False,
) -> None:
    """Serve artifacts over HTTP: Open Inference Protocol v2 and OpenAI embeddings.

    It says when it is ready, what it serves, and a request to copy. SIGTERM or Ctrl-C drains.

    A flag wins over the environment (MODELOPS_HOST, MODELOPS_PORT, MODELOPS_FRONTS,
    MODELOPS_ADMIN_PORT, MODELOPS_KEYS_FILE, MODELOPS_DRAIN_SECONDS), which wins over the
    configuration. All keys count: of --api-key, MODELOPS_API_KEYS and the keys file.

    Examples:

        modelops serve artifacts/minilm

        modelops serve artifacts/minilm artifacts/ranker --port 9000

        modelops serve artifacts/minilm/3 --name embedder --provider cuda --replicas 2

        modelops serve artifacts/smollm2 --engine vllm --kv-cache-dtype fp8

        modelops serve artifacts/smollm2 --engine vllm --speculative ngram --dry-run

        modelops serve hf://HuggingFaceTB/SmolLM2-135M-Instruct@main --engine vllm

        modelops serve ./all-MiniLM-L6-v2 --engine torch --compile

        modelops serve --config modelops.yaml --fronts 4

        MODELOPS_API_KEYS=$(openssl rand -hex 24) modelops serve --host 0.0.0.0
    """
    import os

    from modelops.api import serve as api
    from modelops.cli.plan import show_plan
    from modelops.config.keys import parse_keys

    options = {
        "engine": engine,
        "provider": provider,
        "threads": threads,
        "lanes": lanes,
        "inline": inline,
        "replicas": replicas,
        "max_batch": max_batch,
        "max_delay_ms": max_delay_ms,
        "max_queue": max_queue,
        "kv_cache_dtype": kv_cache_dtype,
        "kv_cache_gib": kv_cache_gib,
        "max_model_len": max_model_len,
        "tensor_parallel_size": tensor_parallel_size,
        "pipeline_parallel_size": pipeline_parallel_size,
        "distributed_executor_backend": distributed_executor_backend,
        "speculative": speculative,
        "enforce_eager": enforce_eager,
        "engine_arg": engine_arg,
        "compile": compile,
    }
    server = {
        "host": host,
        "port": port,
        "fronts": fronts,
        "admin_port": admin_port,
        "drain_seconds": drain_seconds,
    }
    limits = {
        "max_body_mb": max_body_mb,
        "max_json_mb": max_json_mb,
        "request_seconds": request_seconds,
    }
    keys = {"api_keys": parse_keys(" ".join(api_key))} if api_key else {}
    request = api.ServeRequest(
        config=config,
        sources=tuple(sources or ()),
        names=tuple(name or ()),
        recipe=recipe,
        options=_typed(ctx, options),
        server=_typed(ctx, server) | keys,
        limits=_typed(ctx, limits),
        environment=dict(os.environ),
        dry_run=dry_run,
    )
    plan = api.serve(request, output.note, lambda ready: _say_ready(ready, as_json))
    if dry_run:
        output.emit(plan, as_json=as_json, show=None if as_json else show_plan(plan))


def _typed(ctx: typer.Context, values: dict[str, Any]) -> dict[str, Any]:
    """Return what was typed: a flag's default must not override the configuration."""
    given = typed(ctx)
    return {name: value for name, value in values.items() if name in given}


def _say_ready(ready: Any, as_json: bool) -> None:
    from rich.text import Text

    lines = [f"ready at {ready.url}"]
    lines += [f"  {_served(model)}" for model in ready.models]
    lines.append(f"  page {ready.url}/   API {ready.url}/docs   metrics {ready.url}/metrics")
    if ready.admin_url is not None:
        lines.append(f"  admin {ready.admin_url}")
    lines += [
        "try it:",
        f"  {ready.curl}",
        "stop with Ctrl-C or SIGTERM: requests in flight are finished first",
    ]
    event = {
        "event": "ready",
        "url": ready.url,
        "admin_url": ready.admin_url,
        "models": list(ready.models),
        "curl": ready.curl,
    }
    output.emit(event, as_json=as_json, show=Text("\n".join(lines)))


def _served(model: dict[str, Any]) -> str:
    lanes = f" in {model['lanes']} lanes" if model.get("lanes", 1) > 1 else ""
    runs = ", inline" if model["inline"] else ""
    runs += f", {model['replicas']} replicas" if model["replicas"] > 1 else ""
    what = f"{model['name']} version {model['version']} ({model['task']})"
    if not model["ready"]:
        return f"{what} is not ready, and is tried again: {model['why']}"
    if "provider_note" not in model:  # a server of its own
        engine = " ".join(filter(None, (model["engine"], model.get("engine_version"))))
        return f"{what} by {engine} on {model['provider']}{runs}" + _text_details(model)
    return (
        f"{what} by {model['engine']} on "
        f"{model['provider']}, {model['threads']} threads{lanes}, {model['precision']}{runs}; "
        f"{model['provider_note']}"
    )


def _text_details(model: dict[str, Any]) -> str:
    details = [model["precision"]] if model.get("precision") else []
    cache = model.get("kv_cache") or {}
    if cache.get("bytes_per_value"):
        tokens = f"{cache['tokens']:,} tokens" if cache.get("tokens") else "its size is unknown"
        details.append(f"KV cache {tokens} at {cache['bytes_per_value']:g} bytes a value")
    if model.get("max_model_len"):
        details.append(f"up to {model['max_model_len']:,} tokens a request")
    return "".join(f", {detail}" for detail in details)
