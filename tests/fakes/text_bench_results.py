"""Made-up results of ``modelops bench`` of a language model, for what shows them."""

from __future__ import annotations

from typing import Any

from modelops.text_benchmark import (
    Cache,
    Difference,
    Drift,
    Load,
    Spread,
    TextBenchResult,
    TextBenchRow,
)

REFUSED = "a KV cache of int8 is not possible here: <only> NVIDIA GPUs have it"


def load(concurrency: int, **fields: Any) -> Load:
    found: dict[str, Any] = {
        "concurrency": concurrency,
        "requests": 32,
        "completed": 32,
        "failed": 0,
        "failures": (),
        "seconds": 20.0,
        "prompt_tokens": 5120,
        "output_tokens": 4096,
        "tokens_per_second": 204.8,
        "ttft_ms": Spread(p50=110.0, p95=220.0, max=230.0),
        "tpot_ms": Spread(p50=40.0, p95=45.5, max=50.0),
        "gap_ms": Spread(p50=39.0, p95=60.0, max=1234.5),
        "tokens_per_chunk": 1.0,
        "grown_tokens": 320 * concurrency,
        "must_preempt": 320 * concurrency > 3072,
        "preemptions": 0,
    }
    return Load(**(found | fields))


def drift(against: str, **fields: Any) -> Drift:
    found: dict[str, Any] = {
        "against": against,
        "prompts": 2,
        "tokens": 96,
        "same_tokens": 96,
        "diverged_at": (None, None),
        "decoded": Difference(positions=96, mean=0.0, max=0.0),
        "forced": Difference(positions=400, mean=0.0, max=0.0),
        "same_top": 1.0,
    }
    return Drift(**(found | fields))


def measured(name: Any, **fields: Any) -> TextBenchRow:
    found: dict[str, Any] = {
        "kv_cache_dtype": name,
        "state": "measured",
        "start_seconds": 40.0,
        "cache": Cache(
            bytes=73728000, tokens=3200, block_tokens=128, bytes_per_value=2.0,
            tokens_per_gib=46603,
        ),
        "fits": load(8),
        "tight": load(16, preemptions=12),
    }  # fmt: skip
    return TextBenchRow(**(found | fields))


def result(*rows: TextBenchRow, **fields: Any) -> TextBenchResult:
    """By default auto, twice as small fp8 that drifts a little, and a refused int8."""
    half = Cache(
        bytes=73728000, tokens=6400, block_tokens=128, bytes_per_value=1.0, tokens_per_gib=93206
    )
    little = drift(
        "auto",
        same_tokens=60,
        diverged_at=(12, None),
        decoded=Difference(positions=60, mean=0.004, max=0.02),
        forced=Difference(positions=400, mean=0.0123, max=0.4567),
        same_top=0.9875,
    )
    fp8 = measured("fp8", cache=half, drift=little, tight=load(16, must_preempt=False))
    refused = TextBenchRow(kv_cache_dtype="int8", state="refused", why=REFUSED)
    found: dict[str, Any] = {
        "model": "smol<lm>",
        "digest": "sha256:1",
        "engine": "vllm 0.0",
        "build": "cpu",
        "platform": "cpu",
        "versions": {"modelops": "0.1"},
        "machine": {"cores": "2"},
        "started_at": "2026-01-02T03:04:05+00:00",
        "seconds": 200.0,
        "kv_cache_bytes": 73728000,
        "concurrency": 8,
        "crowd": 16,
        "requests": 32,
        "prompt_tokens": (256, 64, 192, 128),
        "output_tokens": 128,
        "drift_prompt_tokens": (64, 256),
        "drift_output_tokens": 48,
        "max_model_len": 384,
        "engine_options": {"enforce_eager": True},
        "rows": rows or (measured("auto", repeat=drift("auto")), fp8, refused),
        "notes": ("prefix caching is off",),
        "command": "modelops bench m",
        "files": {"report": "reports/r/report.html"},
    }
    return TextBenchResult(**(found | fields))
