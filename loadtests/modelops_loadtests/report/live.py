"""What is known so far, at the terminal, while a run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live as RichLive
from rich.spinner import Spinner

from modelops.report.terminal import pairs, plain
from modelops.report.units import number
from modelops_loadtests.report.wording import ms, share

_A_SECOND = 4


class Live:
    """A small table on stderr that follows a run; call it with a phrase, ``update`` with figures.

    ``update`` takes what the load generator tells: ``t`` and ``phase``, the counts ``ok``,
    ``error`` and ``cut``, and whatever it knows of ``until_s``, ``in_flight``, ``asked`` and
    ``delivered`` (requests per second), ``output_tokens_per_s``, ``ttft_p50_ms``, ``ttft_p95_ms``,
    ``e2e_p50_ms``, ``e2e_p95_ms``, ``lag_p99_ms`` and ``stage``. What is missing is not shown.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._step = "starting"
        self._told: dict[str, Any] = {}
        self._spinner = Spinner("dots")
        self._live = RichLive(
            console=console or Console(stderr=True),
            get_renderable=self.render,
            refresh_per_second=_A_SECOND,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def __call__(self, step: str) -> None:
        """Show what is being done; it is a ``modelops.progress.Progress``."""
        self._step = step

    def update(self, told: Mapping[str, Any]) -> None:
        """Show what the load generator tells."""
        self._told = dict(told)
        self._step = str(told.get("phase", self._step))

    def render(self) -> RenderableType:
        """Return what is shown now."""
        self._spinner.update(text=plain(self._head()))
        rows = pairs(self._rows())
        return Group(self._spinner, rows) if self._told else self._spinner

    def _head(self) -> str:
        told = self._told
        if "t" not in told:
            return self._step
        until = told.get("until_s")
        return f"{self._step}, {told['t']:.0f}" + (f" of {until:.0f} s" if until else " s")

    def _rows(self) -> list[tuple[str, object]]:
        told = self._told
        done, failed = told.get("ok", 0), told.get("error", 0)
        total = done + failed
        answers = f"{done:,} ok, {failed:,} failed"
        if failed:
            answers += f" ({share(failed / total)})"
        if told.get("cut"):
            answers += f", {told['cut']:,} cut"
        asked, delivered = told.get("asked"), told.get("delivered")
        rate = None if delivered is None else f"{number(delivered)}/s"
        if rate and asked:
            rate += f" of {number(asked)}/s"
        tokens = told.get("output_tokens_per_s")
        return [
            ("answered", answers),
            ("stage", told.get("stage") or None),
            ("in flight", told.get("in_flight")),
            ("rate", rate),
            ("tokens", None if tokens is None else f"{number(tokens)}/s"),
            ("TTFT", self._latency("ttft")),
            ("end to end", self._latency("e2e")),
            ("client's lag", None if told.get("lag_p99_ms") is None else ms(told["lag_p99_ms"])),
        ]

    def _latency(self, timing: str) -> str | None:
        half, most = (self._told.get(f"{timing}_p{p}_ms") for p in (50, 95))
        return None if half is None else f"p50 {ms(half)}" + (f", p95 {ms(most)}" if most else "")
