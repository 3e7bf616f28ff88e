"""Names, sizes and the public surface of the source."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging_tools import REPOSITORY, ROOTS

_GOLDEN = REPOSITORY / "tests" / "golden" / "public_api.txt"
_WORDLESS = {"util", "utils", "helper", "helpers", "common", "misc"}
_HEAVY = {"torch", "fastapi", "locust", "onnxruntime", "numpy", "onnx", "transformers", "gevent"}


def sources() -> list[Path]:
    folders = (*ROOTS.values(), "tests", "benchmarks", "examples")
    return sorted(p for f in folders for p in (REPOSITORY / f).rglob("*.py"))


def public_api() -> str:
    lines = []
    for path in sources():
        relative = path.relative_to(REPOSITORY)
        if relative.parts[0] not in ROOTS.values():
            continue
        for node in ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
                module = ".".join(relative.with_suffix("").parts[1:]).removesuffix(".__init__")
                lines.append(f"{module}: {', '.join(sorted(ast.literal_eval(node.value)))}")
    return "\n".join(lines) + "\n"


def test_the_public_names_are_those_agreed() -> None:
    """Rewrite the list with MODELOPS_UPDATE_GOLDEN=1, and say so in the changelog."""
    if os.environ.get("MODELOPS_UPDATE_GOLDEN") == "1":
        _GOLDEN.write_text(public_api())
    assert public_api() == _GOLDEN.read_text()


def test_make_test_runs_every_test_once() -> None:
    """But those that have targets of their own."""
    script = (REPOSITORY / "scripts" / "run_tests.sh").read_text()
    given = re.findall(r"tests/[\w/*]+(?:\.py)?", script)
    left_out = re.findall(r'--ignore-glob "([^"]+)"', script)
    for file in (REPOSITORY / "tests").rglob("test_*.py"):
        name = file.relative_to(REPOSITORY).as_posix()
        within = not any(fnmatch(name, pattern) for pattern in left_out)
        times = sum(
            fnmatch(name, path) or (within and name.startswith(f"{path}/")) for path in given
        )
        elsewhere = name.startswith("tests/gpu/") or name.endswith("/test_cuda_wheel.py")
        assert times == (0 if elsewhere else 1), name


def test_no_file_has_a_name_without_a_meaning() -> None:
    assert [p for p in sources() if _WORDLESS & set(p.stem.lower().split("_"))] == []


def test_no_module_is_longer_than_500_lines() -> None:
    lengths = {p: len(p.read_text().splitlines()) for p in sources()}
    assert {str(p): n for p, n in lengths.items() if n > 500} == {}


def test_the_command_line_imports_nothing_heavy() -> None:
    code = "import sys, modelops.cli.main; print(*{m.split('.')[0] for m in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert _HEAVY & set(done.stdout.split()) == set()


def test_help_answers_at_once() -> None:
    """In processor time, the best of some runs: others may be using the machine.

    Where that makes a second of it longer, it is held against what importing typer alone takes.
    """

    def used(command: list[str]) -> float:
        before = os.times()
        subprocess.run(command, capture_output=True, text=True, check=True)
        after = os.times()
        spent = after.children_user - before.children_user
        return spent + after.children_system - before.children_system

    best = bare = float("inf")
    for _ in range(15):
        best = min(best, used([str(Path(sys.executable).with_name("modelops")), "--help"]))
        bare = min(bare, used([sys.executable, "-c", "import typer, rich.console"]))
        if best < max(0.3, 3 * bare):
            return
    raise AssertionError(f"{best:.2f} s, where importing typer takes {bare:.2f} s")


@pytest.mark.parametrize(
    "target", ["demo", "test", "lint", "format", "bench", "cuda-flags", "clean"]
)
def test_make_alone_lists_what_it_can_do(target: str) -> None:
    done = subprocess.run(["make"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert f"make {target} " in done.stdout
