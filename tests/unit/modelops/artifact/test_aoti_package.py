"""AOTInductor packages are hostile until checked, and run only on the machine they are for."""

from __future__ import annotations

import platform
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from fake_artifacts import make_artifact

from modelops.artifact import Manifest
from modelops.artifact import aoti_package as package
from modelops.errors import IntegrityError, MissingEnvironmentError

_MARKS = (".data/version", ".data/serialization_id", "archive_format", "archive_version")
_PARTS = {
    package.LIBRARY: b"\x7fELF",
    package.METADATA: b'{"AOTI_CPU_ISA": "AVX2"}',
    **{f"model/{name}": b"1" for name in (*_MARKS, "byteorder")},
}


def written(
    path: Path, parts: dict[str, bytes], *, mode: int = 0, method: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in parts.items():
            info = zipfile.ZipInfo(name)
            info.external_attr, info.compress_type = mode << 16, method
            archive.writestr(info, content)
    return path


def test_only_what_the_exporter_writes_is_a_package(tmp_path: Path) -> None:
    good = written(tmp_path / "good", _PARTS)
    assert package.check_package(good) == {"AOTI_CPU_ISA": "AVX2"}
    lacking = {k: v for k, v in _PARTS.items() if k != package.LIBRARY}
    for bad in (
        written(tmp_path / "slip", {**_PARTS, "../../evil.so": b"x"}),
        written(tmp_path / "more", {**_PARTS, "model/data/other.so": b"x"}),
        written(tmp_path / "lack", lacking),
        written(tmp_path / "link", _PARTS, mode=0o120777),
        written(tmp_path / "bomb", _PARTS, method=zipfile.ZIP_DEFLATED),
        written(tmp_path / "json", {**_PARTS, package.METADATA: b"[1]"}),
    ):
        with pytest.raises(IntegrityError):
            package.check_package(bad)
    good.write_bytes(b"no zip")
    with pytest.raises(IntegrityError, match="no AOTInductor package"):
        package.check_package(good)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="instruction sets of x86-64")
def test_another_machine_is_shown_beside_this_one_and_how_to_rebuild(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = frozenset(["avx2", "fma", "f16c", "bmi1", "bmi2"])
    monkeypatch.setattr(package, "cpu_flags", lambda: flags)
    here = {"device": "cpu", "machine": "x86_64", "torch": package.release(version("torch"))}
    plain = make_artifact(tmp_path / "p", format="aoti", entry="m", files={"m": b"code"}).manifest

    def asking(**requires: str) -> Manifest:
        return plain.model_copy(update={"requires": here | requires}).sealed()

    package.check_machine(asking(instruction_set="AVX2"))
    for asked, told in (
        ({"instruction_set": "AVX512 AVX512_VNNI"}, "AVX512 AVX512_VNNI, and this CPU has AVX2"),
        ({"instruction_set": "SOMETHING"}, "SOMETHING, and this CPU has AVX2"),
        ({}, "unknown, and this CPU has AVX2"),
        ({"instruction_set": "AVX2", "torch": "1.0.0"}, r"torch 1\.0\.0, and here it is"),
        ({"instruction_set": "AVX2", "machine": "riscv64"}, "riscv64, and here it is x86_64"),
    ):
        with pytest.raises(MissingEnvironmentError, match=told) as caught:
            package.check_machine(asking(**asked))
        assert "--to aoti" in (caught.value.hint or "")
