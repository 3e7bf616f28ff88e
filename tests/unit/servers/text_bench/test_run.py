"""A whole run over a scripted server: one engine after the other, and what becomes of each."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scripted_completions
from safetensors.numpy import save_file

from modelops.environments.record import RECORD, Record
from modelops.errors import InputError, MissingEnvironmentError
from modelops.text_benchmark import TextBenchRequest, TextBenchResult
from modelops_servers.text_bench import run as bench

pytestmark = pytest.mark.slow

FLAGS = (
    "--model", "--served-model-name", "--uds", "--enable-server-load-tracking",
    "--disable-uvicorn-access-log", "--max-model-len", "--enforce-eager", "--max-num-seqs",
    "--kv-cache-memory-bytes", "--no-enable-prefix-caching", "--attention-backend", "--block-size",
)  # fmt: skip
MODEL = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "dtype": "bfloat16",
}
KINDS = ("auto", "bfloat16", "fp8", "int8_per_token_head")

Run = Callable[..., TextBenchResult]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "report"


@pytest.fixture
def run(tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs it, where vLLM is the scripted server; ``progress`` has what it told."""
    model = tmp_path / "tiny (1)"  # no name for a served model
    model.mkdir()
    (model / "config.json").write_text(json.dumps(MODEL))
    save_file({"w": np.zeros(1, np.float32)}, model / "model.safetensors")
    place = tmp_path / "engines" / "vllm"
    place.mkdir(parents=True)
    monkeypatch.setenv("MODELOPS_ENGINES_DIR", str(place.parent))

    def go(
        *types: str, faults: dict[str, str] | None = None, progress: Any = None, **asked: Any
    ) -> TextBenchResult:
        python = place / "python"
        words = (sys.executable, scripted_completions.__file__, json.dumps(faults or {}))
        python.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        python.chmod(0o755)
        record = Record(
            engine="vllm", kind="own", build="scripted", why="", version="0.0", platform="cpu",
            folder=str(place), python=str(python), python_version="3.11.0", site=str(place),
            entries=(), versions={"torch": "0"}, lock=None, notes=(), installed=0, size_bytes=None,
            flags={**dict.fromkeys(FLAGS), "--kv-cache-dtype": KINDS},
        )  # fmt: skip
        (place / RECORD).write_text(record.model_dump_json())
        fields = {
            "artifact": model, "kv_cache_dtypes": types, "concurrency": 2, "requests": 8,
            "input_tokens": 64, "output_tokens": 8,
            "kv_cache_gib": scripted_completions.BYTES / 2**30,
        }  # fmt: skip
        request = TextBenchRequest.model_validate(fields | asked)
        return bench.run(request, folder, progress or (lambda _step: None))

    return go


def test_one_engine_after_the_other_side_by_side(run: Run, folder: Path) -> None:
    told: list[str] = []
    options = {"enforce_eager": True, "engine_args": ["--block-size", "64"]}
    faults = {"bfloat16": "drifts"}
    found = run("auto", "bf16", "int8", faults=faults, progress=told.append, options=options)
    auto, bf16, int8 = found.rows
    assert [row.state for row in found.rows] == ["measured", "measured", "refused"]
    assert (found.exit_code, found.model) == (0, "tiny (1)")
    for row in (auto, bf16):
        assert row.cache is not None
        assert (row.cache.tokens, row.cache.bytes_per_value) == (scripted_completions.TOKENS, 2)
        assert row.fits is not None
        assert row.tight is not None
        assert (row.fits.concurrency, row.fits.completed, row.fits.output_tokens) == (2, 8, 64)
        assert (row.tight.concurrency, row.tight.completed, row.tight.failed) == (4, 8, 0)
        # Counted by the server itself, of these requests alone.
        assert row.fits.preemptions == 0
        assert row.tight.preemptions is not None
        assert row.tight.preemptions > 0
    assert auto.drift is None
    assert auto.repeat is not None
    assert (auto.repeat.same_share, auto.repeat.forced.max) == (1, 0)
    assert bf16.repeat is None
    assert bf16.drift is not None
    assert bf16.drift.against == "auto"
    assert bf16.drift.diverged_at == (2,) * 8
    assert bf16.drift.same_share == 2 / 8
    assert bf16.drift.forced.mean == bf16.drift.forced.max == 0.25
    assert "on NVIDIA GPUs" in (int8.why or "")
    # What is refused was never started.
    assert sorted(p.name for p in folder.iterdir()) == ["vllm-auto.log", "vllm-bf16.log"]
    assert told.index("auto: warming up") < told.index("bf16: warming up")
    assert found.kv_cache_bytes == scripted_completions.BYTES
    assert found.engine_options["enforce_eager"] is True
    assert found.engine_options["engine_args"] == [
        "--no-enable-prefix-caching", "--max-num-seqs", "4", "--block-size", "64",
    ]  # fmt: skip


def test_an_engine_that_fails_is_a_row_and_the_others_are_measured(run: Run) -> None:
    found = run("auto", "bf16", faults={"auto": "breaks"})
    auto, bf16 = found.rows
    assert (auto.state, bf16.state) == ("failed", "measured")
    assert re.search(r"(?s)vLLM ended with exit code 1.*no such kernel", auto.why or "")
    assert found.exit_code == 1
    # The first that was measured is what others are compared with.
    assert bf16.drift is None
    assert bf16.repeat is not None


@pytest.mark.parametrize("there", [False, True])
def test_an_interrupted_run_leaves_no_folder_but_the_users(
    run: Run, folder: Path, there: bool
) -> None:
    if there:
        folder.mkdir()
        (folder / "notes.txt").write_text("mine")

    def interrupt(step: str) -> None:
        if "warming up" in step:
            assert (folder / "vllm-auto.log").exists()
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run("auto", "bf16", progress=interrupt)
    assert folder.exists() == there
    assert [p.name for p in folder.glob("*")] == ["notes.txt"] * there


def test_one_that_fails_while_it_is_measured_has_no_figures(run: Run) -> None:
    """One process ends; the other answers every request with an error in its stream."""
    found = run("auto", "bf16", faults={"auto": "leaves", "bfloat16": "errs"})
    auto, bf16 = found.rows
    assert (auto.state, bf16.state) == ("failed", "failed")
    assert "vLLM ended with exit code 3" in (auto.why or "")
    assert "no request was answered whole: an error within the stream" in (bf16.why or "")
    assert "no room" in (bf16.why or "")
    assert found.exit_code == 1
    assert not found.measured


def test_where_none_is_possible_it_is_exit_5_and_nothing_is_written(run: Run, folder: Path) -> None:
    with pytest.raises(MissingEnvironmentError, match="none of these") as caught:
        run("int8")
    assert caught.value.exit_code == 5
    assert "kv_cache_dtype can be auto, bf16" in (caught.value.hint or "")
    assert not folder.exists()


def test_a_misspelt_argument_is_found_before_anything_starts(run: Run, folder: Path) -> None:
    with pytest.raises(InputError, match="--max-num-seqs"):
        run("auto", options={"engine_args": ["--max-num-seq=3"]})
    assert not folder.exists()
