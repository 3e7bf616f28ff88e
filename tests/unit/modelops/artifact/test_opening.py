"""Which version a path means, and C3: code runs only where its digest is trusted."""

from __future__ import annotations

import os
import shutil
import zipfile
from pathlib import Path
from typing import Any

import pytest
from fake_artifacts import make_artifact, passing_parity

from modelops.artifact import (
    Artifact,
    distrust,
    find_newest,
    hash_files,
    open_artifact,
    runs_code,
    trust,
    trusted,
    versions,
)
from modelops.artifact.integrity import render
from modelops.errors import InputError, IntegrityError, ParityError, UnsafeInputError


def make_code(root: Path, format: str = "torch-export", **changes: Any) -> Artifact:
    return make_artifact(
        root, format=format, entry="model.pt2", files={"model.pt2": b"code"}, **changes
    )


@pytest.mark.parametrize(
    "path", ["nowhere", "mlp/9", "mpl", "file", "plain", "x" * 300, "a\0b", "loop"]
)
def test_where_no_artifact_is(tmp_path: Path, path: str) -> None:
    make_artifact(tmp_path / "mlp")
    (tmp_path / "file").write_text("")
    (tmp_path / "plain").mkdir()
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError) as caught:
        open_artifact(tmp_path / path)
    assert not isinstance(caught.value, UnsafeInputError)
    if path == "mlp/9":
        assert caught.value.hint == f"{tmp_path / 'mlp'} has version 1"
    if path == "mpl":
        assert caught.value.hint == f"did you mean {tmp_path / 'mlp'}?"


def test_a_copied_version_is_an_artifact(tmp_path: Path) -> None:
    artifact = make_artifact(tmp_path / "mlp")
    shutil.copytree(artifact.path, tmp_path / "copy")
    assert open_artifact(tmp_path / "copy").manifest == artifact.manifest


def test_a_linked_version_is_refused(tmp_path: Path) -> None:
    root = tmp_path / "mlp"
    make_artifact(root)
    shutil.move(root / "1", tmp_path / "elsewhere")
    (root / "1").symlink_to(tmp_path / "elsewhere")
    for path in (root, root / "1"):
        with pytest.raises(IntegrityError, match="1 is a link"):
            open_artifact(path)
    (root / "1").rename(root / "2")
    make_artifact(root)  # becomes 3, which is newer than the link
    assert open_artifact(root).version == 3


def test_what_was_kept_though_it_failed_is_not_opened(tmp_path: Path) -> None:
    artifact = make_artifact(tmp_path / "mlp")
    failed = artifact.manifest.model_copy(update={"parity": passing_parity(passed=False)})
    (artifact.path / "modelops.json").write_bytes(render(failed.sealed()))
    with pytest.raises(ParityError, match="did not pass parity"):
        open_artifact(artifact.path)


def test_the_newest_artifact_that_can_be_served(tmp_path: Path) -> None:
    old = make_artifact(tmp_path / "artifacts" / "b")
    new = make_artifact(tmp_path / "artifacts" / "a")
    code = make_code(tmp_path / "artifacts" / "c")
    for number, artifact in enumerate((old, new, code)):
        os.utime(artifact.path / "modelops.json", (1000 + number, 1000 + number))
    (tmp_path / "artifacts" / "empty").mkdir()

    assert find_newest(tmp_path / "artifacts", {"onnx"}) == new.path
    assert find_newest(tmp_path / "artifacts", {"onnx", "torch-export"}) == code.path
    with pytest.raises(InputError, match="no artifact of format tensorrt"):
        find_newest(tmp_path / "artifacts", {"tensorrt"})
    for format, target in (("onnx", "onnx"), ("huggingface", "vllm")):
        with pytest.raises(InputError) as caught:
            find_newest(tmp_path / "nowhere", {format})
        assert (caught.value.hint or "").endswith(f"--to {target}")


def test_a_broken_newest_artifact_is_not_passed_over(tmp_path: Path) -> None:
    old = make_artifact(tmp_path / "artifacts" / "a")
    new = make_artifact(tmp_path / "artifacts" / "b")
    os.utime(old.path / "modelops.json", (1000, 1000))
    (new.path / "modelops.json").write_text("{}")
    with pytest.raises(IntegrityError):
        find_newest(tmp_path / "artifacts", {"onnx"})
    (new.path / "modelops.json").unlink()
    with pytest.raises(IntegrityError):
        find_newest(tmp_path / "artifacts", {"onnx"})


