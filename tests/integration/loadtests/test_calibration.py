"""The client against the mock's clock: what comes of it, and for whom it is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from modelops_loadtests import calibration

pytestmark = pytest.mark.slow


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(calibration, "_SECONDS", 0.8)
    return tmp_path / "modelops" / "calibration"


def test_the_clients_own_error_is_measured_once_and_kept_for_this_code(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "_BUSY_CORES", 99)
    told: list[str] = []
    first = calibration.bound(3, progress=told.append)
    assert (first["problem"], first["streams"], first["cached"]) == (None, 4, False)
    assert told == ["calibrating the client against the built-in mock: 4 streams"]
    assert first["requests"] >= 4
    assert first["gaps"] == first["requests"] * 29
    for timing in ("ttft_error_ms", "itl_error_ms"):
        # Of this machine's other work, too; a client that stamps reads of blocks is off by more.
        assert 0 <= first[timing]["p50"] <= first[timing]["p99"] < 1000
    assert first["itl_error_ms"]["p50"] < 10
    assert first["measured_at"]

    def unwanted(*_: Any) -> dict[str, Any]:
        raise AssertionError("it was measured again")

    monkeypatch.setattr(calibration, "_measure", unwanted)
    assert calibration.bound(4) == {**first, "cached": True}
    for other in ({"streams": 5}, {"streams": 4, "processes": 2}, {"streams": 4, "fresh": True}):
        with pytest.raises(AssertionError, match="again"):
            calibration.bound(**other)  # type: ignore[arg-type]
    (kept,) = cache.iterdir()
    kept.write_bytes(b"{")
    with pytest.raises(AssertionError, match="again"):
        calibration.bound(4)
    monkeypatch.setattr(calibration, "_code", lambda: "changed")
    with pytest.raises(AssertionError, match="again"):
        calibration.bound(4)


def test_what_a_busy_machine_showed_is_said_and_not_kept(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calibration, "_BUSY_CORES", -99)
    monkeypatch.setattr(calibration, "_measure", lambda *_: {"problem": None})
    assert calibration.bound(1)["busy"] is True
    monkeypatch.setattr(calibration, "_BUSY_CORES", 99)
    monkeypatch.setattr(calibration, "_measure", lambda *_: {"problem": "it was interrupted"})
    assert calibration.bound(1)["problem"] == "it was interrupted"
    assert not cache.exists()
