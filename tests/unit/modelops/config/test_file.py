"""``modelops.yaml``: what is written comes back, and each mistake is told with key and line."""

from __future__ import annotations

import difflib
import re
import string
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from modelops.config import ConfigFile
from modelops.config.file import read_config
from modelops.config.yaml_values import MAX_BYTES, parse_yaml
from modelops.errors import InputError

START = "version: 1\nmodels:\n  - name: m\n    source: a\n"
EXAMPLE = Path(__file__).parents[4] / "examples" / "modelops.yaml"


def refused(path: Path, text: str | bytes) -> InputError:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InputError) as caught:
        read_config(path)
    assert str(path) in caught.value.message
    return caught.value


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "modelops.yaml"


def test_the_least_and_the_example(file: Path) -> None:
    file.write_text(START)
    loaded = read_config(file)
    assert loaded.config == ConfigFile(version=1, models=[{"name": "m", "source": "a"}])
    assert loaded.folder == file.parent
    assert loaded.where(("models", 0, "source")) == f"{file}, line 4: models[0].source"
    minilm, frames = read_config(EXAMPLE).config.models
    assert (minilm.aliases, minilm.replicas, frames.inline) == (("embedder",), 2, True)


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("    batchng: {}\n", 5, "models[0].batchng is no known key; did you mean batching?"),
        ("    batching: {max_sise: 1}\n", 5, "models[0].batching.max_sise is no known key; did"),
        ("\nservers: {}\n", 6, "servers is no known key; did you mean server?"),
        ("server:\n  port: '8080'\n", 6, "server.port is the text '8080': it must be a whole"),
        ("server: {port: 80:80}\n", 5, "server.port is the text '80:80'"),
        ("server: {port: 8_080}\n", 5, "server.port is the text '8_080'"),
        ("server: {port: 010}\n", 5, "server.port is the text '010'"),
        ("server: {port: 8080.0}\n", 5, "server.port is the number 8080.0"),
        ("server: {port: true}\n", 5, "server.port is true: it must be a whole number"),
        ("server: {port: 65536}\n", 5, "server.port should be less than or equal to 65535"),
        ("server: {grpc_port: 8001}\n", 5, "server.grpc_port: gRPC is not there yet"),
        ("server: {port: 1, admin_port: 1}\n", 5, "server: port and admin_port are both 1"),
        ("server: {drain_seconds: .inf}\n", 5, "drain_seconds should be a finite number"),
        ("server: {drain_seconds: .nan}\n", 5, "drain_seconds should be a finite number"),
        ("server: {drain_seconds: yes}\n", 5, "drain_seconds is the text 'yes'"),
        ("server: {api_keys: [abcdefghij]}\n", 5, "server.api_keys is no known key"),
        ("server:\n", 5, "server is empty: it must be keys and values"),
        ("    inline: 1\n", 5, "models[0].inline is the number 1: it must be true or false"),
        ("    inline: yes\n", 5, "models[0].inline is the text 'yes'"),
        ("    inline: true\n    replicas: 2\n", 3, "replicas must be 1"),
        ("    replicas: 2.5\n", 5, "models[0].replicas is the number 2.5"),
        ("    aliases: chat\n", 5, "models[0].aliases is the text 'chat': it must be a list"),
        ("    aliases: [1]\n", 5, "models[0].aliases[0] is the number 1: it must be text"),
        ("    aliases: [m]\n", 3, "the alias 'm' of models[0] is also the name of models[0]"),
        ("    provider: gpu\n", 5, "models[0].provider should be 'auto', 'cpu'"),
        ("  - {name: m, source: a}\n", 3, "models[0] and models[1] are both m from a"),
        ("  - {name: 8, source: b}\n", 5, "models[1].name is the number 8: it must be text"),
        ("  - {name: b}\n", 5, "models[1].source is missing"),
        ("  - {name: b, source: s3://bucket/x}\n", 5, "models[1].source: an artifact's folder"),
        ("  - b\n", 5, "models[1] is the text 'b': it must be keys and values"),
        ("version: 1\n", 5, "version was given before, on line 1"),
        ("    name: b\n", 5, "models[0].name was given before, on line 3"),
        ("\tthreads: 1\n", 5, "a tab: YAML is indented by spaces"),
        ("    <<: {threads: 1}\n", 5, "merge keys are not read"),
        ("    options: !!python/name:os.system\n", 5, "the tag '!!python/name:os.system'"),
        ("    options: !!python/object/apply:os.system [id]\n", 5, "the tag"),
        ("    threads: !!binary MQ==\n", 5, "the tag '!!binary'"),
        ("    threads: !!int '1'\n", 5, "the tag '!!int'"),
        ("    !x%1b[31m y: 1\n", 5, "the tag"),
        ("    1: 2\n", 5, "a key in models[0] is not text"),
        ("    ? [x]\n    : 1\n", 5, "a key in models[0] is not text"),
        ('    "a\\e[31mb": 1\n', 5, "models[0] holds a character that does not print"),
        ('    engine: "\\ud800"\n', 5, "models[0].engine holds a character"),
        ('    engine: "a\\0b"\n', 5, "models[0].engine holds a character"),
        ("    engine: *there\n", 5, "found undefined alias 'there'"),
        ("    engine: [\n", 6, "not YAML"),
        ("---\nversion: 1\n", 5, "a second document"),
    ],
)
def test_a_mistake_is_told_with_its_key_and_line(
    file: Path, text: str, line: int, told: str
) -> None:
    error = refused(file, START + text)
    assert f"line {line}: " in error.message
    assert told in error.message
    assert "\x1b" not in error.message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "there is nothing in it"),
        ("# only a comment\n", "there is nothing in it"),
        ("- version: 1\n", "the top level must be keys and values"),
        ("version 1", "the top level must be keys and values"),
        ("models: []\nversion: 1", "models is empty: there must be at least one"),
        ("models: [{name: a, source: b}]", "version is missing: write 'version: 1'"),
        ("version: 2\nmodels: [{name: a, source: b}]", "only version 1 of this format"),
        ("version: true\nmodels: [{name: a, source: b}]", "only version 1 of this format"),
        (b"\x7fELF\x01\x00\xff", "is not UTF-8 text"),
        ("version: 1".encode("utf-16"), "is not UTF-8 text"),
        (b"version: \x01", "a character that does not print"),
        (b"#" * (MAX_BYTES + 1), "is larger than 256 KiB"),
    ],
)
def test_what_is_no_configuration_is_one_clear_error(
    file: Path, text: str | bytes, told: str
) -> None:
    assert told in refused(file, text).message


