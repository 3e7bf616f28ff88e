"""Liveness and readiness: which model, why, since when, and what happens next."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from modelops.protocols import State
from modelops_servers.model import ServedModel

_NEXT: dict[State, str] = {
    "ready": "nothing to do",
    "loading": "it turns ready by itself once it is loaded and warmed up",
    "stuck": "new requests get 503; it turns ready when the call ends, or restart the gateway",
    "stopping": "requests in flight are finished, then the process exits",
    "stopped": "start the gateway again",
    "failed": "the gateway exits; mend the cause and start it again",
}


def model_report(model: ServedModel) -> dict[str, Any]:
    """Return one model's state for a person or a program."""
    health = model.health()
    return {
        "name": model.name,
        "version": str(model.loaded.artifact.version) if model.loaded else None,
        "state": health.state,
        "why": health.why,
        "since": _iso(health.since),
        "last_progress": _iso(health.last_progress),
        "in_flight": model.in_flight,
        "next": _NEXT[health.state],
    }


def readiness(models: list[ServedModel]) -> tuple[bool, dict[str, Any]]:
    """Return whether every model is ready, and the report that says why not."""
    reports = [model_report(m) for m in models]
    waiting = [r["name"] for r in reports if r["state"] != "ready"]
    return not waiting, {
        "status": "not ready" if waiting else "ready",
        "not_ready": waiting,
        "models": reports,
    }


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
