"""The job that docs/load-testing.md offers to copy: its command runs, gates, leaves its summary."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import yaml
from documents import blocks

from modelops_loadtests.mock import MockServer, Script
from modelops_loadtests.report.wording import headline

PAGE = Path(__file__).parents[3] / "docs" / "load-testing.md"


def test_the_command_of_the_job_gates_and_leaves_a_summary(tmp_path: Path) -> None:
    (job,) = [b.text for b in blocks(PAGE) if b.language == "yaml"]
    steps = yaml.safe_load(job)["jobs"]["load-test"]["steps"]
    (written,) = [s["run"] for s in steps if "modelops loadtest" in s.get("run", "")]
    with MockServer(Script(ttft_ms=5)) as mock:
        words = shlex.split(written.replace("http://127.0.0.1:8080", mock.url))
        words += ["--duration", "5s", "--max-duration", "10s", "--no-calibration", "--json"]
        done = subprocess.run(
            [str(Path(sys.executable).with_name("modelops")), *words[1:]],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    assert done.returncode in (0, 7), done.stderr  # 7: this machine is too busy to tell
    result = json.loads(done.stdout)
    assert result["exit_code"] == done.returncode
    summary = (tmp_path / "load-test" / "report.md").read_text()
    assert headline(result).split(":")[0] in summary.splitlines()[0]
    assert [g["metric"] for g in result["gates"]] == ["e2e_p95_ms", "error_rate"]
    assert result["schema_version"] == 2
