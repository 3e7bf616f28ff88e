"""C1, C2, C3, C14: pickles that ask for more than plain weights are refused, and never run."""

import io
import os
import pickle
import struct
import zipfile
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from modelops.checkpoint import inspect_checkpoint, open_checkpoint
from modelops.checkpoint.torch_file import load, scan
from modelops.errors import CheckpointError, InputError, ModelopsError, UnsafeInputError


class Touch:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def weights() -> dict[str, torch.Tensor]:
    return {"weight": torch.arange(6.0).reshape(2, 3), "bias": torch.ones(2)}


def text(value: str) -> bytes:
    data = value.encode()
    return b"X" + struct.pack("<I", len(data)) + data


def archive(path: Path, data: bytes, *, name="archive/data.pkl", extra=(), compress=False) -> Path:
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", method) as out:
        out.writestr(name, data)
        out.writestr("archive/version", "3\n")
        for entry, content in extra:
            out.writestr(entry, content)
    return path


def smuggled(command: str) -> dict[str, bytes]:
    """Each way of a pickle to call something, by hand."""
    arg = text(command)
    return {
        "reduce": b"\x80\x02cos\nsystem\n" + arg + b"\x85R.",
        "reduce with posix": b"\x80\x02cposix\nsystem\n" + arg + b"\x85R.",
        "stack_global": b"\x80\x04" + text("os") + text("system") + b"\x93" + arg + b"\x85R.",
        "stack_global by memo": b"\x80\x04"
        + text("os")
        + b"\x94"
        + text("system")
        + b"\x9400h\x00h\x01\x93"
        + arg
        + b"\x85R.",
        "inst": b"(" + arg + b"ios\nsystem\n.",
        "obj": b"(cos\nsystem\n" + arg + b"o.",
        "newobj": b"\x80\x02cos\nsystem\n" + arg + b"\x85\x81.",
        "newobj_ex": b"\x80\x04cos\nsystem\n" + arg + b"\x85}\x92.",
        "build": b"\x80\x02csubprocess\nPopen\n)\x81}" + text("args") + arg + b"sb.",
        "extension": b"\x80\x02\x82\x01" + arg + b"\x85R.",
        "in a dict": b"\x80\x02}" + text("weight") + b"cos\nsystem\n" + arg + b"\x85Rs.",
        "in a list in a tuple": b"\x80\x02](cos\nsystem\n" + arg + b"\x85Re\x85.",
        "thrown away": b"\x80\x02cos\nsystem\n" + arg + b"\x85R0}.",
        "getattr chain": b"\x80\x02cbuiltins\ngetattr\ncos\nsystem\n" + arg + b"\x86R.",
        "python 2 eval": b"\x80\x02c__builtin__\neval\n" + arg + b"\x85R.",
        "nested loads": b"\x80\x02ctorch.storage\n_load_from_bytes\n" + arg + b"\x85R.",
        "default of torch": b"\x80\x02ctorch.hub\nload\n" + arg + b"\x85R.",
    }


WAYS = sorted(smuggled(""))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("container", ["zip", "compressed", "legacy", "bare", "legacy header"])
def test_c1_no_way_of_smuggling_runs_anything(tmp_path: Path, way: str, container: str) -> None:
    marker = tmp_path / "marker"
    data = smuggled(f"touch {marker}")[way]
    path = tmp_path / "weights.pt"
    if container in ("zip", "compressed"):
        archive(path, data, compress=container == "compressed")
    elif container == "bare":
        path.write_bytes(data)
    else:
        magic = pickle.dumps(torch.serialization.MAGIC_NUMBER, 2)
        head = [magic, pickle.dumps(1001, 2), pickle.dumps({"little_endian": True}, 2)]
        if container == "legacy header":
            head[2] = data
            data = pickle.dumps({}, 2)
        path.write_bytes(b"".join(head) + data + pickle.dumps([], 2))
    with pytest.raises(InputError) as caught:
        open_checkpoint(str(path))
    if container != "compressed":
        assert isinstance(caught.value, UnsafeInputError)
        assert caught.value.exit_code == 3
        assert "nothing was run" in caught.value.message
    with pytest.raises(InputError):
        load(path)
    inspection = inspect_checkpoint(str(path))
    assert inspection.refused
    assert not marker.exists()


