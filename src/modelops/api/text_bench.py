"""Measuring a language model behind its engine, with one KV cache type after the other."""

from __future__ import annotations

import shlex
from datetime import datetime
from itertools import count, islice
from pathlib import Path
from typing import Any

from modelops import registry
from modelops.artifact import TEXT_FORMAT
from modelops.errors import InputError
from modelops.progress import Progress, silent
from modelops.report.text_bench import to_html
from modelops.resolving import find_source
from modelops.text_benchmark import TextBenchRequest, TextBenchResult

__all__ = ["TextBenchRequest", "TextBenchResult", "bench_text", "is_language_model", "view"]


def bench_text(request: TextBenchRequest, progress: Progress = silent) -> TextBenchResult:
    """Start the engine with each type of KV cache, measure it, and write a report.

    Raises:
        InputError, VerificationError: the model or an option of the engine is off.
        MissingEnvironmentError: the engine is not installed, or can do none of the types here.
    """
    run = registry.load("modelops_servers.text_bench.run:run", extra="serve")
    folder = _folder(request)
    measured: TextBenchResult = run(request, folder, progress)
    page, data = folder / "report.html", folder / "report.json"
    result = measured.model_copy(
        update={
            "command": _command(request),
            "files": {"folder": str(folder), "report": str(page), "json": str(data)},
        }
    )
    try:
        page.write_text(to_html(result), encoding="utf-8")
        data.write_text(result.model_dump_json(indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise InputError(f"the report cannot be written: {error}", hint="see -o") from error
    return result


def is_language_model(artifact: Path) -> bool:
    """Whether ``artifact`` is for text engines: exported so, or a plain Hugging Face folder.

    Raises:
        InputError, IntegrityError: there is no such artifact, or its manifest is off.
    """
    _, manifest = find_source(artifact)
    return manifest is None or manifest.format == TEXT_FORMAT


def view(result: TextBenchResult) -> Any:
    """Return the tables as a rich renderable for a terminal."""
    from modelops.report.text_bench_table import text_bench_table

    return text_bench_table(result)


def _folder(request: TextBenchRequest) -> Path:
    """Return the folder that was named, or one below ``reports`` that is not there yet."""
    if request.output is not None:
        return request.output
    stem = Path("reports") / f"bench-{datetime.now():%Y%m%d-%H%M%S}"
    numbered = (stem.with_name(f"{stem.name}-{number}") for number in count(2))
    return next(path for path in (stem, *islice(numbered, 1000)) if not path.exists())


def _command(request: TextBenchRequest) -> str:
    """Return the command line that repeats the run."""
    parts = ["modelops", "bench", str(request.artifact), "--engine", request.engine]
    parts += ["--kv-cache-dtype", ",".join(request.kv_cache_dtypes)]
    for flag, value in (
        ("--concurrency", request.concurrency),
        ("--requests", request.measured_requests),
        ("--input-tokens", request.input_tokens),
        ("--output-tokens", request.output_tokens),
        ("--kv-cache-gib", request.kv_cache_gib),
        ("--tensor-parallel-size", request.options.tensor_parallel_size),
    ):
        if value is not None:
            parts += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    parts += ["--enforce-eager"] if request.options.enforce_eager else []
    parts += [f"--engine-arg={argument}" for argument in request.options.engine_args]
    return shlex.join(parts)
