from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from recorded_runs import record

from modelops.errors import InputError
from modelops_loadtests.comparison import Run, baseline


def spec(**more: object) -> dict[str, object]:
    return {"scenario": "embeddings", "model": "m", "rate": 40.0, **more}


def test_a_run_is_read_from_its_folder_or_its_report_also_after_it_moved(tmp_path: Path) -> None:
    folder = record(tmp_path / "one")
    assert Run.read(folder / "report.json").name == "one"
    moved = folder.rename(tmp_path / "two")
    run = Run.read(moved)
    assert run.name == "two"
    assert run.measured({}).total == 2400


def change(folder: Path, **fields: object) -> Path:
    file = folder / "report.json"
    file.write_bytes(orjson.dumps({**orjson.loads(file.read_bytes()), **fields}))
    return folder


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"kind": "bench"}, "no load test's report"),
        ({"schema_version": 1}, "schema version 1"),
        ({"spec": {"sweep": {"loads": [1, 2]}}}, "sweep"),
    ],
)
def test_what_is_no_run_at_one_load_is_refused(
    tmp_path: Path, fields: dict[str, object], said: str
) -> None:
    with pytest.raises(InputError, match=said):
        Run.read(change(record(tmp_path / "one"), **fields))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("window", None),
        ("window", {"start_s": "x", "end_s": 1.0, "seconds": 1.0}),
        ("gates", [{}]),
        ("environment", []),
        ("files", None),
        ("reasons", None),
        ("verdict", "GREAT"),
    ],
)
def test_a_report_that_was_edited_is_refused_and_says_where(
    tmp_path: Path, field: str, value: object
) -> None:
    with pytest.raises(InputError, match=f"no whole report of a load test: {field}"):
        Run.read(change(record(tmp_path / "one"), **{field: value}))


def test_a_report_whose_folder_holds_a_later_run_now_is_not_read_with_its_samples(
    tmp_path: Path,
) -> None:
    folder = record(tmp_path / "main")
    copied = (folder / "report.json").rename(tmp_path / "baseline.json")
    assert Run.read(copied).measured({}).total == 2400
    (folder / "samples.parquet").unlink()
    folder.rmdir()
    record(tmp_path / "main", scale=1.01)
    with pytest.raises(InputError, match="are of another run"):
        Run.read(copied)


def test_a_run_without_its_samples_is_refused(tmp_path: Path) -> None:
    folder = record(tmp_path / "one")
    (folder / "samples.parquet").write_bytes(b"no parquet")
    with pytest.raises(InputError, match="cannot read"):
        Run.read(folder)
    (folder / "samples.parquet").unlink()
    with pytest.raises(InputError, match="raw samples"):
        Run.read(folder)
    with pytest.raises(InputError, match="no load test"):
        Run.read(tmp_path / "nowhere")


def test_a_baseline_is_of_the_same_scenario_and_model_and_may_be_believed(tmp_path: Path) -> None:
    run, notes = baseline(record(tmp_path / "one"), spec())
    assert (run.name, notes) == ("one", [])
    with pytest.raises(InputError, match="model m and other"):
        baseline(tmp_path / "one", spec(model="other"))
    with pytest.raises(InputError, match="INVALID: the load generator ran late"):
        baseline(record(tmp_path / "bad", verdict="INVALID"), spec())


def test_a_baseline_at_another_load_is_named(tmp_path: Path) -> None:
    _, notes = baseline(record(tmp_path / "one"), spec(rate=80.0))
    assert notes == ["the baseline has another load: rate 40.0 and 80.0"]