def test_c1_names_the_global_and_how_to_save_again(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    path = tmp_path / "evil.pt"
    torch.save({"weight": torch.ones(2), "evil": Touch(marker)}, path)
    with pytest.raises(UnsafeInputError, match=r"posix\.system") as caught:
        open_checkpoint(str(path))
    assert "state_dict()" in (caught.value.hint or "")
    inspection = inspect_checkpoint(str(path))
    assert inspection.would_run == ("posix.system",)
    assert [t.name for t in inspection.tensors] == ["weight"]
    assert not marker.exists()


def test_c2_one_refused_global_among_good_tensors_is_never_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "mixed.pt"
    torch.save({"state_dict": weights(), "path": Path("/x")}, path)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    calls = []
    monkeypatch.setattr(torch, "load", lambda *a, **k: calls.append(k))
    with pytest.raises(UnsafeInputError, match="pathlib"):
        open_checkpoint(str(path))
    with pytest.raises(UnsafeInputError, match="pathlib"):
        load(path)
    assert calls == []


def test_c2_a_global_that_another_library_allowed_stays_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pt"
    torch.save({"weight": torch.ones(2), "x": Touch(tmp_path / "marker")}, path)
    with (
        torch.serialization.safe_globals([os.system, (os.system, "posix.system")]),
        pytest.raises(UnsafeInputError, match=r"posix\.system"),
    ):
        open_checkpoint(str(path))
    assert not (tmp_path / "marker").exists()


def test_more_than_ten_refused_globals_are_counted(tmp_path: Path) -> None:
    body = b"".join(b"cmod%d\nThing\n" % i for i in range(13))
    path = archive(tmp_path / "w.pt", b"\x80\x02(" + body + b"t.")
    with pytest.raises(UnsafeInputError, match=r"13 things.*and 3 more"):
        open_checkpoint(str(path))


@pytest.mark.parametrize(
    "extra",
    [
        [("other/data.pkl", smuggled("true")["reduce"])],
        [("archive/nested/data.pkl", smuggled("true")["reduce"])],
        [("archive/constants.pkl", smuggled("true")["reduce"])],
        [("archive/DATA.PKL", smuggled("true")["reduce"])],
        [("archive/../x", b"")],
        [("/absolute", b"")],
    ],
)
def test_c1_an_archive_with_two_readings_is_refused(tmp_path: Path, extra) -> None:
    buffer = io.BytesIO()
    torch.save(weights(), buffer)
    path = tmp_path / "w.pt"
    path.write_bytes(buffer.getvalue())
    with zipfile.ZipFile(path, "a") as out:
        root = out.namelist()[0].split("/")[0]
        for name, content in extra:
            out.writestr(name.replace("archive", root), content)
    with pytest.raises(UnsafeInputError):
        open_checkpoint(str(path))


@pytest.mark.filterwarnings("ignore:Duplicate name:UserWarning")  # the fault under test
def test_c1_duplicate_entries_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save(weights(), path)
    with zipfile.ZipFile(path, "a") as out:
        name = next(n for n in out.namelist() if n.endswith("data.pkl"))
        out.writestr(name, b"\x80\x02}.")
    with pytest.raises(UnsafeInputError, match="twice"):
        open_checkpoint(str(path))


def test_a_compressed_archive_is_refused_as_torch_would_map_its_bytes_raw(tmp_path: Path) -> None:
    path = archive(tmp_path / "w.pt", b"\x80\x02}.", compress=True)
    with pytest.raises(CheckpointError, match="compressed"):
        open_checkpoint(str(path))


def test_c3_pt2_is_refused_and_says_that_it_asks_for_pickle(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    marker = tmp_path / "marker"
    evil = pickle.dumps(Touch(marker))
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("model/archive_format", "pt2")
        out.writestr("model/archive_version", "0")
        out.writestr("model/models/model.json", "{}")
        out.writestr("model/data/weights/model_weights_config.json", '{"a": {"use_pickle": true}}')
        out.writestr("model/data/weights/weight_0", evil)
    with pytest.raises(UnsafeInputError, match="executable code, and its content asks for pickle"):
        open_checkpoint(str(path))
    assert "executable code" in (inspect_checkpoint(str(path)).refused or "")
    assert not marker.exists()


def test_c3_a_real_pt2_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "renamed.pt"
    program = torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),))
    torch.export.save(program, path)
    with pytest.raises(UnsafeInputError, match=r"torch\.export archive"):
        open_checkpoint(str(path))