def test_a_pin_holds_for_data_too(tmp_path: Path) -> None:
    artifact = make_artifact(tmp_path / "mlp")
    assert open_artifact(artifact.path, pin=artifact.manifest.digest) == artifact
    with pytest.raises(IntegrityError, match="not the pinned"):
        open_artifact(artifact.path, pin="sha256:" + "0" * 64)


@pytest.mark.parametrize("format", ["torch-export", "aoti", "tensorrt", "somebodys-own"])
@pytest.mark.parametrize("claim", [False, True])
def test_c3_code_needs_trust_whatever_its_manifest_claims(
    tmp_path: Path, format: str, claim: bool
) -> None:
    artifact = make_code(tmp_path / "m", format, executable=claim)
    assert runs_code(artifact.manifest)
    with pytest.raises(UnsafeInputError, match="is not trusted here") as caught:
        open_artifact(artifact.path)
    assert caught.value.exit_code == 3
    assert caught.value.hint is not None
    assert f"modelops trust {artifact.path}" in caught.value.hint

    digest = artifact.manifest.digest
    assert open_artifact(artifact.path, pin=digest) == artifact
    assert open_artifact(artifact.path, require_trust=False) == artifact
    trust(digest, "m", "decision")
    assert open_artifact(artifact.path) == artifact
    distrust(digest)
    with pytest.raises(UnsafeInputError):
        open_artifact(artifact.path)


def test_c3_an_archive_that_asks_for_pickle_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    archive = tmp_path / "evil.pt2"
    with zipfile.ZipFile(archive, "w") as zipped:
        pickled = f"cos\nsystem\n(S'touch {marker}'\ntR.".encode()
        zipped.writestr("evil/data/sample_inputs/model.pt", pickled)
    artifact = make_artifact(
        tmp_path / "m",
        format="torch-export",
        entry="model.pt2",
        files={"model.pt2": archive.read_bytes()},
    )
    with pytest.raises(UnsafeInputError):
        open_artifact(artifact.path)
    assert not marker.exists()


def test_c3_code_dressed_as_data_needs_no_trust_but_is_no_onnx(tmp_path: Path) -> None:
    artifact = make_artifact(
        tmp_path / "m", format="onnx", entry="model.pt2", files={"model.pt2": b"PK\3\4code"},
        evidence=(), opset=None,
    )  # fmt: skip
    with pytest.raises(IntegrityError, match="no ONNX model"):
        open_artifact(artifact.path)


def test_c3_trust_does_not_pass_to_changed_code(tmp_path: Path) -> None:
    artifact = make_code(tmp_path / "m")
    trust(artifact.manifest.digest, "m", "export")
    (artifact.path / "model.pt2").write_bytes(b"evil")
    with pytest.raises(IntegrityError):
        open_artifact(artifact.path)

    files = hash_files(artifact.path, lambda _: "model")
    changed = artifact.manifest.model_copy(update={"files": files})
    (artifact.path / "modelops.json").write_bytes(render(changed))
    with pytest.raises(IntegrityError):
        open_artifact(artifact.path)

    (artifact.path / "modelops.json").write_bytes(render(changed.sealed()))
    with pytest.raises(UnsafeInputError):
        open_artifact(artifact.path)


def test_c3_trust_does_not_pass_by_turning_the_model_into_evidence(tmp_path: Path) -> None:
    artifact = make_code(tmp_path / "m")
    trust(artifact.manifest.digest, "m", "export")
    (artifact.path / "evil.pt2").write_bytes(b"evil")
    files = hash_files(artifact.path, {"model.pt2": "model", "evil.pt2": "evidence"})
    changed = artifact.manifest.model_copy(update={"files": files})
    assert changed.computed_digest() == artifact.manifest.digest

    changed = changed.model_copy(update={"entry": "evil.pt2"})
    (artifact.path / "modelops.json").write_bytes(render(changed.sealed()))
    with pytest.raises(IntegrityError, match="is the entry, but not among"):
        open_artifact(artifact.path)


def test_trust_is_kept_by_whole_digest(tmp_path: Path) -> None:
    artifact = make_code(tmp_path / "m")
    for digest in ("", "sha256:", artifact.manifest.digest[:-1], artifact.manifest.digest.upper()):
        with pytest.raises(InputError, match="no digest"):
            trust(digest, "m", "decision")
    assert trusted() == []
    assert versions(tmp_path / "m") == [1]
