"""The trust store is the user's alone, and survives whoever writes at the same time."""

from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

import modelops.artifact.trust_store as module
from modelops.artifact import distrust, is_trusted, trust, trusted
from modelops.errors import IntegrityError, UnsafeInputError

A, B = ("sha256:" + c * 64 for c in "ab")


def test_added_listed_removed(trust_store: Path) -> None:
    assert not is_trusted(A)
    assert trusted() == []
    assert not trust_store.exists()

    trust(A, "first", "export")
    trust(B, "second", "decision")
    trust(A, "again", "decision")

    assert is_trusted(A)
    assert [(d.digest, d.name, d.how) for d in trusted()] == [
        (A, "first", "export"),
        (B, "second", "decision"),
    ]
    assert stat.S_IMODE(trust_store.stat().st_mode) == 0o600
    assert {p.name for p in trust_store.parent.iterdir()} == {"trust.json", "trust.json.lock"}
    assert distrust(A)
    assert not distrust(A)
    assert not is_trusted(A)


def test_the_folder_is_made_for_the_user_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MODELOPS_TRUST_STORE")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    trust(A, "a", "export")
    assert module.store_path() == tmp_path / "config" / "modelops" / "trust.json"
    assert stat.S_IMODE(module.store_path().parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666, 0o660])
def test_a_store_that_others_may_write_is_not_believed(trust_store: Path, mode: int) -> None:
    trust(A, "a", "export")
    trust_store.chmod(mode)
    for use in (
        lambda: is_trusted(A),
        trusted,
        lambda: trust(B, "b", "export"),
        lambda: distrust(A),
    ):
        with pytest.raises(UnsafeInputError, match="others may write") as caught:
            use()
        assert caught.value.hint is not None
        assert "chmod 600" in caught.value.hint


def test_a_folder_that_others_may_write_is_not_believed(trust_store: Path) -> None:
    trust(A, "a", "export")
    trust_store.parent.chmod(0o777)
    with pytest.raises(UnsafeInputError, match="anybody may write"):
        is_trusted(A)
    trust_store.parent.chmod(0o1777)
    assert is_trusted(A)


def test_a_linked_store_is_not_believed(trust_store: Path, tmp_path: Path) -> None:
    trust(A, "a", "export")
    trust_store.rename(tmp_path / "planted.json")
    trust_store.symlink_to(tmp_path / "planted.json")
    with pytest.raises(UnsafeInputError, match="it is a link"):
        is_trusted(A)
    trust_store.unlink()
    os.mkfifo(trust_store)
    with pytest.raises(UnsafeInputError, match="no regular file"):
        is_trusted(A)


def test_a_linked_lock_is_refused(trust_store: Path, tmp_path: Path) -> None:
    trust_store.with_name("trust.json.lock").symlink_to(tmp_path / "planted")
    with pytest.raises(UnsafeInputError, match="lock"):
        trust(A, "a", "export")
    assert not (tmp_path / "planted").exists()


def test_another_users_store_is_not_believed(
    trust_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(A, "a", "export")
    values = list(trust_store.stat())
    values[4] += 1
    monkeypatch.setattr(module.os, "fstat", lambda _: os.stat_result(values))
    with pytest.raises(UnsafeInputError, match="belongs to another user"):
        is_trusted(A)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", '{"version": 2, "digests": {}}', '{"digests": {"x": 1}}', "\0" * 100],
)
def test_a_damaged_store_trusts_nothing(trust_store: Path, text: str) -> None:
    trust_store.write_text(text)
    trust_store.chmod(0o600)
    with pytest.raises(IntegrityError, match="is damaged"):
        is_trusted(A)
    with pytest.raises(IntegrityError):
        trust(A, "a", "export")
    assert trust_store.read_text() == text


def test_writers_at_the_same_time_lose_nothing() -> None:
    digests = [f"sha256:{n:064x}" for n in range(24)]
    threads = [threading.Thread(target=trust, args=(d, "n", "export")) for d in digests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {d.digest for d in trusted()} == set(digests)


def test_an_interrupted_write_keeps_the_old_store(
    trust_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust(A, "a", "export")
    before = trust_store.read_bytes()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module.os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        trust(B, "b", "export")
    assert trust_store.read_bytes() == before
    assert {p.name for p in trust_store.parent.iterdir()} == {"trust.json", "trust.json.lock"}
