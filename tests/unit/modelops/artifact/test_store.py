"""X13 and X14: publishing is whole or not at all, and only where the user meant it."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from fake_artifacts import make_artifact, make_manifest, mlp_onnx, passing_parity

import modelops.artifact.store as store_module
from modelops.artifact import Artifact, Store, hash_files, open_artifact, versions
from modelops.errors import IntegrityError, MissingEnvironmentError, ParityError, UsageError


def publish(root: Path, data: bytes | None = None) -> Artifact:
    return make_artifact(root, files={"model.onnx": data or mlp_onnx().SerializeToString()})


def names(root: Path) -> set[str]:
    return {p.name for p in root.iterdir()} - {".lock"}


def test_versions_rise_and_the_newest_is_meant(tmp_path: Path) -> None:
    root = tmp_path / "artifacts" / "mlp"
    first, second = publish(root), publish(root)

    assert [first.version, second.version] == versions(root) == [1, 2]
    assert open_artifact(root) == second
    assert open_artifact(root / "1") == first
    assert first.file() == root / "1" / "model.onnx"
    with pytest.raises(UsageError, match="holds no file"):
        first.file("../2/model.onnx")


@pytest.mark.parametrize("name", ["0", "01", "-1", "1a", "٣", "1.0", " 1", "9999999999", "latest"])
def test_only_plain_numbers_are_versions(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / "7").write_text("a file")
    (tmp_path / "8").symlink_to(tmp_path / name)
    (tmp_path / "3").mkdir()

    assert versions(tmp_path) == [3]


def test_staging_is_private_and_published_files_are_readable(tmp_path: Path) -> None:
    store = Store(tmp_path / "mlp")
    with store.staging() as staged:
        assert stat.S_IMODE(staged.stat().st_mode) == 0o700
        assert stat.S_IMODE(staged.parent.stat().st_mode) == 0o700
        (staged / "sub").mkdir()
        for name in ("model.onnx", "sub/tokenizer.json"):
            (staged / name).write_bytes(b"x")
            (staged / name).chmod(0o600)
        manifest = make_manifest(hash_files(staged, lambda _: "model"))
        published = store.publish(staged, manifest)

    modes = {
        p.relative_to(published.path).as_posix(): stat.S_IMODE(p.stat().st_mode)
        for p in (published.path, *published.path.rglob("*"))
    }
    assert modes == {
        ".": 0o755,
        "modelops.json": 0o644,
        "model.onnx": 0o644,
        "sub": 0o755,
        "sub/tokenizer.json": 0o644,
    }


def test_everything_is_on_the_disk_before_the_version_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "mlp"
    synced: list[tuple[str, bool]] = []
    real = store_module._fsync

    def recorded(path: Path) -> None:
        synced.append((path.name, bool(versions(root))))
        real(path)

    monkeypatch.setattr(store_module, "_fsync", recorded)
    publish(root)

    before = {name for name, visible in synced if not visible}
    assert before == {"model.onnx", "modelops.json", "files"}
    assert synced[-1] == ("mlp", True)


def test_a_failed_export_leaves_no_trace(tmp_path: Path) -> None:
    root = tmp_path / "artifacts" / "mlp"
    with contextlib.suppress(ZeroDivisionError), Store(root).staging() as staged:
        (staged / "model.onnx").write_bytes(b"half")
        raise ZeroDivisionError

    assert not root.exists()


def test_what_did_not_pass_parity_is_not_published(tmp_path: Path) -> None:
    with pytest.raises(ParityError, match="not published"):
        make_artifact(tmp_path / "mlp", parity=passing_parity(passed=False))
    assert not (tmp_path / "mlp").exists()


def test_files_changed_after_hashing_are_not_published(tmp_path: Path) -> None:
    store = Store(tmp_path / "mlp")
    with store.staging() as staged:
        (staged / "model.onnx").write_bytes(b"checked")
        manifest = make_manifest(hash_files(staged, lambda _: "model"))
        (staged / "model.onnx").write_bytes(b"swapped")
        with pytest.raises(IntegrityError, match=r"model\.onnx is altered"):
            store.publish(staged, manifest)
    assert not (tmp_path / "mlp").exists()


def test_only_its_own_staging_folder_is_published(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "model.onnx").write_bytes(b"x")
    manifest = make_manifest(hash_files(tmp_path / "elsewhere", lambda _: "model"))
    with pytest.raises(UsageError, match="not a staging folder"):
        Store(tmp_path / "mlp").publish(tmp_path / "elsewhere", manifest)


_STEPS = ("check_files", "render", "_write", "_settle", "_fsync")


@pytest.mark.parametrize("step", _STEPS)
@pytest.mark.parametrize(
    ("failure", "seen"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), MissingEnvironmentError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
    ids=["full disk", "Ctrl-C"],
)
def test_x13_a_failure_at_any_step_keeps_the_old_version(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    failure: BaseException,
    seen: type[BaseException],
) -> None:
    root = tmp_path / "mlp"
    old = publish(root)

    def fail(*_: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(store_module, step, fail)
        # The two first steps write nothing, so the disk cannot be full in them.
        with pytest.raises(seen if step not in _STEPS[:2] else BaseException):
            publish(root)

    assert names(root) == {"1"}
    assert open_artifact(root) == old
    assert publish(root).version == 2


@pytest.mark.parametrize("failure", [OSError(errno.ENOSPC, "full"), KeyboardInterrupt()])
def test_x13_a_failure_of_the_rename_keeps_the_old_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    root = tmp_path / "mlp"
    publish(root)

    def fail(*_: object) -> None:
        raise failure

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", fail)
        with pytest.raises((MissingEnvironmentError, KeyboardInterrupt)):
            publish(root)

    assert names(root) == {"1"}


def test_x13_interrupted_after_the_rename_the_new_version_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "mlp"
    publish(root)
    real = store_module._fsync

    def interrupted(path: Path) -> None:
        if path == root:
            raise KeyboardInterrupt
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "_fsync", interrupted)
        with pytest.raises(KeyboardInterrupt):
            publish(root)

    assert names(root) == {"1", "2"}
    assert open_artifact(root).version == 2


_CHILD = """
import resource, signal, sys, time
from pathlib import Path
import modelops.artifact.store as module
from fake_artifacts import make_artifact

