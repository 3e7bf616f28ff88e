"""Trusting by decision shows what is trusted, and only trusts what is whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_artifacts import make_artifact

from modelops.api.trust import list_trusted, remove_trust, trust_artifact
from modelops.artifact import Artifact, open_artifact
from modelops.errors import InputError, IntegrityError, UnsafeInputError


@pytest.fixture
def code(tmp_path: Path) -> Artifact:
    return make_artifact(
        tmp_path / "net", format="torch-export", entry="m.pt2", files={"m.pt2": b"code"}
    )


def test_c3_what_is_trusted_opens(code: Artifact) -> None:
    with pytest.raises(UnsafeInputError):
        open_artifact(code.path)

    decision = trust_artifact(code.path.parent)

    assert decision.digest == code.manifest.digest
    assert (decision.format, decision.source) == ("torch-export", "mlp (safetensors)")
    assert decision.needed
    assert not decision.already
    assert open_artifact(code.path) == code
    assert trust_artifact(code.path).already
    assert [d.how for d in list_trusted()] == ["decision"]


def test_c3_what_is_not_whole_is_not_trusted(code: Artifact) -> None:
    code.file().write_bytes(b"evil")
    with pytest.raises(IntegrityError):
        trust_artifact(code.path)
    assert list_trusted() == []


@pytest.mark.parametrize("by", ["digest", "folder"])
def test_trust_is_taken_back(code: Artifact, by: str) -> None:
    trust_artifact(code.path)
    what = code.manifest.digest if by == "digest" else str(code.path)
    assert remove_trust(what) == code.manifest.digest
    with pytest.raises(UnsafeInputError):
        open_artifact(code.path)
    with pytest.raises(InputError, match="was not trusted"):
        remove_trust(what)


def test_what_is_neither_digest_nor_folder(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="neither a digest nor a folder"):
        remove_trust(str(tmp_path / "nowhere"))


def test_data_needs_no_trust(tmp_path: Path) -> None:
    assert not trust_artifact(make_artifact(tmp_path / "mlp").path).needed
