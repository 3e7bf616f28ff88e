"""Nothing wrong is published, whatever goes wrong and whenever."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from modelops import registry
from modelops.artifact import open_artifact, versions
from modelops.errors import ParityError, UnsafeInputError, VerificationError
from modelops_exporters.to_onnx import OnnxExporter

pytestmark = pytest.mark.slow
INPUT = "x=float32[batch,frames,6]"


class Tampering(OnnxExporter):
    """Writes a graph that loads, runs, and is wrong by one weight."""

    def write(self, exported: Any, folder: Path, options: Any, progress: Any) -> Any:
        written = super().write(exported, folder, options, progress)
        model = onnx.load(folder / written.entry)
        weight = next(w for w in model.graph.initializer if len(w.dims) == 2)
        values = numpy_helper.to_array(weight).copy()
        values.flat[0] += 0.05
        weight.CopyFrom(numpy_helper.from_array(values, weight.name))
        onnx.save(model, folder / written.entry)
        return written


class Baking(OnnxExporter):
    """Writes a graph whose batch is static, though it was asked dynamic (X3)."""

    def write(self, exported: Any, folder: Path, options: Any, progress: Any) -> Any:
        written = super().write(exported, folder, options, progress)
        model = onnx.load(folder / written.entry)
        model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
        onnx.save(model, folder / written.entry)
        return written


class Telling(OnnxExporter):
    """Writes the exporting machine's path into the graph (X16)."""

    def write(self, exported: Any, folder: Path, options: Any, progress: Any) -> Any:
        written = super().write(exported, folder, options, progress)
        model = onnx.load(folder / written.entry)
        model.doc_string = f"made in {Path.cwd()}"
        onnx.save(model, folder / written.entry)
        return written


def replace_exporter(monkeypatch: pytest.MonkeyPatch, exporter: type[OnnxExporter]) -> None:
    monkeypatch.setattr("modelops_exporters.to_onnx.OnnxExporter", exporter)
    assert registry.resolve("exporters", "onnx") is exporter


