"""What the mock tells of itself in the form of vLLM's /metrics."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelops_loadtests.mock.server import Server


def exposition(server: Server) -> bytes:
    """Return the text that Prometheus reads."""
    ledger = server.ledger
    held = sum(exchange.kv_tokens for exchange in server.running.values())
    used = min(1.0, held / max(1, server.script.kv_tokens))
    rows = (
        ("num_requests_running", "gauge", len(server.running)),
        ("num_requests_waiting", "gauge", len(server.waiting)),
        ("kv_cache_usage_perc", "gauge", used),
        ("prompt_tokens_total", "counter", ledger.prompt_tokens),
        ("generation_tokens_total", "counter", ledger.generated_tokens),
        ("request_success_total", "counter", ledger.finished),
    )
    label = f'{{model_name="{server.models[0]}"}}'
    lines = []
    for name, kind, value in rows:
        lines += [f"# TYPE vllm:{name} {kind}", f"vllm:{name}{label} {value}"]
    return ("\n".join(lines) + "\n").encode()