def test_torchscript_is_refused(tmp_path: Path) -> None:
    path = archive(
        tmp_path / "w.pt", b"\x80\x02}.", extra=[("archive/constants.pkl", b"\x80\x02).")]
    )
    with pytest.raises(UnsafeInputError, match="TorchScript"):
        open_checkpoint(str(path))


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (
            b"comegaconf.dictconfig\nDictConfig\n)\x81}" + text("_content") + b"}sb",
            r"omegaconf\.dictconfig\.DictConfig",
        ),
        (b"cmy.project\nColour\nK\x01\x85R", r"my\.project\.Colour"),
    ],
)
def test_c14_config_nodes_and_enums_are_named(tmp_path: Path, body: bytes, name: str) -> None:
    path = archive(tmp_path / "w.pt", b"\x80\x02}" + text("cfg") + body + b"s.")
    with pytest.raises(UnsafeInputError, match=name) as caught:
        open_checkpoint(str(path))
    assert "torch.save" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x80",
        b"\x80\x02",
        b"\x80\x02}",
        b"\x80\x02R.",
        b"\x80\x02h\x05.",
        b"\x80\x02" + b"(" * 50_000,
        b"\x80\x02" + b")\x85" * 50_000 + b".",
        b"\x80\x02}" + b")" + b"\x85" * 200_000 + b"K\x01s.",  # hashing this key crashes CPython
        b"\x80\x02]r\xff\xff\xff\x7f.",
        b"\x80\x02X\xff\xff\xff\xff",
        b"\x80\x02\x8b\xff\xff\xff\x7f",
        b"\x80\x02I" + b"9" * 10_000 + b"\n.",
        b"\x80\x02K\x01Q.",
        b"Pid\n.",
    ],
)
def test_damaged_and_hostile_pickles_end_in_a_clear_error(tmp_path: Path, data: bytes) -> None:
    for path in (archive(tmp_path / "zip.pt", data), tmp_path / "bare.pt"):
        if path.name == "bare.pt":
            path.write_bytes(data)
        with pytest.raises(InputError) as caught:
            open_checkpoint(str(path))
        assert path.name in caught.value.message


def test_billion_laughs_stay_bounded(tmp_path: Path) -> None:
    data = b"\x80\x02]q\x00"
    for i in range(60):  # each list holds the one before it twice
        data += b"](" + b"h%ch%ce" % (i, i) + b"q%c" % (i + 1)
    with pytest.raises(CheckpointError, match="no state dict"):
        open_checkpoint(str(archive(tmp_path / "w.pt", data + b".")))


@pytest.mark.parametrize("legacy", [False, True])
def test_truncation_is_named(tmp_path: Path, legacy: bool) -> None:
    path = tmp_path / "w.pt"
    torch.save(weights(), path, _use_new_zipfile_serialization=not legacy)
    whole = path.read_bytes()
    for cut in (1, 7, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:cut])
        with pytest.raises(CheckpointError, match=r"w\.pt"):
            open_checkpoint(str(path))


def _with_pickle(path: Path, change) -> None:
    """Rewrite the pickle of a torch file."""
    with zipfile.ZipFile(path) as source:
        entries = {name: source.read(name) for name in source.namelist()}
    with zipfile.ZipFile(path, "w") as out:
        for name, data in entries.items():
            out.writestr(name, change(data) if name.endswith("data.pkl") else data)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (b"K\x02K\x03\x86", b"K\x09K\x03\x86", "past the end"),  # shape
        (b"K\x03K\x01\x86", b"K\x09K\x01\x86", "past the end"),  # stride
        (b"K\x06t", b"K\x60t", "should hold 96"),  # storage
    ],
)
def test_a_tensor_outside_its_storage_is_named(tmp_path: Path, old, new, why) -> None:
    path = tmp_path / "w.pt"
    torch.save(weights(), path)
    _with_pickle(path, lambda data: data.replace(old, new, 1))
    with pytest.raises(CheckpointError, match=why):
        open_checkpoint(str(path))


