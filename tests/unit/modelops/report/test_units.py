from __future__ import annotations

import math

import pytest

from modelops.report.units import nbytes, number, seconds, thousands


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (90_868_376, "90.9 MB"),
        (999_700, "1 MB"),
        (5e12, "5 TB"),
    ],
)
def test_bytes(value: float | None, text: str) -> None:
    assert nbytes(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (0.00421, "4.21 ms"),
        (0.9999, "1 s"),
        (13.41, "13.4 s"),
        (60, "1 min"),
        (125.2, "2 min 5 s"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (2.98e-7, "2.98e-7"),
        (1e-4, "1e-4"),
        (0.912, "0.912"),
        (1.5, "1.5"),
        (1234.0, "1234"),
        (3e9, "3e9"),
        (math.inf, "∞"),
        (-math.inf, "−∞"),
        (math.nan, "NaN"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert number(value) == text


def test_thousands() -> None:
    assert thousands(22_713_216) == "22,713,216"
    assert thousands(None) == "–"
