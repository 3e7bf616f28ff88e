"""The five steps of CONTRIBUTING, taken: its code joins by entry points and is used."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest
from documents import Reader, blocks

CONTRIBUTING = Path(__file__).parents[2] / "docs" / "CONTRIBUTING.md"


def _install(folder: Path) -> None:
    """Make the document's entry points known, as installing its package would."""
    (toml,) = (b.text for b in blocks(CONTRIBUTING) if b.language == "toml")
    groups = tomllib.loads(toml)["project"]["entry-points"]
    info = folder / "my_plugin-0.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-plugin\nVersion: 0.1\n")
    lines = [
        line
        for group, entries in groups.items()
        for line in (f"[{group}]", *(f"{name} = {value}" for name, value in entries.items()))
    ]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_exporter_and_the_engine_of_the_document_work(tmp_path: Path) -> None:
    _install(tmp_path)
    reader = Reader(tmp_path)
    reader.environment["PYTHONPATH"] = os.pathsep.join(
        [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    reader.read(CONTRIBUTING)
    assert reader.left_out == []
    artifact = tmp_path / "artifacts" / "scorer" / "1"
    assert not (artifact / "model.onnx.data").exists()
    assert (artifact / "model.onnx").stat().st_size > 40 * 64 * 4
