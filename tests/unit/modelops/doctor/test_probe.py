"""What happens to the child is a finding, whatever it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from modelops.doctor import probe


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for name, text in {
        "probed_well": "print('noise'); print('{\"step\": 1')",
        "probed_error": "raise OSError('libcuda.so not found')",
        "probed_exit": "raise SystemExit(3)",
        "probed_crash": "import os; os.abort()",
        "probed_quits": "import os; os._exit(3)",
        "probed_hang": "import time; time.sleep(60)",
    }.items():
        (tmp_path / f"{name}.py").write_text(text + "\n")
    return tmp_path


def test_an_error_does_not_hide_what_comes_after(modules: Path) -> None:
    seen = probe.run("imports", "probed_error", "probed_exit", "not_there_at_all", "probed_well")
    assert seen.facts == {"probed_well": {}}
    assert seen.errors == {
        "probed_error": "OSError: libcuda.so not found",
        "probed_exit": "SystemExit: 3",
        "not_there_at_all": "ModuleNotFoundError: No module named 'not_there_at_all'",
    }


@pytest.mark.parametrize(
    ("module", "why"),
    [
        ("probed_crash", "crashed (SIGABRT)"),
        ("probed_quits", "exit code 3"),
        ("probed_hang", "did not end within 2 s"),
    ],
)
def test_what_ends_the_child_is_named(modules: Path, module: str, why: str) -> None:
    seen = probe.run("imports", "probed_well", module, timeout=2)
    assert seen.errors == {module: why}
    assert "probed_well" in seen.facts


def test_the_providers_that_make_a_session() -> None:
    seen = probe.run("providers")
    assert seen.facts["CPUExecutionProvider"] is True
    assert seen.errors == {}


def test_the_working_folder_is_not_imported_from(
    modules: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("PYTHONPATH")
    monkeypatch.chdir(tmp_path)
    assert "probed_well" in probe.run("imports", "probed_well").errors
