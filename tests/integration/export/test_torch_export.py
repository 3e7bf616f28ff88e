""".pt2 archives: canonical, trusted where they were made, refused elsewhere."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from modelops.api.verify import verify
from modelops.artifact import distrust, open_artifact
from modelops.errors import UnsafeInputError, UsageError

pytestmark = pytest.mark.slow


def test_a_published_archive_runs_here_and_nowhere_untrusted(export_zoo, tmp_path: Path) -> None:
    """C3: loading a .pt2 runs code, so it runs only where its digest is trusted."""
    result = export_zoo("Frames", "x=float32[batch,frames,6]", target="torch-export")
    assert result.parity.passed
    moved = tmp_path / "elsewhere"
    shutil.copytree("artifacts/Frames", moved)
    assert verify(moved).digest == result.digest
    distrust(result.digest)
    with pytest.raises(UnsafeInputError, match="trust"):
        verify(moved)
    assert verify(moved, pin=result.digest).digest == result.digest


def test_the_archive_tells_nothing_of_the_machine(export_zoo) -> None:
    result = export_zoo("Frames", "x=float32[batch,frames,6]", target="torch-export")
    archive = (result.path / "model.pt2").read_bytes()
    for secret in (b"model_zoo.py", str(Path.cwd()).encode(), b"site-packages"):
        assert secret not in archive
    assert b"sample_inputs/model.pt" not in archive or b"stack_trace" not in archive


def test_one_dict_and_several_outputs(export_zoo) -> None:
    result = export_zoo(
        "Batch", "left=float32[batch,4]", "right=float32[batch,4]", target="torch-export"
    )
    outputs = open_artifact(result.path).manifest.signature.outputs
    assert [t.name for t in outputs] == ["sum", "left_out"]
    assert [t.shape for t in outputs] == [("batch", 4), ("batch", 4)]


def test_an_opset_is_not_for_this_target(export_zoo) -> None:
    with pytest.raises(UsageError, match="opset"):
        export_zoo("Frames", "x=float32[batch,frames,6]", target="torch-export", opset=20)
