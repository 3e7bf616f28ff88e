"""What the mock does and when: one Script, from Python or from the command line."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from random import Random
from typing import Any

USAGE = ("asked", "always", "never")
FRAMING = ("chunked", "close")
STREAM_FAULTS = ("error", "cut", "unfinished", "reset", "stall")
WHOLE_FAULTS = (
    "status", "redirect", "hang-up", "error-body", "not-json", "cut-body", "nan", "nan-bare",
    "null", "empty-vector", "wrong-count",
)  # fmt: skip


def _option(default: Any, text: str, choices: tuple[str, ...] = ()) -> Any:
    return field(default=default, metadata={"help": text, "choices": choices})


@dataclass(frozen=True)
class Script:
    """The behaviour of a mock server, the same for every request.

    A time is in milliseconds from when the request's service began: its arrival, unless
    ``concurrency`` made it wait. Each is a number, or ``"10..30"``: drawn evenly for each request
    from ``seed`` and the request's number.
    """

    tokens: int = _option(0, "most tokens of a reply; 0: as many as the request asks for, or 16")
    ttft_ms: str | float = _option(20.0, "until the first token, or until a whole reply")
    interval_ms: str | float = _option(20.0, "between the chunks of a stream")
    tokens_per_chunk: int = _option(1, "tokens of each chunk")
    events_per_write: int = _option(1, "chunks that are written together")
    role_chunk: bool = _option(True, "begin a chat with a chunk that has a role and no text")
    reasoning_tokens: int = _option(0, "how many of a chat's tokens are reasoning")
    answer_ms: str | float = _option(0.0, "the first token after the reasoning is not before this")
    headers_ms: str | float = _option(0.0, "until the headers and the role chunk")
    framing: str = _option("chunked", "how a stream's end is known", FRAMING)
    usage: str = _option("asked", "when a reply tells its usage", USAGE)
    continuous_usage: bool = _option(False, "usage in every chunk, even if it was not asked for")
    input_usage_factor: float = _option(1.0, "usage tells so many times the prompt's tokens")
    output_usage_factor: float = _option(1.0, "usage tells so many times the reply's tokens")
    fault: str = _option("", "what goes wrong, if anything", ("", *STREAM_FAULTS, *WHOLE_FAULTS))
    fault_after: int = _option(0, "tokens of a stream before its fault")
    fault_every: int = _option(1, "the fault is in the first of each so many requests")
    status: int = _option(503, "status of the fault called status")
    outlier_every: int = _option(0, "the last of each so many requests is slow; 0: none is")
    outlier_factor: float = _option(20.0, "how much longer a slow request's first token takes")
    concurrency: int = _option(0, "requests served at once, others wait in line; 0: any number")
    kv_tokens: int = _option(16384, "tokens that the KV cache of /metrics holds")
    dies_after: int = _option(0, "requests, in the middle of the next the process ends; 0: never")
    seed: int = _option(0, "what all that is drawn follows from")

    def __post_init__(self) -> None:
        for each in fields(self):
            value, choices = getattr(self, each.name), each.metadata["choices"]
            if choices and value not in choices:
                raise ValueError(f"{each.name} is {value!r}, not one of {', '.join(choices)}")
            if each.name.endswith("_ms"):
                _bounds(value)
            elif isinstance(value, int | float) and value < 0:
                raise ValueError(f"{each.name} is {value}, below 0")
        for name in ("tokens_per_chunk", "events_per_write", "fault_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is below 1")

    def times(self, number: int) -> Times:
        """Return the times of the request of this number, in seconds."""
        rng = Random(f"{self.seed}/{number}")  # noqa: S311
        headers, ttft, interval, answer = (
            rng.uniform(*_bounds(value)) / 1000
            for value in (self.headers_ms, self.ttft_ms, self.interval_ms, self.answer_ms)
        )
        if self.outlier_every and number % self.outlier_every == self.outlier_every - 1:
            ttft *= self.outlier_factor
        return Times(headers, max(headers, ttft), interval, answer)

    def fault_of(self, number: int) -> str:
        """Return the fault of the request of this number, or an empty text."""
        return "" if number % self.fault_every else self.fault

    def as_dict(self) -> dict[str, Any]:
        """Return its fields."""
        return asdict(self)


@dataclass(frozen=True)
class Times:
    """The times of one request, in seconds from when its service began."""

    headers: float
    ttft: float
    interval: float
    answer: float


def _bounds(value: str | float) -> tuple[float, float]:
    low, between, high = str(value).partition("..")
    try:
        bounds = float(low), float(high if between else low)
    except ValueError:
        raise ValueError(f"cannot read {value!r}: write milliseconds, or 10..30") from None
    if not 0 <= bounds[0] <= bounds[1] < float("inf"):
        raise ValueError(f"cannot mean {value!r}: 0 ≤ lowest ≤ highest")
    return bounds
