"""The command as a whole: what may happen to it before any of its commands runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

_INTERRUPTED = """
import os, signal, sys

class CtrlC:
    def find_spec(self, name, path=None, target=None):
        if name == {name!r}:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, CtrlC())
sys.argv = ["modelops", "doctor"]
from modelops.cli.main import main
main()
"""


@pytest.mark.parametrize("name", ["typer", "modelops.cli.serve"])
def test_ctrl_c_while_a_command_is_imported_is_no_traceback(name: str) -> None:
    argv = [sys.executable, "-c", _INTERRUPTED.format(name=name)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")
