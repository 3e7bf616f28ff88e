"""What would be served, for a person at a terminal."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from modelops.api.serve import PlannedModel, ServePlan
from modelops.report.terminal import grid, pairs, plain


def show_plan(plan: ServePlan) -> RenderableType:
    """Return the plan: where and for whom, then what each model is, then how it runs."""
    keys = f"{plan.api_keys} API key{'s' if plan.api_keys > 1 else ''}" if plan.api_keys else None
    return Group(
        plain(f"would listen on {plan.host}:{plan.port}, {keys or 'API keys off'}"),
        _gateway(plan),
        Text(),
        _what(plan),
        Text(),
        _how(plan),
        *_launches(plan),
    )


def _launches(plan: ServePlan) -> Iterator[Text]:
    for model in plan.models:
        if model.command:
            variables = [f"{name}={shlex.quote(value)}" for name, value in model.variables.items()]
            lines = [f"{model.name} is started by:", *(f"  {v} \\" for v in variables)]
            lines += [f"  {shlex.join(model.command)}", *(f"note: {note}" for note in model.notes)]
            yield Text()
            yield plain("\n".join(lines))


def _gateway(plan: ServePlan) -> Table:
    limits = plan.limits
    return pairs(
        [
            ("fronts", plan.fronts),
            ("admin", "off" if plan.admin_port is None else f"{plan.host}:{plan.admin_port}"),
            ("keys file", plan.keys_file),
            ("bodies", f"up to {limits.max_body_mb:g} MiB, {limits.max_json_mb:g} MiB of JSON"),
            (
                "times",
                f"headers {limits.header_seconds:g} s, requests {limits.request_seconds:g} s, "
                f"drain {plan.drain_seconds:g} s",
            ),
        ]
    )


def _what(plan: ServePlan) -> Table:
    headings = ("model", "version", "also as", "source", "engine", "provider", "required")
    table = grid(*((heading, "left") for heading in headings))
    for model in plan.models:
        table.add_row(
            plain(model.name),
            model.version,
            plain(", ".join(model.aliases) or "–"),
            plain(model.source or model.url),
            plain(model.engine),
            "–" if model.is_server else model.provider,
            "yes" if model.required else "no",
        )
    return table


def _how(plan: ServePlan) -> Table:
    headings = ("model", "version", "runs", "batches", "in flight", "queue")
    table = grid(*((heading, "left") for heading in headings))
    for model in plan.models:
        table.add_row(
            plain(model.name),
            model.version,
            _runs(model, plan.fronts),
            "by the engine"
            if model.is_server
            else f"up to {model.batching.max_size}, {model.batching.max_delay_ms:g} ms",
            _in_flight(model),
            f"{model.admission.max_queue}, {model.admission.queue_seconds:g} s",
        )
    return table


def _in_flight(model: PlannedModel) -> str:
    tokens = model.admission.max_tokens_in_flight
    return f"{model.max_in_flight}" + (f", {tokens:,} tokens" if tokens is not None else "")


def _runs(model: PlannedModel, fronts: int) -> str:
    threads = f", {model.threads} threads" if model.threads is not None else ""
    threads += f", {model.lanes} lanes" if model.lanes is not None else ""
    if model.inline:
        return f"inline in {fronts} fronts{threads}" if fronts > 1 else f"inline{threads}"
    return f"{model.replicas} process{'es' if model.replicas > 1 else ''}{threads}"