def test_x1_a_wrong_answer_is_exit_4_and_nothing_is_published(
    export_zoo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replace_exporter(monkeypatch, Tampering)
    with pytest.raises(ParityError, match=r"output 'output': \d+ of \d+ values") as caught:
        export_zoo("Frames", INPUT, keep_failed=tmp_path / "failed")
    assert caught.value.exit_code == 4
    assert not (tmp_path / "artifacts" / "Frames").exists()
    kept = tmp_path / "failed" / "failed-1"
    assert "NOT RIGHT" in (kept / "report.html").read_text().upper()
    with pytest.raises((ParityError, VerificationError)):
        open_artifact(kept)


def test_what_failed_is_kept_as_what_it_is_or_said_not_to_be(
    export_zoo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replace_exporter(monkeypatch, Tampering)
    (tmp_path / "file").touch()
    with pytest.raises(ParityError) as caught:
        export_zoo("Frames", INPUT, keep_failed=tmp_path / "file")
    assert "could not be kept" in (caught.value.hint or "")
    with pytest.raises(ParityError):
        export_zoo("Frames", INPUT, keep_failed=tmp_path / "failed")
    with pytest.raises(ParityError, match="kept for study only"):
        open_artifact(tmp_path / "failed" / "failed-1")


def test_x3_a_static_dim_is_found_in_the_graph(
    export_zoo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replace_exporter(monkeypatch, Baking)
    with pytest.raises(ParityError, match="dim 'batch' was asked dynamic, is 3"):
        export_zoo("Frames", INPUT)
    assert not (tmp_path / "artifacts" / "Frames").exists()


def test_x16_a_path_of_this_machine_is_never_published(
    export_zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_exporter(monkeypatch, Telling)
    with pytest.raises(ParityError, match=r"model\.onnx holds the working folder"):
        export_zoo("Frames", INPUT)


def test_a_failed_export_leaves_the_old_version(
    export_zoo, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = export_zoo("Frames", INPUT)
    replace_exporter(monkeypatch, Tampering)
    with pytest.raises(ParityError):
        export_zoo("Frames", INPUT)
    assert versions(first.path.parent) == [1]
    assert open_artifact(first.path.parent).manifest.digest == first.digest


COMMAND = [sys.executable, "-m", "modelops", "export", "Frames.pt", "--model", "model_zoo:Frames"]


def start(tmp_path: Path, *options: str, cwd: Path | None = None) -> subprocess.Popen[str]:
    fakes = str(Path(__file__).parents[2] / "fakes")
    return subprocess.Popen(
        [*COMMAND, "--input", INPUT, *options],
        cwd=cwd or tmp_path,
        env={**os.environ, "PYTHONPATH": fakes},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_x13_killed_in_the_middle(export_zoo, tmp_path: Path, number: signal.Signals) -> None:
    first = export_zoo("Frames", INPUT)
    root = tmp_path / "artifacts" / "Frames"
    child = start(tmp_path)
    deadline = time.monotonic() + 60
    while not list(root.glob(".staging-*")):
        assert child.poll() is None, child.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)
    child.send_signal(number)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == (-9 if number is signal.SIGKILL else 130)
    assert "Traceback" not in errors
    assert versions(root) == [1]
    assert open_artifact(root).manifest.digest == first.digest
    again = start(tmp_path)
    _, errors = again.communicate(timeout=120)
    assert again.returncode == 0, errors
    assert versions(root) == [1, 2]
    assert not list(root.glob(".staging-*"))


@pytest.mark.parametrize("target", ["onnx", "torch-export"])
def test_x13_a_full_disk_publishes_nothing(tmp_path: Path, target: str) -> None:
    import torch
    from model_zoo import Wide

    torch.save(Wide().state_dict(), tmp_path / "Wide.pt")
    code = (
        "import resource, sys\n"
        "from modelops.cli.main import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))\n"
        "main(sys.argv[1:])\n"
    )
    options = ["--model", "model_zoo:Wide", "--input", "x=float32[batch,256]", "--to", target]
    done = subprocess.run(
        [sys.executable, "-c", code, "export", "Wide.pt", *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "fakes")},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 5, done.stderr
    assert "nothing was published" in done.stderr
    assert not (tmp_path / "artifacts" / "Wide").exists()


def test_x14_x16_two_at_once_and_elsewhere_give_one_digest(export_zoo, tmp_path: Path) -> None:
    first = export_zoo("Frames", INPUT)
    other = tmp_path / "another" / "folder"
    other.mkdir(parents=True)
    (other / "Frames.pt").write_bytes((tmp_path / "Frames.pt").read_bytes())
    pair = [start(tmp_path, "--json"), start(tmp_path, "--json")]
    pair.append(start(tmp_path, "--json", "-o", "../out/net", cwd=other))
    results = []
    for child in pair:
        out, errors = child.communicate(timeout=200)
        assert child.returncode == 0, errors
        results.append(json.loads(out))
    assert {r["digest"] for r in results} == {first.digest}
    assert sorted(r["version"] for r in results[:2]) == [2, 3]
    for number in versions(tmp_path / "artifacts" / "Frames"):
        open_artifact(tmp_path / "artifacts" / "Frames" / str(number))
    assert open_artifact(tmp_path / "another" / "out" / "net").manifest.name == "net"


def test_x16_torch_export_archives_have_one_digest_too(export_zoo, tmp_path: Path) -> None:
    first = export_zoo("Frames", INPUT, target="torch-export")
    child = start(tmp_path, "--json", "--to", "torch-export", "-o", "elsewhere")
    out, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    assert json.loads(out)["digest"] == first.digest


def test_x14_a_planted_symlink_is_refused(export_zoo, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "Frames").symlink_to(outside)
    with pytest.raises((VerificationError, UnsafeInputError), match="link"):
        export_zoo("Frames", INPUT)
    assert not list(outside.iterdir())


def test_golden_samples_are_eagers(export_zoo) -> None:
    import torch
    from model_zoo import Frames

    from modelops.parity import read_samples

    result = export_zoo("Frames", INPUT)
    model = Frames()
    model.load_state_dict(torch.load("Frames.pt", weights_only=True))
    model.eval()
    for sample in read_samples(result.path / "samples.safetensors"):
        with torch.inference_mode():
            expected = model(torch.from_numpy(sample.inputs["x"])).numpy()
        np.testing.assert_array_equal(sample.outputs["output"], expected)
