"""Results of load tests that never ran: whole, seeded, and in the form that reports are made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from modelops_loadtests.measure import Window, measure, summary
from modelops_loadtests.report import reason
from modelops_loadtests.samples import Sample, SampleTable

URL = "http://127.0.0.1:8080"
WARMUP, END, DRAINED = 4.0, 34.0, 1.6


def chat_samples(seed: int = 1, rate: float = 8.0) -> SampleTable:
    """Return the samples of an open loop: streams that get slower for a while, and some failures.

    Four tokens of one stream in ten come in one chunk.
    """
    rng = np.random.default_rng(seed)
    due = np.cumsum(rng.exponential(1 / rate, int(rate * END)))
    return SampleTable.of(sorted(map(_chat(rng), due[due < END]), key=lambda s: s.end))


def _chat(rng: np.random.Generator) -> Any:
    def make(at: float) -> Sample:
        sent = at + float(rng.exponential(0.0004))
        busy = 1 + 3 * float(np.exp(-((at - 20) ** 2) / 8))
        first = sent + float(rng.lognormal(np.log(0.09), 0.25)) * busy
        kind = rng.random()
        base = {"sent": sent, "scheduled": at, "bytes_sent": 900, "scenario": "chat"}
        if kind < 0.02 * busy**2 / 4:
            return Sample(
                **base,
                end=first + 0.4,
                outcome="error",
                status=200,
                error="error_in_stream" if kind < 0.01 else "unfinished",
                detail='{"error": {"message": "KV cache </script><b>full</b>\x1b[31m"}}',
                first_byte=first - 0.01,
                first_token=first,
            )
        size = 4 if rng.random() < 0.1 else 1
        tokens = int(rng.integers(32, 97))
        count = -(-tokens // size)
        gaps = rng.gamma(16, 0.02 * size * (0.7 + 0.3 * busy) / 16, count - 1)
        chunks = np.concatenate([[first], first + np.cumsum(gaps)])
        if chunks[-1] > END + DRAINED:
            return Sample(**base, end=END + DRAINED, outcome="cut", first_token=first)
        per_chunk = [size] * (count - 1) + [tokens - size * (count - 1)]
        return Sample(
            **base,
            end=float(chunks[-1]) + 0.002,
            outcome="ok",
            status=200,
            first_byte=first - 0.01,
            first_token=first,
            first_output=first,
            last_token=float(chunks[-1]),
            bytes_received=180 * count,
            input_tokens=256,
            output_tokens=tokens,
            tokens_from="usage",
            chunk_at=chunks.tolist(),
            chunk_tokens=per_chunk,
            read_lag_max=0.0004,
            read_lag_mean=0.0001,
            send_lag=0.00004,
            stamps="kernel",
        )

    return make


def chat(folder: Path = Path("reports/chat")) -> tuple[dict[str, Any], SampleTable]:
    """Return a run of chat in which one objective failed and one could not be decided."""
    samples = chat_samples()
    bounds = {"ttft": 0.3, "tpot": 0.03}
    figures = summary(measure(samples, Window(WARMUP, END)), bounds)
    ttft, tpot = figures["ttft_ms"]["p95"], figures["tpot_ms"]["p99"]
    gates = [
        _gate("ttft_p95_ms", 300.0, "FAIL", ttft, (ttft * 0.85, ttft * 1.12), 233),
        _gate("tpot_p99_ms", 60.0, "PASS", tpot, (tpot * 0.92, tpot * 1.1), 233),
        _gate("e2e_p99.9_ms", 8000.0, "INCONCLUSIVE", 3900.0, (2900.0, None), 233, needed=2994),
        _gate("error_rate", 0.05, "PASS", figures["error_rate"], (0.004, 0.041), 240),
        {
            **_gate("goodput_rps", 5.0, "PASS", figures["goodput_rps"], (5.2, 7.4), 240),
            "upper": False,
        },
    ]
    rate = figures["qps"]
    seconds = np.arange(WARMUP + 0.5, END, 1.0)
    result = {
        "schema_version": 2,
        "kind": "loadtest",
        "verdict": "FAIL",
        "exit_code": 6,
        "reasons": [reason(gate) for gate in gates if gate["verdict"] != "PASS"],
        "gates": gates,
        "summary": figures,
        "intervals": {
            f"{name}_ms": {
                p: [row[p] * 0.9, row[p] * 1.1]
                for p in ("p50", "p95", "p99")
                if (row := figures[f"{name}_ms"])["p50"] is not None
            }
            for name in ("ttft", "tpot", "itl", "e2e")
        },
        "errors": [
            {
                "kind": "error_in_stream",
                "count": 4,
                "first_s": 12.2,
                "example": '{"error": {"message": "KV cache </script><b>full</b>\x1b[31m"}}',
            },
            {"kind": "unfinished", "count": 2, "first_s": 19.7, "example": "x" * 2_000_000},
        ],
        "throughput": [
            {
                "t": float(t),
                "qps": round(float(rate + np.sin(t)), 2),
                "output_tokens_per_s": round(float(64 * rate + 40 * np.sin(t)), 1),
            }
            for t in seconds
        ],
        "window": {
            "stage": 0,
            "start_s": WARMUP,
            "end_s": END,
            "seconds": END - WARMUP,
            "warmup_requests_excluded": int((samples.due < WARMUP).sum()),
            "drained_after_s": DRAINED,
            "interrupted": False,
        },
        "extensions": [{"at_s": 24.0, "until_s": END, "because": "end to end p99.9 is undecided"}],
        "client": {
            "cpu_share": 0.21,
            "lag_p50_ms": 0.08,
            "lag_p99_ms": 1.3,
            "lag_max_ms": 4.2,
            "read_lag_p50_ms": 0.09,
            "read_lag_p99_ms": 0.6,
            "send_lag_p99_ms": 0.3,
            "queued_p99_ms": 1.9,
            "coalesced_share": 0.004,
            "rate": {"asked": 8.0, "scheduled": 7.98, "delivered": 7.97},
            "tokens": {"input": {"asked": 256.0, "counted": 256.0, "ratio": 1.0}, "output": None},
            "stamps": "kernel",
            "series": [
                {
                    "t": float(t),
                    "cpu": 0.2 + 0.03 * float(np.sin(t)),
                    "lag_ms": 1 + float(np.cos(t)) ** 2,
                }
                for t in np.arange(0.5, END, 0.5)
            ],
        },
        "calibration": {
            "ttft_error_ms": {"p50": 0.1, "p99": 0.8},
            "itl_error_ms": {"p50": 0.02, "p99": 1.2},
            "streams": 64,
            "measured_at": "2030-01-01T00:00:00+00:00",
        },
        "bounds": {
            "cpu_share": 0.9,
            "lag_p99_ms": 20.0,
            "send_lag_p99_ms": 3.0,
            "queued_p99_ms": 20.0,
            "coalesced_share": 0.05,
            "rate_share": 0.01,
            "tokens_share": 0.1,
        },
        "sweep": [],
        "server_metrics": server_metrics(),
        "spec": _spec(rate=8.0),
        "command": f"modelops loadtest {URL} --scenario chat --model smollm2 --rate 8",
        "started_at": "2030-01-01T00:00:00+00:00",
        "written_at": "2030-01-01T00:01:00+00:00",
        "environment": {"modelops": "0.1.0", "locust": "2.47.0", "cpus": 2, "load_average": [1, 2]},
        "files": _files(folder),
    }
    return result, samples


def sweep(folder: Path = Path("reports/sweep")) -> tuple[dict[str, Any], SampleTable]:
    """Return a sweep of rates whose server keeps up to 16/s and meets its objectives up to 8/s."""
    result, samples = chat(folder)
    stages = []
    for stage, asked in enumerate((1.0, 2.0, 4.0, 8.0, 11.3, 16.0, 32.0)):
        delivered = min(asked, 15.2)
        slower = 1 + (asked / 12) ** 2.5
        timings = {
            f"{name}_ms": {p: base * slower * more for p, more in (("p50", 1), ("p95", 1.7))}
            for name, base in (("ttft", 90.0), ("e2e", 1300.0), ("itl", 21.0))
        }
        within = asked <= 8
        figures = {
            "qps": delivered,
            "goodput_rps": delivered if within else delivered / slower,
            "output_tokens_per_s": 64 * delivered,
            "error_rate": 0.0 if within else 0.01,
            **timings,
        }
        stages.append(
            {
                "stage": stage,
                "asked": asked,
                "delivered": delivered,
                "start_s": 1.0 + 5 * stage,
                "end_s": 5.0 + 5 * stage,
                "summary": figures,
                "verdict": "PASS" if within else "FAIL",
            }
        )
    result["window"] |= {"stage": 3, "start_s": 16.0, "end_s": 20.0, "seconds": 4.0}
    samples.columns["stage"][:] = np.clip((samples.due // 5), 0, 6)
    result |= {
        "verdict": "PASS",
        "exit_code": 0,
        "reasons": [],
        "gates": [g for g in result["gates"] if g["verdict"] == "PASS"]
        + [_gate("ttft_p95_ms", 300.0, "PASS", 190.0, (170.0, 220.0), 233)],
        "errors": [],
        "extensions": [],
        "sweep": stages,
        "knee": {"load": 11.3, "throughput": 11.3, "why": "at 16/s only 15.2/s were answered"},
        "highest_within_slo": {"load": 8.0, "why": "at 11.3 the verdict was FAIL"},
        "sweep_ended": "32 was the last load asked for",
        "spec": _spec(sweep={"axis": "rate", "loads": [1.0, 32.0], "refine": True}),
    }
    return result, samples


def embeddings(folder: Path = Path("reports/embeddings")) -> tuple[dict[str, Any], SampleTable]:
    """Return a short closed loop without streams, objectives or anything of the server's."""
    rng = np.random.default_rng(3)
    sent = np.sort(rng.uniform(0, 5, 200))
    samples = SampleTable.of(
        Sample(
            sent=t, end=t + 0.02 + 0.01 * rng.random(), outcome="ok", items=1, first_byte=t + 0.02
        )
        for t in sent
    )
    result, _ = chat(folder)
    result |= {
        "verdict": "MEASURED",
        "exit_code": 0,
        "reasons": [],
        "gates": [],
        "intervals": {},
        "errors": [],
        "extensions": [],
        "summary": summary(measure(samples, Window(1.0, 5.0))),
        "throughput": [{"t": t + 0.5, "qps": 40.0, "items_per_s": 40.0} for t in range(1, 5)],
        "calibration": None,
        "server_metrics": {"why": "GET /metrics answered 404", "series": []},
        "spec": {**_spec(users=4), "scenario": "embeddings", "model": "minilm"},
    }
    result["window"] |= {"start_s": 1.0, "end_s": 5.0, "seconds": 4.0, "drained_after_s": 0.0}
    return result, samples


