"""GGUF headers: whole ones are read, and every lie is told before memory is taken for it."""

from __future__ import annotations

import resource
import struct
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest

from modelops.checkpoint import inspect_checkpoint, open_checkpoint
from modelops.checkpoint.gguf_file import read_header
from modelops.errors import CheckpointError


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def key(name: str, kind: int, value: bytes) -> bytes:
    return text(name) + struct.pack("<I", kind) + value


def tensor(
    name: str = "w", shape: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0
) -> bytes:
    dims = b"".join(struct.pack("<Q", n) for n in shape)
    return text(name) + struct.pack("<I", len(shape)) + dims + struct.pack("<IQ", kind, offset)


def whole(
    *tensors: bytes,
    keys: tuple[bytes, ...] = (),
    data: int = 128,
    version: int = 3,
    counts: tuple[int, int] | None = None,
    magic: bytes = b"GGUF",
) -> bytes:
    listed = tensors or (tensor(),)
    tensor_count, key_count = counts or (len(listed), len(keys))
    head = magic + struct.pack("<IQQ", version, tensor_count, key_count)
    body = head + b"".join(keys) + b"".join(listed)
    return body + b"\0" * (-len(body) % 32) + b"\0" * data


def test_what_the_library_writes_is_read(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_string("name", "é")
    writer.add_bool("yes", True)
    writer.add_float32("half", 0.5)
    writer.add_array("words", ["a", "b"])
    writer.add_array("numbers", [1, 2, 3])
    values = np.arange(96, dtype=np.float32).reshape(3, 32)
    writer.add_tensor("w", values)
    packed = gguf.quantize(values, gguf.GGMLQuantizationType.Q8_0)
    writer.add_tensor("q", packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    header = read_header(tmp_path / "m.gguf")
    assert header.architecture == "llama"
    assert {k: header.metadata[k] for k in ("name", "yes", "half", "words")} == {
        "name": "é",
        "yes": True,
        "half": 0.5,
        "words": ["a", "b"],
    }
    assert header.metadata["numbers"].tolist() == [1, 2, 3]
    assert [(t.name, t.type_name, t.shape) for t in header.tensors] == [
        ("w", "F32", (3, 32)),
        ("q", "Q8_0", (3, 32)),
    ]
    raw = (tmp_path / "m.gguf").read_bytes()
    first = header.tensors[0]
    assert raw[first.begin : first.begin + first.nbytes] == values.tobytes()
    assert open_checkpoint(str(tmp_path / "m.gguf")).format == "gguf"
    seen = inspect_checkpoint(str(tmp_path / "m.gguf"))
    assert (seen.format, seen.refused, seen.parameters) == ("gguf", None, 192)
    assert seen.bytes == 96 * 4 + 3 * 34
    assert seen.dtypes == {"F32": 1, "Q8_0": 1}


HUGE = (1 << 64) - 1
BAD = {
    "another magic": (whole(magic=b"GGUX"), "begin with GGUF"),
    "version 1": (whole(version=1), "version 1"),
    "version 4": (whole(version=4), "version 4"),
    "big-endian": (whole(version=3 << 24), "big-endian"),
    "huge tensor count": (whole(counts=(HUGE, 0)), "claims"),
    "huge key count": (whole(counts=(1, HUGE)), "claims"),
    "more tensors than there are": (whole(counts=(9, 0)), "0 dims"),
    "only a magic": (b"GGUF\3\0\0\0", "truncated"),
    "huge key": (whole(keys=(struct.pack("<Q", HUGE),)), "claims"),
    "key twice": (whole(keys=(key("a", 0, b"\1"),) * 2), "stands twice"),
    "key that is no text": (whole(keys=(key("a", 0, b"\1").replace(b"a", b"\xff"),)), "UTF-8"),
    "huge string": (whole(keys=(key("a", 8, struct.pack("<Q", 1 << 40)),)), "allowed"),
    "string past the end": (whole(keys=(key("a", 8, struct.pack("<Q", 1 << 20)),)), "truncated"),
    "unknown type of value": (whole(keys=(key("a", 99, b""),)), "unknown type 99"),
    "huge array": (whole(keys=(key("a", 9, struct.pack("<IQ", 4, 1 << 60)),)), "truncated"),
    "huge array of strings": (whole(keys=(key("a", 9, struct.pack("<IQ", 8, 1 << 40)),)), "claims"),
    "array of arrays": (whole(keys=(key("a", 9, struct.pack("<IQ", 9, 1)),)), "arrays of arrays"),
    "alignment of 3": (whole(keys=(key("general.alignment", 4, b"\3\0\0\0"),)), "alignment"),
    "alignment of 0": (whole(keys=(key("general.alignment", 4, b"\0" * 4),)), "alignment"),
    "alignment that is text": (whole(keys=(key("general.alignment", 8, text("x")),)), "alignment"),
    "no tensors": (whole(counts=(0, 0)), "no tensors"),
    "no dims": (whole(tensor(shape=())), "0 dims"),
    "five dims": (whole(tensor(shape=(1,) * 5)), "5 dims"),
    "dim of zero": (whole(tensor(shape=(0,))), "shape"),
    "dims beyond all": (whole(tensor(shape=(1 << 40, 1 << 40))), "shape"),
    "unknown type": (whole(tensor(kind=77)), "unknown type 77"),
    "a type that is no more": (whole(tensor(kind=4)), "unknown type 4"),
    "part of a block": (whole(tensor(shape=(33,), kind=3)), "multiple of the 32"),
    "unaligned": (whole(tensor(offset=8)), "aligned"),
    "past the end": (whole(tensor(offset=1 << 50)), "hole"),
    "truncated data": (whole(data=100), "truncated"),
    "overlap": (whole(tensor("a"), tensor("b", offset=64), data=256), "overlaps"),
    "name twice": (whole(tensor("a"), tensor("a", offset=128), data=256), "stands twice"),
    "hole": (whole(tensor("a"), tensor("b", offset=256), data=384), "hole"),
    "more at the end": (whole(data=1 << 12), "belong to no tensor"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_wrong_is_refused_and_told(tmp_path: Path, case: str) -> None:
    content, why = BAD[case]
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=why):
        read_header(path)
    seen = inspect_checkpoint(str(path))
    assert why in (seen.refused or "") or case == "another magic"


@pytest.mark.parametrize("cut", [1, 3, 10, 23, 60, 200])
def test_every_truncation_is_refused(tmp_path: Path, cut: int) -> None:
    content = whole(keys=(key("a", 8, text("x" * 100)), key("b", 9, struct.pack("<IQ", 4, 0))))
    (tmp_path / "cut.gguf").write_bytes(content[:-cut] if cut < 200 else content[:cut])
    with pytest.raises(CheckpointError):
        read_header(tmp_path / "cut.gguf")


def test_lies_take_no_memory(tmp_path: Path) -> None:
    """Every bad file above, read in one process that may take 64 MiB more than it began with."""
    for number, (content, _) in enumerate(BAD.values()):
        (tmp_path / f"{number}.gguf").write_bytes(content)
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from modelops.checkpoint.gguf_file import read_header\n"
        "from modelops.errors import CheckpointError\n"
        "status = Path('/proc/self/status').read_text()\n"
        "used = int(status.split('VmSize:')[1].split()[0]) << 10\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20),) * 2)\n"
        "for path in Path(sys.argv[1]).glob('*.gguf'):\n"
        "    try:\n"
        "        read_header(path)\n"
        "    except CheckpointError:\n"
        "        continue\n"
        "    raise SystemExit(f'{path} was read')\n"
    )
    assert resource.getrlimit(resource.RLIMIT_AS)[0] in (resource.RLIM_INFINITY, -1)
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
