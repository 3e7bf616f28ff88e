from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from modelops_loadtests.samples import Sample, SampleLog, SampleTable

STREAM = Sample(
    sent=0.0, end=1.0, outcome="ok", first_token=0.2, last_token=0.9, output_tokens=6,
    tokens_from="usage", chunk_at=(0.2, 0.5, 0.9), chunk_tokens=(1, 2, 3), stamps="kernel",
    scenario="chat", stage=2,
)  # fmt: skip
WHOLE = Sample(sent=0.5, end=0.8, outcome="error", error="reset", detail="it was reset", user=7)
UNCOUNTED = Sample(sent=0.1, end=2.0, outcome="ok", chunk_at=(1.0, 2.0), scheduled=0.05)


def same(a: SampleTable, b: SampleTable) -> None:
    assert a.columns.keys() == b.columns.keys()
    for name, values in a.columns.items():
        np.testing.assert_array_equal(values, b.columns[name], err_msg=name)
    np.testing.assert_array_equal(a.outcome, b.outcome)
    assert a.texts == b.texts
    for part in ("at", "tokens", "offsets"):
        np.testing.assert_array_equal(getattr(a.chunks, part), getattr(b.chunks, part))


def test_every_field_of_a_sample_is_in_the_table() -> None:
    table = SampleTable.of([STREAM])
    held = {*table.columns, *table.texts, "outcome", "chunk_at", "chunk_tokens"}
    assert held == {field.name for field in fields(Sample)}


@pytest.mark.parametrize("samples", [[STREAM, WHOLE, UNCOUNTED], [WHOLE], []])
def test_parquet_and_json_lines_give_back_what_they_were_given(
    tmp_path: Path, samples: list[Sample]
) -> None:
    table = SampleTable.of(samples)
    table.write_parquet(tmp_path / "samples.parquet")
    same(SampleTable.read_parquet(tmp_path / "samples.parquet"), table)
    with (tmp_path / "samples.jsonl").open("wb") as stream:
        log = SampleLog(stream)
        for sample in samples:
            log.append(sample)
    by_end = table.take(np.argsort(table["end"], kind="stable"))
    same(SampleTable.read(tmp_path / "samples.jsonl"), by_end)


def test_what_several_processes_wrote_is_one_table_in_the_order_of_the_ends(tmp_path: Path) -> None:
    paths = [tmp_path / "1.jsonl", tmp_path / "2.jsonl"]
    for path, samples in zip(paths, ([WHOLE, UNCOUNTED], [STREAM]), strict=True):
        with path.open("wb") as stream:
            for sample in samples:
                SampleLog(stream).append(sample)
    table = SampleTable.read(*paths)
    assert list(table["end"]) == [0.8, 1.0, 2.0]
    assert list(table.chunks.counts) == [0, 3, 2]


def test_chunks_stay_with_their_samples() -> None:
    table = SampleTable.of([STREAM, WHOLE, UNCOUNTED])
    kept = table.where(table.having("ok"))
    assert list(kept.chunks.at) == [0.2, 0.5, 0.9, 1.0, 2.0]
    np.testing.assert_array_equal(kept.chunks.tokens, [1, 2, 3, np.nan, np.nan])
    turned = table.take(np.array([2, 1, 0]))
    assert list(turned.chunks.at) == [1.0, 2.0, 0.2, 0.5, 0.9]
    assert list(turned.chunks.offsets) == [0, 2, 2, 5]


def test_a_column_that_is_missing_is_said(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "other.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"sent": [1.0]}), path)
    with pytest.raises(ValueError, match="no column asked_input_tokens"):
        SampleTable.read_parquet(path)


def test_tokens_of_other_chunks_are_refused() -> None:
    wrong = Sample(sent=0, end=1, outcome="ok", chunk_at=(0.5,), chunk_tokens=(1, 2))
    with pytest.raises(ValueError, match="1 chunks"):
        SampleTable.of([wrong])