def server_metrics() -> dict[str, Any]:
    """Return what a gateway with vLLM tells of itself."""
    times = np.arange(0.0, END, 1.0)
    busy = np.exp(-((times - 20) ** 2) / 8)
    rows = [
        ("waiting in vLLM", "requests", "vllm:num_requests_waiting", np.round(7 * busy)),
        ("running in vLLM", "requests", "vllm:num_requests_running", np.round(9 + 7 * busy)),
        ("wait for the engine", "queue, ms", "modelops_queue_seconds", 4 + 180 * busy),
        ("tokens a step", "batch", "vllm:iteration_tokens_total", 10 + 6 * busy),
        ("KV cache in use", "KV cache, %", "vllm:kv_cache_usage_perc", 30 + 60 * busy),
        ("completion tokens", "tokens/s", "modelops_tokens_total", 500 - 60 * busy),
    ]
    series = [
        {
            "title": title,
            "panel": panel,
            "source": source,
            "model": "smollm2",
            "points": [[float(t), round(float(v), 3)] for t, v in zip(times, values, strict=True)],
        }
        for title, panel, source, values in rows
    ]
    return {"why": None, "looks": len(times), "missed": 0, "series": series}


def _gate(
    metric: str,
    bound: float,
    verdict: str,
    value: float | None,
    interval: tuple[float, float | None],
    samples: int,
    needed: int | None = None,
) -> dict[str, Any]:
    return {
        "metric": metric,
        "bound": bound,
        "upper": True,
        "verdict": verdict,
        "value": value,
        "detail": f"of {samples} requests",
        "samples": samples,
        "samples_needed": needed,
        "interval": {"low": interval[0], "high": interval[1], "confidence": 0.95},
    }


def _spec(**more: Any) -> dict[str, Any]:
    return {
        "url": URL,
        "scenario": "chat",
        "model": "smollm2",
        "models": {},
        "users": None,
        "rate": None,
        "arrivals": "poisson",
        "sweep": None,
        "duration_s": END - WARMUP,
        "warmup_s": WARMUP,
        "timeout_s": 30.0,
        "slo": ["ttft_p95_ms=300"],
        "dims": {},
        "seed": 0,
        **more,
    }


def _files(folder: Path) -> dict[str, str]:
    names = {"report": "report.html", "json": "report.json", "samples": "samples.parquet"}
    return {"folder": str(folder), **{key: str(folder / name) for key, name in names.items()}}
