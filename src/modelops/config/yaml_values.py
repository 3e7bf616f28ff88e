"""Hostile YAML to plain values that know their lines: bounded, no tags, no duplicate keys.

Scalars are read as YAML 1.2 reads them: ``no`` is text, ``010`` is no number, ``8:30`` no 510.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode

from modelops.errors import InputError

MAX_BYTES = 256 * 1024
MAX_NODES = 20_000
"""With every alias counted as often as it is used."""
MAX_DEPTH = 16
_TOO_MANY = f"more than {MAX_NODES:,} values, aliases counted"
_TOO_DEEP = f"nested deeper than {MAX_DEPTH} levels"

Location = tuple[str | int, ...]
"""Where a value stands, such as ``("models", 0, "name")``."""

_NULL = re.compile(r"(~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?P<yes>true|True|TRUE)\Z|(false|False|FALSE)\Z")
_INT = re.compile(r"[-+]?(0|[1-9][0-9]{0,24})\Z", re.ASCII)
_FLOAT = re.compile(
    r"[-+]?(\.[0-9]{1,30}|(0|[1-9][0-9]{0,30})(\.[0-9]{0,30})?)([eE][-+]?[0-9]{1,4})?\Z", re.ASCII
)
_SPECIAL = re.compile(r"(?P<sign>[-+]?)\.(inf|Inf|INF)\Z|\.(nan|NaN|NAN)\Z")
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_\-]{1,64}\Z")


@dataclass(frozen=True)
class Document:
    """The top-level mapping, and the line (from 1) of every key and item in it."""

    value: dict[str, Any]
    lines: dict[Location, int]

    def line(self, location: Location) -> int:
        """Return the line of what stands at ``location``, or of what should hold it."""
        while location and location not in self.lines:
            location = location[:-1]
        return self.lines.get(location, 1)

    def at(self, location: Location) -> Any:
        """Return the value at ``location``; raise LookupError where there is none."""
        value: Any = self.value
        for part in location:
            value = value[part]
        return value


def spell(location: Location) -> str:
    """Write a location as ``models[0].name``; what a stranger chose is quoted and cut."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
            continue
        key = part if _PLAIN_KEY.match(part) else repr(part[:64])
        text += f".{key}" if text else key
    return text


def parse_yaml(text: str) -> Document:
    """Read one YAML document whose top is a mapping.

    Raises:
        InputError: it is not, or too large; the message begins with the line.
    """
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        raise _refuse(_line(error), _problem(error)) from error
    except yaml.reader.ReaderError as error:
        line = text[: int(error.position)].count("\n") + 1
        raise _refuse(line, "a character that does not print: this is not text") from error
    if root is None:
        raise InputError("there is nothing in it", hint="modelops config schema says what may be")
    if not isinstance(root, MappingNode):
        raise _refuse(_line_of(root), "the top level must be keys and values, as in 'version: 1'")
    reader = _Reader()
    value = reader.read(root, ())
    return Document(value, reader.lines)


class _Loader(yaml.SafeLoader):
    """PyYAML's own parser, stopped before a document exhausts the stack or anybody's patience."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._count = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        line = event.start_mark.line + 1
        if tag := getattr(event, "tag", None):
            raise _refuse(line, f"the tag {_short(tag)}: tags are not read here, quotes make text")
        self._count += 1
        if self._count > MAX_NODES:
            raise _refuse(line, _TOO_MANY)
        if self._depth > MAX_DEPTH:
            raise _refuse(line, _TOO_DEEP)
        self._depth += 1
        node: Node | None = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Reader:
    """Nodes to values. An alias is read anew each time, so that counting bounds the work."""

    def __init__(self) -> None:
        self.lines: dict[Location, int] = {}
        self._count = 0

    def read(self, node: Node, location: Location) -> Any:
        self._count += 1
        if self._count > MAX_NODES:
            raise _refuse(_line_of(node), _TOO_MANY)
        # An alias to what holds it has no end.
        if len(location) > MAX_DEPTH:
            raise _refuse(_line_of(node), _TOO_DEEP)
        self.lines.setdefault(location, _line_of(node))
        if isinstance(node, ScalarNode):
            return _scalar(node, location)
        if isinstance(node, MappingNode):
            return dict(self._pairs(node, location))
        return [self.read(item, (*location, i)) for i, item in enumerate(node.value)]

    def _pairs(self, node: MappingNode, location: Location) -> Iterator[tuple[str, Any]]:
        first: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = _line_of(key_node)
            key = _scalar(key_node, location) if isinstance(key_node, ScalarNode) else None
            if not isinstance(key, str):
                raise _refuse(line, f"a key{_inside(location)} is not text: quote it")
            here = (*location, key)
            if key == "<<":
                raise _refuse(line, f"{spell(here)}: merge keys are not read: write the keys out")
            if key in first:
                raise _refuse(line, f"{spell(here)} was given before, on line {first[key]}")
            first[key] = self.lines[here] = line
            yield key, self.read(value_node, here)


def _scalar(node: ScalarNode, location: Location) -> Any:
    text: str = node.value
    if not text.isprintable():
        where = spell(location) or "a value"
        raise _refuse(_line_of(node), f"{where} holds a character that does not print")
    if node.style is not None:
        return text
    if _NULL.match(text):
        return None
    if found := _BOOL.match(text):
        return found["yes"] is not None
    if _INT.match(text):
        return int(text)
    if _FLOAT.match(text):
        return float(text)
    if found := _SPECIAL.match(text):
        return math.nan if found["sign"] is None else float(found["sign"] + "inf")
    return text


def _short(tag: str) -> str:
    return repr(tag.replace("tag:yaml.org,2002:", "!!")[:64])


def _inside(location: Location) -> str:
    return f" in {spell(location)}" if location else ""


def _line_of(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _line(error: yaml.MarkedYAMLError) -> int:
    mark = error.problem_mark or error.context_mark
    return mark.line + 1 if mark is not None else 1


def _problem(error: yaml.MarkedYAMLError) -> str:
    problem = (error.problem or error.context or "not YAML").replace("\t", "\\t")
    if "'\\t'" in problem:
        return "a tab: YAML is indented by spaces"
    if "but found another document" in problem:
        return "a second document: there may be only one"
    return f"not YAML: {problem}"


def _refuse(line: int, what: str) -> InputError:
    return InputError(f"line {line}: {what}")