root, step = Path(sys.argv[1]), sys.argv[2]
if step == "limit":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, 64 * 1024))
    make_artifact(root, files={"model.onnx": bytes(1024 * 1024)})
def stop(*_):
    print("there", flush=True)
    time.sleep(60)
setattr(module, step, stop)
make_artifact(root)
"""


def child(root: Path, step: str) -> subprocess.Popen[str]:
    path = os.pathsep.join(p for p in sys.path if p)
    return subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(root), step],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("step", ["check_files", "_settle"])
def test_x13_what_a_killed_run_left_is_removed_by_the_next(tmp_path: Path, step: str) -> None:
    root = tmp_path / "mlp"
    old = publish(root)
    with child(root, step) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        assert len(names(root)) == 2
        # A run that is alive keeps what it has, whoever else exports.
        assert publish(root).version == 2
        assert len(names(root)) == 3
        process.send_signal(signal.SIGKILL)
    assert len(names(root)) == 3
    assert open_artifact(root / "1") == old

    publish(root)

    assert names(root) == {"1", "2", "3"}


@pytest.mark.slow
def test_x13_a_disk_that_takes_no_more_is_an_error_with_a_way_out(tmp_path: Path) -> None:
    root = tmp_path / "mlp"
    publish(root)
    with child(root, "limit") as process:
        _, stderr = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "MissingEnvironmentError: cannot write to" in stderr
    assert "nothing was published" in stderr
    assert names(root) == {"1"}


def test_x14_two_exports_at_once_are_two_whole_versions(tmp_path: Path) -> None:
    root = tmp_path / "mlp"
    start = threading.Barrier(4)
    done: list[Artifact] = []

    def export() -> None:
        start.wait()
        done.append(publish(root))

    threads = [threading.Thread(target=export) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(a.version for a in done) == versions(root) == [1, 2, 3, 4]
    for artifact in done:
        assert open_artifact(artifact.path) == artifact
    assert names(root) == {"1", "2", "3", "4"}


def test_x14_a_run_that_published_nothing_does_not_take_the_folder_from_another(
    tmp_path: Path,
) -> None:
    root = tmp_path / "mlp"
    first = Store(root).staging()
    first.__enter__()
    second = Store(root).staging()
    staged = second.__enter__()
    first.__exit__(None, None, None)
    (staged / "model.onnx").write_bytes(b"x")
    published = Store(root).publish(staged, make_manifest(hash_files(staged, lambda _: "model")))
    second.__exit__(None, None, None)

    assert open_artifact_files(published) == {"model.onnx", "modelops.json"}


def open_artifact_files(artifact: Artifact) -> set[str]:
    return {p.name for p in artifact.path.iterdir()}


def test_x14_planted_numbers_are_stepped_over(tmp_path: Path) -> None:
    root, outside = tmp_path / "mlp", tmp_path / "outside"
    outside.mkdir()
    publish(root)
    (root / "2").symlink_to(outside)
    (root / "3").write_text("a file")
    (root / "4").mkdir()

    assert publish(root).version == 5
    assert list(outside.iterdir()) == []


def test_x14_a_planted_staging_name_is_removed_and_not_followed(tmp_path: Path) -> None:
    root, outside = tmp_path / "mlp", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("kept")
    publish(root)
    (root / ".staging-planted").symlink_to(outside)
    inner = root / ".staging-folder"
    inner.mkdir()
    (inner / ".lock").symlink_to(outside / "precious")
    (inner / "files").symlink_to(outside)

    publish(root)

    assert names(root) == {"1", "2"}
    assert (outside / "precious").read_text() == "kept"


@pytest.mark.parametrize("plant", ["link", "folder"])
def test_x14_a_planted_lock_is_refused(tmp_path: Path, plant: str) -> None:
    root, outside = tmp_path / "mlp", tmp_path / "outside"
    root.mkdir()
    if plant == "link":
        (root / ".lock").symlink_to(outside)
    else:
        (root / ".lock").mkdir()

    with pytest.raises(IntegrityError, match="no lock file"):
        publish(root)
    assert not outside.exists()


def test_a_root_that_cannot_be_written_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    with pytest.raises(MissingEnvironmentError, match="Permission denied") as caught:
        publish(tmp_path / "mlp")
    assert caught.value.hint is not None
    assert "-o" in caught.value.hint


def test_the_root_is_no_version_itself(tmp_path: Path) -> None:
    published = publish(tmp_path / "mlp")
    with pytest.raises(UsageError, match="itself one version") as caught:
        Store(published.path)
    assert str(tmp_path / "mlp") in (caught.value.hint or "")


def test_a_second_export_does_not_wait_for_the_first_to_finish(tmp_path: Path) -> None:
    root = tmp_path / "mlp"
    with Store(root).staging():
        began = time.monotonic()
        publish(root)
        assert time.monotonic() - began < 5
    assert versions(root) == [1]
