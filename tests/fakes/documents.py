"""Running what a document tells its reader to type, in order, in one folder, for real.

The rules, all of them:

- A ``console`` block holds commands, each after ``$ `` (a line that ends in a backslash goes on),
  and below a command, lines of its output: each must be found there, in order, with ``…`` for
  whatever lies between.
- A ``python`` block whose first line is ``# name.py`` is that file; any other is run. So is a
  ``yaml`` block, which must be a file.
- A ``toml`` or ``text`` block is only read.
- ``modelops serve`` runs until the next one, or the end, and must then end well on SIGTERM.
- Port 8080 is replaced by a free one everywhere.
- Commands that begin with ``pip install`` or ``make `` are left out: installing and the Makefile
  have tests of their own. Nothing else is.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LEFT_OUT = ("pip install ", "make ")
_READY_SECONDS = 90
_COMMAND_SECONDS = 240


@dataclass(frozen=True)
class Block:
    """One fenced block, and the line that its fence stands on."""

    language: str
    text: str
    line: int


@dataclass(frozen=True)
class Command:
    """One command and the lines of output that the document promises."""

    text: str
    output: tuple[str, ...]


def blocks(document: Path) -> list[Block]:
    """Return the fenced blocks of ``document`` in order."""
    text = document.read_text(encoding="utf-8")
    assert text.count("```") == 2 * len(_FENCE.findall(text)), f"{document.name}: a fence is off"
    return [Block(m[1], m[2], text[: m.start()].count("\n") + 1) for m in _FENCE.finditer(text)]


def commands(block: Block) -> list[Command]:
    """Return the commands of a console block."""
    found: list[Command] = []
    lines = iter(block.text.splitlines())
    for line in lines:
        if line.startswith("$ "):
            text = line[2:]
            while text.endswith("\\"):
                text = text[:-1].rstrip() + " " + next(lines).strip()
            found.append(Command(text, ()))
        elif line.strip():
            assert found, f"line {block.line}: output before any command"
            last = found.pop()
            found.append(Command(last.text, (*last.output, line.strip())))
    return found


def missing_line(promised: tuple[str, ...], output: str) -> str | None:
    """Return the first promised line that ``output`` does not hold, in order; None if all."""
    lines = iter([line.strip() for line in output.splitlines()])
    for line in promised:
        pattern = re.compile(".*".join(re.escape(part.strip()) for part in line.split("…")))
        if not any(pattern.search(found) for found in lines):
            return line
    return None


@dataclass
class Reader:
    """Does what a document says, in ``folder``."""

    folder: Path
    port: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    ran: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    _server: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.environment = {**os.environ, "PATH": path, "COLUMNS": "160", "TERM": "dumb"}

    def read(self, document: Path) -> None:
        """Run the whole document; AssertionError where something is not as it says."""
        try:
            for block in blocks(document):
                where = f"{document.name}:{block.line}"
                if block.language == "console":
                    for command in commands(block):
                        self._type(command, where)
                elif block.language == "python":
                    self._python(block.text, where)
                elif block.language == "yaml":
                    assert self._is_file(block.text), f"{where}: a yaml block names its file"
                else:
                    assert block.language in ("toml", "text"), f"{where}: {block.language!r}"
            self._stop_server()
        finally:
            if self._server is not None:
                self._server.kill()
                self._server.wait()

    def _type(self, command: Command, where: str) -> None:
        if command.text.startswith(_LEFT_OUT):
            self.left_out.append(command.text)
            return
        text = command.text.replace("8080", str(self.port))
        self.ran.append(text)
        if text.startswith("modelops serve ") and "--dry-run" not in text:
            output = self._serve(text, where)
        else:
            output = self._run(["bash", "-euo", "pipefail", "-c", text], where, text)
        promised = tuple(line.replace("8080", str(self.port)) for line in command.output)
        missing = missing_line(promised, output)
        assert missing is None, f"{where}: $ {text}\nshows no line {missing!r}:\n{output}"

    def _python(self, text: str, where: str) -> None:
        if self._is_file(text):
            return
        text = text.replace("8080", str(self.port))
        self.ran.append(text)
        self._run([sys.executable, "-c", text], where, "this python")

    def _is_file(self, text: str) -> bool:
        """Write a block that begins with the name of its file; say whether it did."""
        name = re.match(r"# ([\w/]+\.(?:py|yaml))\n", text)
        if name is None:
            return False
        path = self.folder / name[1]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("8080", str(self.port)), encoding="utf-8")
        return True

    def _run(self, argv: list[str], where: str, shown: str) -> str:
        done = subprocess.run(
            argv,
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        assert done.returncode == 0, f"{where}: {shown}\nexit {done.returncode}\n{done.stdout}"
        return done.stdout

    def _serve(self, text: str, where: str) -> str:
        self._stop_server()
        log = self.folder / "server.log"
        with log.open("wb") as output:
            self._server = subprocess.Popen(
                shlex.split(text),
                cwd=self.folder,
                env=self.environment,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not (self._ready() and "ready at" in log.read_text()):
            said = f"{where}: {text}\n{log.read_text()}"
            assert self._server.poll() is None, f"the server ended: {said}"
            assert time.monotonic() < deadline, f"the server is not ready: {said}"
            time.sleep(0.2)
        return log.read_text()

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz", timeout=5) as reply:
                return bool(json.load(reply)["status"] == "ready")
        except (urllib.error.URLError, ConnectionError):
            return False

    def _stop_server(self) -> None:
        if self._server is None:
            return
        self._server.send_signal(signal.SIGTERM)
        code = self._server.wait(timeout=45)
        self._server = None
        assert code == 0, f"the server ended with {code} on SIGTERM"
