"""Variables and keys: taken where they are right, named where they are not, never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelops.config.environment import VARIABLES, server_from
from modelops.config.keys import parse_keys, read_keys
from modelops.config.settings import ServerEntry
from modelops.errors import InputError, UsageError


def test_every_variable_sets_its_field() -> None:
    values = {"host": "::1", "port": "0", "fronts": " 3 ", "admin_port": "9001",
              "keys_file": "k.txt", "drain_seconds": "0.5"}  # fmt: skip
    assert {"grpc_port", *VARIABLES.values()} == set(ServerEntry.model_fields)
    found = server_from({v: values[f] for v, f in VARIABLES.items()} | {"PORT": "1"})
    assert found == {"host": "::1", "port": 0, "fronts": 3, "admin_port": 9001,
                     "keys_file": Path("k.txt"), "drain_seconds": 0.5}  # fmt: skip


def test_what_is_unset_or_empty_sets_nothing() -> None:
    assert server_from({"MODELOPS_PORT": "", "MODELOPS_API_KEYS": " , ", "MODELOPS_X": "1"}) == {}


@pytest.mark.parametrize(
    ("variable", "value"),
    [("MODELOPS_PORT", "http"), ("MODELOPS_PORT", "70000"), ("MODELOPS_FRONTS", "1.5"),
     ("MODELOPS_DRAIN_SECONDS", "nan"), ("MODELOPS_HOST", "http://x"),
     ("MODELOPS_API_KEYS", "geheim1")],
)  # fmt: skip
def test_a_variable_that_cannot_be_meant_is_named_without_its_value(
    variable: str, value: str
) -> None:
    with pytest.raises(UsageError, match=f"^{variable}: ") as caught:
        server_from({variable: value})
    assert variable != "MODELOPS_API_KEYS" or value not in str(caught.value)


def secrets(path: Path, told: list[str] | None = None) -> list[str]:
    found = read_keys(path, (told if told is not None else []).append)
    return [key.get_secret_value() for key in found]


def test_a_keys_file_has_one_key_a_line(tmp_path: Path) -> None:
    path = tmp_path / "keys"
    path.write_bytes(
        b"\xef\xbb\xbf# first\r\nkey-number-one\r\n\r\n  key,number,two \n#key-three-off"
    )
    path.chmod(0o640)
    told: list[str] = []
    assert secrets(path, told) == ["key-number-one", "key,number,two"]
    assert told == []


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o602])
def test_a_keys_file_that_others_reach_is_warned_about(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "keys"
    path.write_text("key-number-one\n")
    path.chmod(mode)
    told: list[str] = []
    assert secrets(path, told) == ["key-number-one"]
    assert len(told) == 1
    assert f"chmod 600 {path}" in told[0]
    assert "key-number-one" not in told[0]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"", "holds no key"), (b"# only\n\n", "holds no key"), (b"a\nb", "line 1: an API key"),
     (b"long-enough\nwith space in it\n", "line 2: an API key"), (b"\xff\xfe", "not UTF-8"),
     ("schlüssel-lang".encode(), "line 1: an API key"), (b"k" * 2**21, "larger than 1024 KiB")],
)  # fmt: skip
def test_h9_a_keys_file_that_opens_nothing_is_refused_without_being_shown(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "keys"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        read_keys(path)
    assert caught.value.__cause__ is None or "input_value" not in str(caught.value.__cause__)
    for word in ("space in it", "schlüssel"):
        assert word not in str(caught.value)


def test_a_keys_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"the keys file .*none cannot be read"):
        read_keys(tmp_path / "none")


def test_keys_are_split_at_commas_and_spaces() -> None:
    assert [k.get_secret_value() for k in parse_keys("a, b  c,")] == ["a", "b", "c"]
    assert parse_keys(None) == ()
