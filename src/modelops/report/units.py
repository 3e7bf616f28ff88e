"""Numbers as a person reads them; what is unknown shows as an en dash, never as zero."""

from __future__ import annotations

import math

UNKNOWN = "–"


def nbytes(value: float | None) -> str:
    """Return bytes as ``412 B``, ``90.9 MB``; 1 MB is a million bytes."""
    if value is None:
        return UNKNOWN
    if value < 1000:
        return f"{value:.0f} B"
    size = float(value)
    for unit in ("kB", "MB", "GB"):
        size /= 1000
        if size < 999.5:
            return f"{_three(size)} {unit}"
    return f"{_three(size / 1000)} TB"


def seconds(value: float | None) -> str:
    """Return seconds as ``4.2 ms``, ``1.31 s``, ``2 min 5 s``."""
    if value is None:
        return UNKNOWN
    if value < 0.9995:
        return f"{_three(value * 1000)} ms"
    if value < 59.95:
        return f"{_three(value)} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def number(value: float | None) -> str:
    """Return a number in three significant digits; NaN and infinities by their names."""
    if value is None:
        return UNKNOWN
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("∞" if value > 0 else "−∞")
    if value == 0:
        return "0"
    if 1e-3 <= abs(value) < 1e6:
        return _three(value)
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def thousands(value: float | None) -> str:
    """Return a whole number with commas between its thousands."""
    return UNKNOWN if value is None else f"{round(value):,}"


def _three(value: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
