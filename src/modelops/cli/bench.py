"""``modelops bench``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from modelops.cli import output
from modelops.cli.typed import typed
from modelops.errors import UsageError

_TENSORS = "Models of tensors"
_TEXT = "Language models"
_OF_TENSORS = ("source", "recipe", "against", "batch", "dim", "threads", "seconds")
_OF_TEXT = (
    "engine", "kv_cache_dtype", "concurrency", "requests", "input_tokens", "output_tokens",
    "kv_cache_gib", "tensor_parallel_size", "enforce_eager", "engine_arg", "folder",
)  # fmt: skip


def bench(
    context: typer.Context,
    artifacts: Annotated[list[Path], typer.Argument(metavar="DIR…", help="The artifacts.")],
    source: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="The checkpoint they were exported from.",
            rich_help_panel=_TENSORS,
        ),
    ] = None,
    recipe: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The recipe that they were exported by.",
            rich_help_panel=_TENSORS,
        ),
    ] = None,
    against: Annotated[
        str,
        typer.Option(
            help="eager, compile, or both; with --source the default is eager.",
            rich_help_panel=_TENSORS,
        ),
    ] = "",
    batch: Annotated[str, typer.Option(help="Batch sizes.", rich_help_panel=_TENSORS)] = "1,8,16",
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            help="Size of another dim (repeatable).",
            rich_help_panel=_TENSORS,
        ),
    ] = None,
    threads: Annotated[
        int | None,
        typer.Option(min=1, help="Threads [every usable core].", rich_help_panel=_TENSORS),
    ] = None,
    seconds: Annotated[
        float,
        typer.Option(help="Time for each contender at each size.", rich_help_panel=_TENSORS),
    ] = 2.0,
    engine: Annotated[
        str,
        typer.Option(help="What runs a language model: vllm.", rich_help_panel=_TEXT),
    ] = "vllm",
    kv_cache_dtype: Annotated[
        str,
        typer.Option(
            help="Types of KV cache, side by side: auto, bf16, fp8, int8.", rich_help_panel=_TEXT
        ),
    ] = "auto",
    concurrency: Annotated[
        int,
        typer.Option(
            min=1,
            help="Requests at a time; then twice as many, which bf16 cannot hold.",
            rich_help_panel=_TEXT,
        ),
    ] = 8,
    requests: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Requests at each. Default: four times --concurrency.",
            show_default=False,
            rich_help_panel=_TEXT,
        ),
    ] = None,
    input_tokens: Annotated[
        int, typer.Option(min=16, help="Tokens of the longest prompt.", rich_help_panel=_TEXT)
    ] = 256,
    output_tokens: Annotated[
        int, typer.Option(min=8, help="Tokens of each answer.", rich_help_panel=_TEXT)
    ] = 128,
    kv_cache_gib: Annotated[
        float | None,
        typer.Option(
            help="The KV cache of each worker, in GiB. Default: what --concurrency of the longest "
            "requests need in bf16.",
            show_default=False,
            rich_help_panel=_TEXT,
        ),
    ] = None,
    tensor_parallel_size: Annotated[
        int,
        typer.Option(min=1, help="Devices that share each layer.", rich_help_panel=_TEXT),
    ] = 1,
    enforce_eager: Annotated[
        bool,
        typer.Option("--enforce-eager", help="Compile nothing.", rich_help_panel=_TEXT),
    ] = False,
    engine_arg: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARG",
            help="A further argument of the engine (repeatable).",
            rich_help_panel=_TEXT,
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="DIR",
            help="The report's folder. Default: a new one below reports.",
            show_default=False,
            rich_help_panel=_TEXT,
        ),
    ] = None,
    as_json: output.JsonFlag = False,
) -> None:
    """Measure artifacts, eager and compiled PyTorch side by side: one table, one run.

    A language model is measured behind its engine, with one type of KV cache after the other:
    tokens a GiB, time to first token, time per token, tokens/s, also where the cache is too small,
    and how far its answers drift. A type that is not possible here is a row that says why; exit
    code 5 where none is.

    Examples:

        modelops bench artifacts/minilm --source ./all-MiniLM-L6-v2 --against eager,compile

        modelops bench artifacts/minilm/1 artifacts/minilm/2 --batch 1,32 --dim sequence=128

        modelops bench artifacts/smollm2 --engine vllm --kv-cache-dtype auto,fp8,int8
    """
    from modelops.api import bench as api
    from modelops.api.text_bench import is_language_model

    given = typed(context)
    texts = [path for path in artifacts if is_language_model(path)]
    if texts and len(texts) < len(artifacts):
        raise UsageError(
            f"{texts[0]} is a language model, which is measured alone and behind its engine",
            hint="name it in a command of its own, and the others in another",
        )
    if "engine" in given or texts:
        _refuse(given, _OF_TENSORS, f"{artifacts[0]} is measured behind an engine")
        if len(artifacts) > 1:
            raise UsageError("one language model is measured at a time")
        asked = {
            "artifact": artifacts[0],
            "engine": engine,
            "kv_cache_dtypes": [part.strip() for part in kv_cache_dtype.split(",")],
            "concurrency": concurrency,
            "requests": requests,
            "input_tokens": input_tokens,
            "output_tokens": output_tokens,
            "kv_cache_gib": kv_cache_gib,
            "options": {
                "tensor_parallel_size": tensor_parallel_size,
                "enforce_eager": enforce_eager,
                "engine_args": engine_arg or (),
            },
            "output": folder,
        }
        _bench_text(asked, as_json=as_json)
        return
    _refuse(given, _OF_TEXT, f"{artifacts[0]} is no language model")
    from modelops.signature import parse_dim

    kinds = [k.strip() for k in against.split(",") if k.strip()] or (["eager"] if source else [])
    if unknown := set(kinds) - {"eager", "compile"}:
        raise UsageError(f"--against {min(unknown)!r} is neither eager nor compile")
    if not all(part.strip().isdigit() and int(part) for part in batch.split(",")):
        raise UsageError(f"--batch {batch!r} is no list of sizes", hint="such as 1,8,16")
    request = api.BenchRequest.model_validate(
        {
            "artifacts": artifacts,
            "source": source,
            "recipe": recipe,
            "against": kinds,
            "batches": [int(part) for part in batch.split(",")],
            "dims": {name: found.max for name, found in map(parse_dim, dim or [])},
            "threads": threads,
            "seconds": seconds,
        }
    )
    with output.progress() as progress:
        result = api.bench(request, progress)
    output.emit(result, as_json=as_json, show=None if as_json else api.view(result))


def _bench_text(asked: dict[str, Any], *, as_json: bool) -> None:
    from modelops.api import text_bench as api

    request = api.TextBenchRequest.model_validate(asked)
    with output.progress() as progress:
        result = api.bench_text(request, progress)
    output.emit(result, as_json=as_json, show=None if as_json else api.view(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)


def _refuse(given: list[str], others: tuple[str, ...], why: str) -> None:
    """Refuse options of the other kind of model, rather than leave them out.

    Raises:
        UsageError: one was typed.
    """
    wrong = [
        "--" + name.replace("_", "-").replace("folder", "output")
        for name in given
        if name in others
    ]
    if wrong:
        raise UsageError(
            f"{why}: {', '.join(wrong)} {'mean' if len(wrong) > 1 else 'means'} nothing there"
        )