def test_every_mistake_is_told_at_once_in_the_order_of_the_file(file: Path) -> None:
    error = refused(file, START + "    thread: 2\n  - {}\nserver: {port: x}\n")
    lines = error.message.splitlines()
    assert lines[0] == f"{file} has 4 mistakes:"
    assert [line.split(":")[0] for line in lines[1:]] == ["  line 5", *["  line 6"] * 2, "  line 7"]
    assert "models is empty" not in error.message
    error = refused(file, START + "".join(f"    zzz{i}: 1\n" for i in range(30)))
    assert error.message.endswith("and 20 more")


def test_a_file_that_is_not_there_or_a_folder_is_told(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path, Path("a\0b")):
        with pytest.raises(InputError, match="cannot be read"):
            read_config(path)


def test_a_byte_order_mark_is_no_mistake(file: Path) -> None:
    file.write_bytes(b"\xef\xbb\xbf" + START.encode())
    assert read_config(file).config.models[0].name == "m"


_LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (_LAUGHS, "more than 20,000 values"),
        ("a: [" + "1," * 120_000 + "1]", "more than 20,000 values"),
        ("a:\n" * 60_000, "more than 20,000 values"),
        ("a: &a [*a]", "nested deeper"),
        ("a: &a {b: *a}", "nested deeper"),
        ("[" * 200_000, "nested deeper"),
        ("{a: " * 60_000, "nested deeper"),
        ("? " * 100_000, "nested deeper"),
        ("a: " + "9" * 200_000, "no known key"),
        ("a: " + "1e" + "9" * 200_000, "no known key"),
        ("a: " + "9." * 100_000, "no known key"),
    ],
    ids=lambda value: value[:16],
)
def test_a_bomb_costs_neither_memory_nor_time(file: Path, text: str, told: str) -> None:
    began = time.process_time()
    assert told in refused(file, text).message
    assert time.process_time() - began < 10


def test_an_alias_is_read_like_what_it_stands_for(file: Path) -> None:
    file.write_text(
        START + "    batching: &b {max_size: 4}\n  - {name: n, source: b, batching: *b}\n"
    )
    assert [m.batching.max_size for m in read_config(file).config.models] == [4, 4]


