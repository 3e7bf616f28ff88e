"""Liveness and readiness: which model, why, since when, and what happens next."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from modelops_servers.front.models import Model, Models
from modelops_servers.front.served import Served


def version_report(model: Model, version: Served[Any]) -> dict[str, Any]:
    """Return one version's state for a person or a program."""
    return {"name": model.name, "required": model.required, **_dated(version.report())}


def model_report(model: Model, number: str | None = None) -> dict[str, Any]:
    """Return a model's state: that of one version, or of the one that answers by default."""
    version = model.versions.get(number or model.default or "")
    if version is not None:
        return version_report(model, version)
    asked = number or model.default or ""
    if asked in model.broken:
        shown, state, since = asked, "failed", model.broken[asked][1]
        why, then = model.broken[asked][0], "it is tried again; mend the artifact"
    elif model.unavailable:
        shown, state, since = None, "stopped", model.since
        why, then = model.unavailable, ""
    else:
        shown, state, since = None, "loading", time.time()
        why, then = "opening its files", "in a moment"
    return {
        "name": model.name,
        "required": model.required,
        "version": shown,
        "state": state,
        "why": why,
        "since": _iso(since),
        "next": then,
        "last_progress": None,
        "in_flight": 0,
        "replicas": [],
    }


def model_reports(model: Model) -> list[dict[str, Any]]:
    """Return the state of each version, or the one report of a model that has none."""
    numbers: list[str | None] = [*model.versions, *model.broken] or [None]
    return [model_report(model, number) for number in numbers]


def readiness(models: Models) -> tuple[bool, dict[str, Any]]:
    """Return whether every required model is ready, and the report that says why not."""
    reports = []
    can = []
    ready = True
    for model in models:
        reports += model_reports(model)
        # What is asked without a version decides: another one may be on its way in or out.
        can.append(model_report(model)["state"] == "ready")
        ready = ready and (can[-1] or not model.required)
    # Where nothing is required there must still be something to serve.
    ready = ready and any(can)
    return ready, {
        "status": "ready" if ready else "not ready",
        "not_ready": list(dict.fromkeys(r["name"] for r in reports if r["state"] != "ready")),
        "models": reports,
        "fronts": [{**front, "since": _iso(front["since"])} for front in models.fronts],
    }


def _dated(report: dict[str, Any]) -> dict[str, Any]:
    for one in (report, *report["replicas"]):
        for key in ("since", "last_progress"):
            if key in one:
                one[key] = _iso(one[key])
    return report


def _iso(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
