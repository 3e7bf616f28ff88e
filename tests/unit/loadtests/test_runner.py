"""What becomes of a run that has been measured, where what follows it goes wrong."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from modelops.errors import MeasurementError, MissingEnvironmentError
from modelops_loadtests import calibration, runner
from modelops_loadtests.samples import Sample, SampleTable

SAMPLES = SampleTable.of([Sample(sent=0.0, end=1.0, outcome="ok", chunk_at=[0.5, 1.0])])


def test_a_report_that_cannot_be_written_leaves_no_other_runs_verdict_beside_its_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "report.json").write_text('{"verdict": "PASS"}')
    monkeypatch.setattr("modelops_loadtests.runner.report.write", full)
    with pytest.raises(MissingEnvironmentError, match=r"ended FAIL.*No space left") as caught:
        runner._write({"verdict": "FAIL"}, SAMPLES, tmp_path)
    assert str(tmp_path) in caught.value.message
    assert not (tmp_path / "report.json").exists()
    assert len(SampleTable.read_parquet(tmp_path / "samples.parquet")) == 1


@pytest.mark.parametrize("error", [RuntimeError("no mock"), MeasurementError("no end"), OSError()])
def test_a_calibration_that_fails_is_a_problem_of_its_own(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(calibration, "_measure", broken)
    found = calibration.bound(1, fresh=True)
    assert found["problem"] == str(error)
    assert found["ttft_error_ms"] is None


def test_ctrl_c_in_the_calibration_keeps_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(calibration, "bound", stopped)
    end = SimpleNamespace(interrupted=False, died=[])
    measurement = SimpleNamespace(inside=SAMPLES, window=SimpleNamespace(seconds=1.0))
    stages = SimpleNamespace(done=[SimpleNamespace(end=end, measurement=measurement)])
    told: list[str] = []
    spec = SimpleNamespace(calibrate=True, processes=1)
    assert runner._calibrated(spec, stages, told.append) is None  # type: ignore[arg-type]
    assert "the run is kept" in told[0]
