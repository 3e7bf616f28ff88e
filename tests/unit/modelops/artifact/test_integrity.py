"""A4, A6: whatever is altered, missing, extra, linked or renamed is refused by name."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_artifacts import make_artifact, make_manifest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import modelops.artifact.integrity as integrity
from modelops.artifact import Artifact, check_files, hash_files, open_artifact, read_manifest
from modelops.artifact.integrity import is_plain_name, render
from modelops.artifact.manifest import FileEntry
from modelops.errors import IntegrityError, ModelopsError

FILES = {"tokenizer.json": b"{}", "sub/vocab.txt": b"a\nb\n", "report.json": b"[]", "empty": b""}


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return make_artifact(tmp_path / "mlp", files=FILES)


def _flip(path: Path, position: int, mask: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(data)


_TAMPER: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a flipped byte": (lambda f: _flip(f / "model.onnx", 40), r"model\.onnx is altered"),
    "a longer file": (lambda f: (f / "empty").write_bytes(b"x"), "empty is altered: 1 bytes"),
    "a truncated file": (lambda f: os.truncate(f / "model.onnx", 9), "altered: 9 bytes"),
    "a missing file": (lambda f: (f / "tokenizer.json").unlink(), r"tokenizer\.json is missing"),
    "a missing folder": (lambda f: shutil.rmtree(f / "sub"), r"sub/vocab\.txt is missing"),
    "an extra file": (lambda f: (f / "x.py").write_text(""), r"x\.py is extra"),
    "an extra hidden file": (lambda f: (f / ".x").write_text(""), r"\.x is extra"),
    "an extra file below": (lambda f: (f / "sub" / "x").write_text(""), "sub/x is extra"),
    "a second manifest below": (
        lambda f: (f / "sub" / "modelops.json").write_text("{}"),
        r"sub/modelops\.json is extra",
    ),
    "a renamed file": (
        lambda f: (f / "tokenizer.json").rename(f / "Tokenizer.json"),
        r"tokenizer\.json is missing; Tokenizer\.json is extra",
    ),
    "a file that became a folder": (
        lambda f: ((f / "empty").unlink(), (f / "empty").mkdir()),
        "empty is missing",
    ),
    "a dangling link": (lambda f: (f / "x").symlink_to("nowhere"), "x is a link"),
    "a linked folder": (
        lambda f: (f / "sub").rename(f.parent / "moved") and (f / "sub").symlink_to("../moved"),
        "sub is a link",
    ),
    "a file that became a link to its twin": (
        lambda f: (
            (f / "model.onnx").rename(f.parent / "twin")
            and (f / "model.onnx").symlink_to("../twin")
        ),
        r"model\.onnx is a link",
    ),
    "a hard link": (
        lambda f: os.link(f / "model.onnx", f.parent / "twin"),
        r"model\.onnx is a hard link",
    ),
    "a FIFO in a file's place": (
        lambda f: ((f / "empty").unlink(), os.mkfifo(f / "empty")),
        "empty is no regular file",
    ),
    "a FIFO beside": (lambda f: os.mkfifo(f / "pipe"), "pipe is no regular file"),
    "a socket": (
        lambda f: socket.socket(socket.AF_UNIX).bind(os.path.relpath(f / "s")),
        "s is no regular file",
    ),
    "a name that is no text": (
        lambda f: Path(os.fsdecode(os.fsencode(f) + b"/\xff\n")).write_text(""),
        r"'\\udcff\\n' is extra",
    ),
    "no manifest": (lambda f: (f / "modelops.json").unlink(), r"modelops\.json is missing"),
    "a linked manifest": (
        lambda f: (
            (f / "modelops.json").rename(f.parent / "m")
            and (f / "modelops.json").symlink_to("../m")
        ),
        r"modelops\.json is a link",
    ),
    "a manifest that is a FIFO": (
        lambda f: ((f / "modelops.json").unlink(), os.mkfifo(f / "modelops.json")),
        r"modelops\.json is no regular file",
    ),
    "a manifest that is a folder": (
        lambda f: ((f / "modelops.json").unlink(), (f / "modelops.json").mkdir()),
        r"modelops\.json is no regular file",
    ),
}


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")  # the socket is left on purpose
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("case", _TAMPER)
def test_a6_tampering_is_refused_by_name(
    artifact: Artifact, case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(artifact.path)  # a socket's path may not be long
    tamper, message = _TAMPER[case]
    open_artifact(artifact.path.parent)
    tamper(artifact.path)

    for path in (artifact.path, artifact.path.parent):
        with pytest.raises(IntegrityError, match=message) as caught:
            open_artifact(path)
        str(caught.value).encode()
        assert caught.value.exit_code == 4


def test_a4_swapped_weights_are_caught_though_the_graph_is_the_same(tmp_path: Path) -> None:
    artifact = make_artifact(tmp_path / "mlp", files={"model.onnx.data": b"A" * 1024})
    graph = (artifact.path / "model.onnx").read_bytes()
    (artifact.path / "model.onnx.data").write_bytes(b"B" * 1024)

    with pytest.raises(IntegrityError, match=r"model\.onnx\.data is altered"):
        open_artifact(artifact.path)
    assert (artifact.path / "model.onnx").read_bytes() == graph


def test_a4_weights_of_another_version_are_caught(tmp_path: Path) -> None:
    first, second = (make_artifact(tmp_path / "mlp", seed=seed) for seed in (1, 2))
    shutil.copyfile(first.file(), second.file())
    with pytest.raises(IntegrityError, match=r"model\.onnx is altered"):
        open_artifact(second.path)


@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_a6_no_byte_of_any_file_can_change(artifact: Artifact, data: st.DataObject) -> None:
    candidates = ["modelops.json", "model.onnx", "tokenizer.json", "sub/vocab.txt", "report.json"]
    path = artifact.path / data.draw(st.sampled_from(candidates))
    before = path.read_bytes()
    position = data.draw(st.integers(0, len(before) - 1))
    _flip(path, position, data.draw(st.integers(1, 255)))
    try:
        with pytest.raises(IntegrityError, match=path.name.replace(".", r"\.")):
            open_artifact(artifact.path)
    finally:
        path.write_bytes(before)
    open_artifact(artifact.path)


@pytest.mark.slow
def test_a6_no_byte_of_the_manifest_can_change(artifact: Artifact) -> None:
    """Every third position, by masks that turn letters, digits and white space into others."""
    path = artifact.path / "modelops.json"
    before = path.read_bytes()
    for position in range(0, len(before), 3):
        _flip(path, position, (0x01, 0x20, 0x29, 0x80)[position % 4])
        with pytest.raises(IntegrityError, match=r"modelops\.json"):
            read_manifest(artifact.path)
        path.write_bytes(before)


@pytest.mark.parametrize(
    "edit",
    [
        lambda t: t.replace('"opset": 20', '"opset":  20'),
        lambda t: t + "\n",
        lambda t: t.replace('"name": "mlp"', '"name": "\\u006dlp"', 1),
        lambda t: t.replace('"seed": 0', '"seed": 0.0'),
        lambda t: t.replace('"seed": 0', '"seed": false'),
        lambda t: t.replace("{", '{"schema_version": 1,', 1),
        lambda t: t.replace('"name": "mlp"', '"name": "mlp", "extra": 1', 1),
        lambda t: "\ufeff" + t,
        lambda t: t.replace('"max_abs": 1e-07', '"max_abs": NaN', 1),
        lambda t: "[" * 100_000,
        lambda _: "[]",
        lambda _: "",
        lambda t: t.replace('"passed": true', '"passed": false', 1),
    ],
)
def test_a6_an_edited_manifest_is_refused(artifact: Artifact, edit: Callable[[str], str]) -> None:
    path = artifact.path / "modelops.json"
    text = path.read_text()
    assert edit(text) != text
    path.write_text(edit(text))
    with pytest.raises(IntegrityError, match=r"modelops\.json"):
        open_artifact(artifact.path)


def test_a_manifest_larger_than_any_is_not_read(artifact: Artifact) -> None:
    os.truncate(artifact.path / "modelops.json", integrity.MAX_MANIFEST + 1)
    with pytest.raises(IntegrityError, match="larger than"):
        read_manifest(artifact.path)


def test_another_schema_says_which_modelops_it_needs(artifact: Artifact) -> None:
    path = artifact.path / "modelops.json"
    raw = json.loads(path.read_text())
    raw |= {"schema_version": 2, "toolchain": {"modelops": "3.1.0"}, "new_field": {}}
    path.write_text(json.dumps(raw))
    with pytest.raises(IntegrityError, match=r"schema version 2.* reads 1.*modelops 3\.1\.0"):
        open_artifact(artifact.path)


_HOSTILE = [
    "../x",
    "a/../../x",
    "/etc/passwd",
    "..",
    ".",
    "",
    "a//b",
    "./a",
    "a/",
    "a\\..\\b",
    "C:x",
    "a\0b",
    "a\nb",
    "a\u202eb",
    "a" * 300,
    "x/" * 600 + "x",
]


@pytest.mark.parametrize("name", _HOSTILE)
def test_a_manifest_may_not_name_what_lies_outside(artifact: Artifact, name: str) -> None:
    assert not is_plain_name(name)
    entry = FileEntry(size=0, sha256="0" * 64, role="model")
    reseal(artifact, files={**artifact.manifest.files, name: entry})
    with pytest.raises(IntegrityError, match="not a plain path inside"):
        open_artifact(artifact.path)


@pytest.mark.parametrize("name", ["Model.onnx", "MODELOPS.JSON", "modelops.json", "SUB/vocab.txt"])
def test_a_manifest_may_not_name_one_file_twice(artifact: Artifact, name: str) -> None:
    entry = FileEntry(size=0, sha256="0" * 64, role="model")
    reseal(artifact, files={**artifact.manifest.files, name: entry})
    with pytest.raises(IntegrityError, match="is too like"):
        open_artifact(artifact.path)


def test_the_entry_is_a_model_file_of_the_manifest(artifact: Artifact) -> None:
    evidence = artifact.manifest.files["model.onnx"].model_copy(update={"role": "evidence"})
    for change in (
        {"entry": "other.onnx"},
        {"entry": "../1/model.onnx"},
        {"files": {**artifact.manifest.files, "model.onnx": evidence}},
    ):
        reseal(artifact, **change)
        with pytest.raises(IntegrityError, match="is the entry"):
            open_artifact(artifact.path)


def reseal(artifact: Artifact, **changes: Any) -> None:
    """Write the manifest anew, as somebody would who knows how it is sealed."""
    manifest = artifact.manifest.model_copy(update=changes).sealed()
    (artifact.path / "modelops.json").write_bytes(render(manifest))


def test_many_problems_are_listed_up_to_ten(artifact: Artifact) -> None:
    for number in range(25):
        (artifact.path / f"extra{number:02}").write_text("")
    with pytest.raises(IntegrityError, match=r"extra09 is extra.*; … and 15 more"):
        open_artifact(artifact.path)


def test_an_empty_extra_folder_does_no_harm(artifact: Artifact) -> None:
    (artifact.path / "empty_folder").mkdir()
    open_artifact(artifact.path)


def test_hashes_are_plain_up_to_a_leaf_and_a_tree_beyond(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "LEAF", 1000)
    contents = {"empty": b"", "leaf": b"a" * 1000, "tree": bytes(range(250)) * 10}
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)

    entries = hash_files(tmp_path, dict.fromkeys(contents, "model"))

    leaves = [contents["tree"][n : n + 1000] for n in (0, 1000, 2000)]
    tree = hashlib.sha256(b"".join(hashlib.sha256(leaf).digest() for leaf in leaves))
    assert entries["tree"].sha256 == tree.hexdigest()
    assert entries["leaf"].sha256 == hashlib.sha256(contents["leaf"]).hexdigest()
    assert entries["empty"] == FileEntry(size=0, sha256=hashlib.sha256().hexdigest(), role="model")
    check_files(tmp_path, make_manifest(entries, entry="tree"))
    for position in (0, 999, 1000, 2499):
        _flip(tmp_path / "tree", position)
        with pytest.raises(IntegrityError, match="tree is altered"):
            check_files(tmp_path, make_manifest(entries, entry="tree"))
        _flip(tmp_path / "tree", position)


@pytest.mark.slow
def test_a_large_file_is_hashed_in_bounded_memory(tmp_path: Path) -> None:
    import tracemalloc

    with (tmp_path / "weights").open("wb") as file:
        file.truncate(1000 * 2**20)
    tracemalloc.start()
    entries = hash_files(tmp_path, {"weights": "model"})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert entries["weights"].size == 1000 * 2**20
    assert peak < 32 * 2**20


@pytest.mark.parametrize("kind", ["link", "hard link", "FIFO", "no role"])
def test_what_cannot_be_published_is_not_hashed(tmp_path: Path, kind: str) -> None:
    staged = tmp_path / "staged"
    staged.mkdir()
    (tmp_path / "file").write_text("x")
    match kind:
        case "link":
            (staged / "odd").symlink_to(tmp_path / "file")
        case "hard link":
            os.link(tmp_path / "file", staged / "odd")
        case "FIFO":
            os.mkfifo(staged / "odd")
        case _:
            (staged / "odd").write_text("x")
    with pytest.raises(IntegrityError, match=r"odd (is|has)"):
        hash_files(staged, {})


def test_every_refusal_says_what_to_do(artifact: Artifact) -> None:
    (artifact.path / "tokenizer.json").unlink()
    with pytest.raises(ModelopsError) as caught:
        open_artifact(artifact.path)
    assert caught.value.hint
