"""Whether a run may be believed at all: what the load generator did, judged before any gate.

Every bound is on a quantity that the measured figures hang on, and no tighter than they need: a
run whose latencies are right is not to be called INVALID because its client was merely busy.
``problems`` says what was beyond its bound and what to change; ``bounds`` are for the report.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from modelops_loadtests.samples import SampleTable

Client = Mapping[str, Any]
Summary = Mapping[str, Any]

MAX_CPU_SHARE = 0.9
MAX_RATE_SHARE = 0.01
MAX_TOKENS_SHARE = 0.1
MAX_COALESCED = 0.05
MAX_COALESCED_WHEN_LATE = 0.01
LATE_MS = 5.0


@dataclass(frozen=True)
class _Bound:
    """At most ``floor`` milliseconds, or ``share`` of the shortest latency that was measured."""

    floor: float
    share: float

    def of(self, summary: Summary) -> float:
        found = [summary.get(name) or {} for name in ("ttft_ms", "e2e_ms")]
        medians = [spread["p50"] for spread in found if spread.get("p50") is not None]
        return max(self.floor, self.share * min(medians, default=0.0))


_LAG_KERNEL = _Bound(20.0, 0.25)
_LAG_USER = _Bound(LATE_MS, 0.1)
_SENDING = _Bound(3.0, 0.05)
_QUEUED = _Bound(10.0, 0.1)


def lag_bound_ms(summary: Summary, stamps: str | None) -> float:
    """Return how late the generator's loop may run (p99).

    Where the kernel stamps what arrives, lateness does not enter the latencies; it delays what is
    sent, and beyond 20 ms, or a quarter of the shortest median latency, the load is no longer the
    one asked for. A loop that shares its cores with the server is late by the scheduler's slices,
    a few milliseconds, without anything being wrong. Where arrivals are stamped after the read
    (over TLS), lateness is added to every one of them: 5 ms, or a tenth.
    """
    return (_LAG_USER if stamps in ("user", "mixed") else _LAG_KERNEL).of(summary)


def send_lag_bound_ms(summary: Summary) -> float:
    """Return how long handing a request to the kernel may take (p99).

    That is 3 ms, or a twentieth of the shortest median: a client that rests between its stamp and
    the write adds the rest to the time to first token.
    """
    return _SENDING.of(summary)


def queued_bound_ms(summary: Summary) -> float:
    """Return how late requests may be sent (p99): 10 ms, or a tenth of the shortest median.

    Latency counts from the scheduled moment, so what the generator holds back is added to it and
    blamed on the server.
    """
    return _QUEUED.of(summary)


def coalesced_bound(client: Client) -> float:
    """Return what share of chunks may come out of one read with an earlier one.

    Such a chunk shows no gap of its own, so 1 % of them is what a p99 of ITL cannot show: that is
    the bound where the client was late by more than 5 ms, and so may have caused them. Where it
    was prompt they were sent together, which a reader does see; but from 5 % on the gaps are no
    longer those of tokens, whoever is to blame.
    """
    late = (client.get("lag_p99_ms") or 0.0) > LATE_MS
    return MAX_COALESCED_WHEN_LATE if late else MAX_COALESCED


def bounds(client: Client, summary: Summary) -> dict[str, float]:
    """Return every bound of this run, for the report.

    ``cpu_share`` is 0.9 of the one core that a process of the generator has: beyond it requests
    wait in the generator. ``rate_share`` is 1 %: the delivered rate is what the latencies are
    latencies *at*. ``tokens_share`` is 10 %: prompts of another length cost the server another
    time, and tokens that were not there make every rate of tokens wrong.
    """
    return {
        "cpu_share": MAX_CPU_SHARE,
        "lag_p99_ms": lag_bound_ms(summary, client.get("stamps")),
        "send_lag_p99_ms": send_lag_bound_ms(summary),
        "queued_p99_ms": queued_bound_ms(summary),
        "coalesced_share": coalesced_bound(client),
        "rate_share": MAX_RATE_SHARE,
        "tokens_share": MAX_TOKENS_SHARE,
    }


def tokens_told(samples: SampleTable) -> dict[str, dict[str, float] | None]:
    """Return the mean tokens asked for and counted of ``input`` and ``output``, and their ratio.

    They are of the same requests, those that succeeded; None where a side is not known.
    """
    return {
        side: _told(samples, f"asked_{side}_tokens", f"{side}_tokens")
        for side in ("input", "output")
    }


def problems(client: Client, summary: Summary) -> list[str]:
    """Return why the run is INVALID, and what to change; nothing where it may be believed.

    ``client`` and ``summary`` are those of report.json.
    """
    limits = bounds(client, summary)
    return [
        *_own(client, limits),
        *_schedule(client, limits),
        *_chunks(client, limits, summary),
        *_tokens(client, limits),
    ]


def _own(client: Client, limits: Mapping[str, float]) -> list[str]:
    found = []
    cpu, lag = client.get("cpu_share"), client.get("lag_p99_ms")
    if cpu is not None and cpu > limits["cpu_share"]:
        found.append(
            f"the load generator used {cpu:.0%} of its one core (bound "
            f"{limits['cpu_share']:.0%}): use more --processes, less load, or run it on another "
            "machine than the server"
        )
    if lag is None:
        found.append("the load generator's own lag was not recorded: measure for longer")
    elif lag > limits["lag_p99_ms"]:
        waited = client.get("cpu_wait_share")
        because = f"; it waited for a core {waited:.0%} of the time" if waited else ""
        found.append(
            f"the load generator ran late: p99 of its loop's lag was {lag:.1f} ms (bound "
            f"{limits['lag_p99_ms']:.1f} ms){because}: free a core for it, use more --processes "
            "or less load, or run it elsewhere"
        )
    sending = client.get("send_lag_p99_ms")
    if sending is not None and sending > limits["send_lag_p99_ms"]:
        found.append(
            f"the load generator rested while it sent: p99 of handing a request to the kernel was "
            f"{sending:.1f} ms (bound {limits['send_lag_p99_ms']:.1f} ms), which TTFT cannot be "
            "told from: free a core for it, use less load, or run it elsewhere"
        )
    return found


def _schedule(client: Client, limits: Mapping[str, float]) -> list[str]:
    found = []
    queued, rate = client.get("queued_p99_ms"), client.get("rate")
    if queued is not None and queued > limits["queued_p99_ms"]:
        found.append(
            f"requests were sent late: p99 from scheduled to sent was {queued:.1f} ms (bound "
            f"{limits['queued_p99_ms']:.1f} ms): use more --processes or a lower --rate, or run "
            "it elsewhere"
        )
    if rate is not None and rate["scheduled"]:
        off = abs(rate["delivered"] / rate["scheduled"] - 1)
        if off > limits["rate_share"]:
            found.append(
                f"the load was not the one asked for: {rate['delivered']:.4g} requests/s were sent "
                f"of {rate['scheduled']:.4g} that were due ({off:.1%} off, bound "
                f"{limits['rate_share']:.0%}): use more --processes or a lower --rate"
            )
    return found


def _chunks(client: Client, limits: Mapping[str, float], summary: Summary) -> list[str]:
    share = client.get("coalesced_share")
    if share is None or share <= limits["coalesced_share"]:
        return []
    what = (
        f"the client ran late by up to {client['lag_p99_ms']:.1f} ms (p99), and may have read too "
        "late: use more --processes or less load"
    )
    together = "so the server or a proxy sends them together: have it flush each one"
    gap = (summary.get("tpot_ms") or {}).get("p50")
    if limits["coalesced_share"] != MAX_COALESCED_WHEN_LATE:
        what = f"the client was prompt, {together}"
    elif share > MAX_COALESCED and gap is not None and client["lag_p99_ms"] < gap:
        # So rarely late by so little, it cannot have read so many of them together.
        what = (
            f"the client ran late by {client['lag_p99_ms']:.1f} ms (p99) where tokens are "
            f"{gap:.0f} ms apart, {together}"
        )
    return [
        f"{share:.1%} of the chunks came out of one read with an earlier one (bound "
        f"{limits['coalesced_share']:.0%}), so when each arrived is not known: {what}"
    ]


def _tokens(client: Client, limits: Mapping[str, float]) -> list[str]:
    found = []
    told = client.get("tokens") or {}
    for side, what in (("input", "prompts"), ("output", "replies")):
        ratio = (told.get(side) or {}).get("ratio")
        if ratio is None:
            continue
        # A reply may well end before its limit; a prompt has the length that it was given.
        off = abs(ratio - 1) if side == "input" else ratio - 1
        if off > limits["tokens_share"]:
            counted, asked = told[side]["counted"], told[side]["asked"]
            found.append(
                f"the server counts {counted:.4g} tokens in {what} that were to have {asked:.4g} "
                f"({ratio:.2f} times, bound ± {limits['tokens_share']:.0%}): name the model's own "
                "--tokenizer, or mend the server's usage"
            )
    return found


def _told(samples: SampleTable, asked: str, counted: str) -> dict[str, float] | None:
    """Return the mean of the tokens asked for and of those counted, over the same requests."""
    both = ~np.isnan(samples[asked]) & ~np.isnan(samples[counted]) & samples.having("ok")
    if not both.any() or not samples[asked][both].sum():
        return None
    means = float(samples[asked][both].mean()), float(samples[counted][both].mean())
    return {"asked": means[0], "counted": means[1], "ratio": means[1] / means[0]}


def delivered(samples: SampleTable, due: int, seconds: float) -> float | None:
    """Return at what rate the requests of an open loop's window were really sent, per second.

    ``due`` were scheduled inside the window of ``seconds``; ``samples`` are those that were sent.
    The span of their sending is set beside that of their schedule: counting what was sent inside
    the window would blame a short run for a request that was due just before its end and sent
    just after. None for fewer than two requests.
    """
    known = ~np.isnan(samples["scheduled"])
    if known.sum() < 2:
        return None
    planned, real = (float(np.ptp(samples[name][known])) for name in ("scheduled", "sent"))
    stretched = planned / real if planned > 0 and real > 0 else 1.0
    return min(due, int(known.sum())) / seconds * stretched
