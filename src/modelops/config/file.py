"""``modelops.yaml``: read, checked, and every mistake told with its key, its line and its cure."""

from __future__ import annotations

import difflib
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from modelops.config.settings import ConfigFile
from modelops.config.yaml_values import MAX_BYTES, Document, Location, parse_yaml, spell
from modelops.errors import InputError

_SHOWN = 10
_HINT = "every key is described by: modelops config schema"
_MISSING = {"version": ": write 'version: 1'"}
_TYPES = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text (in quotes, where it reads as something else)",
    "tuple_type": "a list",
    "model_type": "keys and values",
}


@dataclass(frozen=True)
class LoadedFile:
    """A configuration with where it was read from."""

    path: Path
    config: ConfigFile
    document: Document

    @property
    def folder(self) -> Path:
        """What relative paths in it are relative to: its folder, or ours where it is a pipe."""
        return self.path.parent if self.path.is_file() else Path()

    def where(self, location: Location) -> str:
        """Say in which file, on which line and at which key something stands."""
        return f"{self.path}, line {self.document.line(location)}: {spell(location)}"


def schema() -> dict[str, Any]:
    """Return the JSON schema of ``modelops.yaml``, for editors and other checkers."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **_one_line(ConfigFile.model_json_schema()),
        "title": "modelops.yaml",
        "description": "What modelops serve --config serves, and how.",
    }


def _one_line(value: Any) -> Any:
    """Undo the line breaks of our docstrings."""
    if isinstance(value, dict):
        return {key: _one_line(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_one_line(inner) for inner in value]
    return value.replace("\n", " ") if isinstance(value, str) else value


def read_config(path: Path) -> LoadedFile:
    """Read a configuration; sources and keys are not looked at.

    Raises:
        InputError: the file is not there, not YAML, or says what cannot be meant.
    """
    text = read_text(path, "configuration", MAX_BYTES)
    try:
        document = parse_yaml(text)
    except InputError as error:
        joined = f"{path}, {error}" if error.message.startswith("line ") else f"{path}: {error}"
        raise InputError(joined, hint=error.hint) from error
    try:
        # Through JSON, whose strict reading still takes a list for a tuple and text for a path.
        config = ConfigFile.model_validate_json(json.dumps(document.value), strict=True)
    except ValidationError as error:
        raise InputError(_told(path, document, error), hint=_HINT) from error
    return LoadedFile(path, config, document)


def read_text(path: Path, what: str, limit: int) -> str:
    """Return a small UTF-8 file's text.

    Raises:
        InputError: it is not there, cannot be read, is larger than ``limit`` bytes, or no text.
    """
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise InputError(f"the {what} {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"the {what} {str(path)!r} cannot be read: {error}") from error
    if len(data) > limit:
        raise InputError(f"the {what} {path} is larger than {limit // 1024} KiB")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"the {what} {path} is not UTF-8 text") from error


def _told(path: Path, document: Document, error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False)
    # A list whose items are all wrong is also told to be empty, which it is not.
    inner = {item["loc"][:-i] for item in found for i in range(1, len(item["loc"]))}
    lines = sorted(
        (
            document.line(item["loc"] or _mentioned(item["msg"])),
            _mistake(document, item["loc"], item["type"], item["msg"]),
        )
        for item in found
        if item["loc"] not in inner
    )
    if len(lines) == 1:
        return f"{path}, line {lines[0][0]}: {lines[0][1]}"
    shown = [f"\n  line {line}: {text}" for line, text in lines[:_SHOWN]]
    more = f"\n  and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return f"{path} has {len(lines)} mistakes:{''.join(shown)}{more}"


def _mentioned(message: str) -> Location:
    """Find where an error between two entries is: the entry that it names first."""
    found = re.search(r"models\[(\d+)\]", message)
    return ("models", int(found[1])) if found else ()


def _mistake(document: Document, location: Location, kind: str, message: str) -> str:
    key = spell(location)
    if kind == "extra_forbidden":
        return f"{key} is no known key{_instead(location)}"
    if kind == "missing":
        return f"{key} is missing{_MISSING.get(key, '')}"
    if kind == "too_short":
        return f"{key} is empty: there must be at least one"
    if kind in _TYPES:
        return f"{key} is {_shown(document.at(location))}: it must be {_TYPES[kind]}"
    text = message.removeprefix("Value error, ").removeprefix("Input ")
    if text.startswith("should"):
        return f"{key} {text}"
    return f"{key}: {text}" if key else text


def _instead(location: Location) -> str:
    known = _known_keys(location[:-1])
    near = difflib.get_close_matches(str(location[-1]).lower(), known, n=1, cutoff=0.5)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(known)}"


def _known_keys(location: Location) -> list[str]:
    """Return the keys that the schema has at ``location``."""
    whole = schema()
    places = [whole]
    for part in location:
        inner = [
            place["items"] if isinstance(part, int) else place["properties"][part]
            for place in places
            if isinstance(part, int) or part in place["properties"]
        ]
        # Options are those of one engine or another; null has no keys.
        either = [one for place in inner for one in place.get("anyOf", [place])]
        places = [
            whole["$defs"][place["$ref"].rpartition("/")[2]] if "$ref" in place else place
            for place in either
            if place.get("type") != "null"
        ]
    return list(dict.fromkeys(key for place in places for key in place["properties"]))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping of keys"
    if isinstance(value, str):
        return f"the text {value[:40]!r}"
    return "empty" if value is None else f"the number {value}"
