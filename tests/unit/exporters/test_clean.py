"""What an artifact must not tell, and whose line an error is."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from modelops_exporters.carried import carried_files
from modelops_exporters.leaks import leaks
from modelops_exporters.user_code import line_in, user_line


def test_x16_leaks_are_found_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "trainer-node-17")
    work = tmp_path / "somewhere" / "deep"
    work.mkdir(parents=True)
    monkeypatch.chdir(work)
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "clean.bin").write_bytes(b"\0" * 100)
    (folder / "empty").touch()
    (folder / "a.onnx").write_bytes(b"\1" + str(work).encode())
    (folder / "b.json").write_text(f'"{sys.prefix}/lib/x.py" trainer-node-17')
    assert leaks(folder) == [
        "a.onnx holds the working folder",
        "b.json holds the Python environment",
        "b.json holds the host name",
    ]


@pytest.mark.parametrize("where", ["/home/x/run7", "C:\\models\\run7", "~/run7", "\\\\host\\run7"])
def test_x16_paths_in_carried_json_are_dropped(tmp_path: Path, where: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"_name_or_path": where, "hidden_size": 4}))
    kept = carried_files({"config.json": path})["config.json"]
    assert isinstance(kept, bytes)
    assert json.loads(kept) == {"hidden_size": 4}


def test_what_tells_nothing_is_carried_byte_for_byte(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text('{"_name_or_path": "org/model",  "a": 1}')
    (tmp_path / "vocab.txt").write_text("x")
    files = {"config.json": path, "vocab.txt": tmp_path / "vocab.txt"}
    assert carried_files(files) == files


def test_the_innermost_line_that_is_the_users() -> None:
    try:
        subprocess.run([sys.executable, "-c", "import sys; sys.exit(3)"], check=True)
    except subprocess.CalledProcessError as error:
        found = user_line(error)
    assert found is not None
    assert "subprocess.run" in found
    assert found.startswith("test_clean.py:") or "test_clean.py:" in found


def test_frames_inside_a_message() -> None:
    library = f'File "{Path(json.__file__)}", line 3, in loads'
    text = f'  File "/srv/app/net.py", line 12, in forward\n    x = 1\n  {library}\n'
    assert line_in(text) == "net.py:12"
    assert line_in(library) is None
