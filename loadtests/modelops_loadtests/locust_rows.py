"""What locust's own statistics and web page are told of each request."""

from __future__ import annotations

from typing import Any

from modelops_loadtests.sending import Sent

TTFT, TPOT = "TTFT", "TPOT"


class RequestFailedError(Exception):
    """What locust is told of a request that failed."""


def tell_locust(environment: Any, sent: Sent) -> None:
    """Fire the request event, also for a stream that broke; note TTFT and TPOT in rows apart.

    Those are written into entries of their own: an event would count them as requests, in
    Aggregated, in requests/s and in the plots.
    """
    request, sample = sent.request, sent.sample
    problem = None
    if sample.outcome != "ok":
        problem = RequestFailedError(f"{sample.error}: {sample.detail}")
    due = sample.sent if sample.scheduled is None else sample.scheduled
    last = sample.end if sample.last_token is None else sample.last_token
    environment.events.request.fire(
        request_type=request.method,
        name=request.name,
        response_time=(last - due) * 1000,
        response_length=sample.bytes_received,
        exception=problem,
        context={},
    )
    if sample.outcome != "ok" or sample.first_token is None:
        return
    stats = environment.stats
    stats.get(TTFT, request.name).log((sample.first_token - due) * 1000, 0)
    if (sample.output_tokens or 0) >= 2 and sample.last_token is not None:
        spent = sample.last_token - sample.first_token
        stats.get(TPOT, request.name).log(spent * 1000 / ((sample.output_tokens or 0) - 1), 0)