def test_what_was_scanned_is_what_is_loaded(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "w.pt"
    torch.save(weights(), path)
    opened = open_checkpoint(str(path))
    marker = tmp_path / "marker"
    torch.save({"weight": Touch(marker)}, path)  # swapped after it was checked
    with pytest.raises(UnsafeInputError):
        opened.tensors()
    assert not marker.exists()


def test_newer_pickle_protocols_are_refused_with_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "w.pt"
    torch.save(weights(), path, pickle_protocol=4)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(str(path))
    assert "default pickle_protocol" in (caught.value.hint or "")


@pytest.mark.parametrize("legacy", [False, True])
def test_honest_files_load_exactly(tmp_path: Path, legacy: bool) -> None:
    held = {
        **weights(),
        "half": torch.randn(3).half(),
        "bf16": torch.randn(4, 2).bfloat16(),
        "f8": torch.randn(4).to(torch.float8_e4m3fn),
        "u16": torch.ones(3, dtype=torch.uint16),
        "flag": torch.tensor([True, False]),
        "complex": torch.ones(2, dtype=torch.complex64),
        "scalar": torch.tensor(3),
        "empty": torch.empty(0, 4),
        "transposed": torch.arange(6.0).reshape(2, 3).t(),
        "view": torch.arange(10.0)[3:7],
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }
    if legacy:
        # torch itself does not read these from the format of before 1.6.
        held = {k: v for k, v in held.items() if k not in ("f8", "u16")}
    path = tmp_path / "w.pt"
    torch.save(held, path, _use_new_zipfile_serialization=not legacy)
    tensors = open_checkpoint(str(path)).tensors()
    assert tensors.keys() == held.keys()
    for name, value in held.items():
        assert tensors[name].dtype == value.dtype
        assert tensors[name].shape == value.shape
        assert value.is_complex() or tensors[name].float().equal(value.float())
    infos = {t.name: (t.dtype, t.shape) for t in inspect_checkpoint(str(path)).tensors}
    assert legacy or infos["f8"] == ("float8_e4m3fn", (4,))
    assert infos["transposed"] == ("float32", (3, 2))


def test_scan_tells_globals_without_the_modules(tmp_path: Path) -> None:
    path = archive(tmp_path / "w.pt", b"\x80\x02cno.such.module\nThing\n.")
    assert list(scan(path).globals) == ["no.such.module.Thing"]


@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data(), legacy=st.booleans())
def test_flipped_bytes_never_give_anything_but_our_errors(tmp_path: Path, data, legacy) -> None:
    buffer = io.BytesIO()
    torch.save(weights(), buffer, _use_new_zipfile_serialization=not legacy)
    raw = bytearray(buffer.getvalue())
    flips = st.lists(
        st.tuples(st.integers(0, len(raw) - 1), st.integers(0, 255)), min_size=1, max_size=8
    )
    for position, value in data.draw(flips):
        raw[position] = value
    path = tmp_path / "fuzz.pt"
    path.write_bytes(bytes(raw))
    try:
        open_checkpoint(str(path)).tensors()
    except ModelopsError as error:
        assert error.exit_code == 3  # noqa: PT017  most inputs raise nothing


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(body=st.binary(max_size=200), head=st.sampled_from([b"\x80\x02", b"\x80\x04", b"(", b""]))
def test_random_pickles_never_give_anything_but_our_errors(tmp_path: Path, body, head) -> None:
    path = tmp_path / "fuzz.pt"
    for write in (lambda d: archive(path, d), path.write_bytes):
        write(head + body)
        try:
            open_checkpoint(str(path)).tensors()
        except ModelopsError as error:
            assert error.exit_code == 3  # noqa: PT017  most inputs raise nothing
