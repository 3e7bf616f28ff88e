"""How long a text engine may take for each step, and how many connections it gets."""

from __future__ import annotations

from dataclasses import dataclass

from modelops.config import TimeoutsConfig

_USUAL = TimeoutsConfig()


@dataclass(frozen=True)
class UpstreamSettings:
    """All times in seconds; what the configuration sets has its defaults there."""

    connect_seconds: float = _USUAL.connect_seconds
    """Until the engine accepts a connection."""
    first_byte_seconds: float = _USUAL.first_byte_seconds
    """From the request to the first byte of a stream: its wait in the engine's queue, and its
    prompt. An answer in one piece has no first byte before its last token: only ``total_seconds``
    bounds it."""
    idle_seconds: float = _USUAL.idle_seconds
    """Between two pieces of an answer that has begun; a preempted sequence is computed anew."""
    total_seconds: float = 3600.0
    """From the request to the last byte, where the request's own deadline is not sooner."""
    keep_alive_seconds: float = 3.0
    """How long an idle connection is kept: shorter than servers do, whose usual is 5 s, or one is
    used that the engine is just closing."""
    read_bytes: int = 64 * 1024
    """How much of an answer may wait for a slow client, roughly: twice that, and one read."""