@pytest.mark.parametrize(
    ("text", "value"),
    [("no", "no"), ("off", "off"), ("true", True), ("False", False), ("~", None), ("", None),
     ("null", None), ("12", 12), ("-3", -3), ("0x1f", "0x1f"), ("0o17", "0o17"), ("007", "007"),
     ("1e3", 1000.0), (".5", 0.5), ("1.", 1.0), ("1:30", "1:30"), ("2020-01-01", "2020-01-01"),
     ("'12'", "12"), ('"true"', "true"), ("1_000", "1_000"), ("=", "="), ("-.inf", -float("inf")),
     ("٣", "٣")],
)  # fmt: skip
def test_scalars_are_read_as_yaml_1_2_reads_them(text: str, value: Any) -> None:
    assert parse_yaml(f"a: {text}").value == {"a": value}


_names = st.from_regex(r"[a-z][a-z0-9._\-]{0,20}", fullmatch=True)
_seconds = st.floats(0.001, 600_000) | st.integers(1, 600_000)
_models = st.fixed_dictionaries(
    {"name": _names, "source": st.from_regex(r"[a-z ]{0,8}/[a-z0-9]{1,8}", fullmatch=True)},
    optional={
        "engine": st.none() | _names,
        "provider": st.sampled_from(["auto", "cpu", "cuda", "tensorrt"]),
        "threads": st.none() | st.integers(1, 64),
        "inline": st.booleans(),
        "batching": st.fixed_dictionaries(
            {}, optional={"max_size": st.integers(1, 999), "max_delay_ms": st.floats(0, 60_000)}
        ),
        "admission": st.fixed_dictionaries(
            {}, optional={"max_queue": st.integers(1, 999), "queue_seconds": _seconds}
        ),
        "required": st.none() | st.booleans(),
        "load_seconds": _seconds,
    },
)
_configs = st.fixed_dictionaries(
    {
        "version": st.just(1),
        "models": st.lists(_models, min_size=1, max_size=4, unique_by=lambda m: m["name"]),
    },
    optional={
        "server": st.fixed_dictionaries(
            {},
            optional={
                "host": _names,
                "port": st.integers(0, 32_000),
                "fronts": st.integers(1, 64),
                "admin_port": st.none() | st.integers(32_001, 65_535),
                "grpc_port": st.none(),
                "keys_file": st.none() | _names,
                "drain_seconds": _seconds,
            },
        ),
        "limits": st.fixed_dictionaries(
            {}, optional={"max_body_mb": st.floats(0.1, 999), "request_seconds": _seconds}
        ),
    },
)


@given(_configs, st.booleans())
def test_any_configuration_comes_back_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any], flow: bool
) -> None:
    meant = ConfigFile.model_validate(config)
    file = tmp_path_factory.getbasetemp() / "written.yaml"
    # All that we would write, defaults too; and only what was said.
    for values in (meant.model_dump(mode="json"), config):
        file.write_text(yaml.safe_dump(values, default_flow_style=flow, allow_unicode=True))
        assert read_config(file).config == meant


_KEYS = {
    "models[0].": ["aliases", "source", "engine", "provider", "threads", "replicas", "batching",
                   "admission", "load_seconds", "required"],
    "server.": ["fronts", "admin_port", "keys_file", "drain_seconds"],
    "limits.": ["max_body_mb", "header_seconds", "request_seconds"],
}  # fmt: skip
_known = st.sampled_from([(place, key) for place, keys in _KEYS.items() for key in keys])


@given(_known, st.integers(0, 30), st.sampled_from(string.ascii_letters + "_-"), st.booleans())
@example(("server.", "drain_seconds"), 5, "S", True)
@example(("models[0].", "engine"), 0, "i", True)
def test_a_slip_of_the_finger_names_the_key_that_was_meant(
    tmp_path_factory: pytest.TempPathFactory,
    known: tuple[str, str],
    at: int,
    letter: str,
    replace: bool,
) -> None:
    place, key = known
    at %= len(key)
    typed = key[:at] + letter + key[at + replace :]
    if typed == key:
        return
    values: dict[str, Any] = {"version": 1, "models": [{"name": "m", "source": "a"}]}
    (values["models"][0] if place == "models[0]." else values.setdefault(place[:-1], {}))[typed] = 1
    file = tmp_path_factory.getbasetemp() / "slip.yaml"
    told = refused(file, yaml.safe_dump(values, sort_keys=False)).message
    said = re.search(rf"{re.escape(place + typed)} is no known key; did you mean (\w+)\?", told)
    assert said is not None, told
    # "ingine" is as near to "inline" as to "engine".
    assert said[1] == key or _alike(typed, said[1]) == _alike(typed, key)


def _alike(typed: str, key: str) -> float:
    return difflib.SequenceMatcher(None, key, typed.lower()).ratio()
