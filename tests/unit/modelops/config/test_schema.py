"""The JSON schema: committed as it is generated, and every option says what it is."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import modelops.config
from modelops.config.file import schema

COMMITTED = Path(modelops.config.__file__).with_name("modelops.schema.json")
_UNIT = re.compile(
    r"milliseconds|MiB|GiB|how long|longest wait|TCP port|processes|threads|requests|items"
    r"|tokens|devices|share of",
    re.I,
)


def options() -> Iterator[tuple[str, dict[str, Any], str]]:
    whole = schema()
    for owner, part in [("ConfigFile", whole), *whole["$defs"].items()]:
        for name, option in part["properties"].items():
            referred = whole["$defs"].get(option.get("$ref", "").rpartition("/")[2], {})
            told = option.get("description") or referred.get("description", "")
            yield f"{owner}.{name}", option, told


def test_the_committed_schema_is_the_generated_one() -> None:
    """Run with MODELOPS_UPDATE_GOLDEN=1 to accept a change."""
    made = json.dumps(schema(), indent=2) + "\n"
    if os.environ.get("MODELOPS_UPDATE_GOLDEN") == "1":
        COMMITTED.write_text(made, encoding="utf-8")
    assert made == COMMITTED.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "option", "told"), [*options()], ids=lambda v: str(v)[:40])
def test_every_option_is_described_and_every_number_has_a_unit(
    name: str, option: dict[str, Any], told: str
) -> None:
    assert len(told) > 10, name
    assert "\n" not in told
    kinds = {option.get("type"), *(o.get("type") for o in option.get("anyOf", ()))}
    if kinds & {"number", "integer"} and name != "ConfigFile.version":
        assert _UNIT.search(told), f"{name} says no unit: {told}"


def test_what_only_the_gateway_is_given_is_no_option_of_the_file() -> None:
    names = {name for name, _, _ in options()}
    assert "ModelEntry.source" in names
    assert not {n for n in names if n.endswith((".api_keys", ".asked"))}
