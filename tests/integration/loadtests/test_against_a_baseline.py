"""A run held against an earlier one, by the load test itself and by the command that compares."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from modelops.errors import InputError
from modelops_loadtests.runner import run

pytestmark = pytest.mark.slow
Upstream = Callable[..., str]


def measure(url: str, folder: Path, **options: Any) -> dict[str, Any]:
    base = {"url": url, "scenario": "embeddings", "users": 8, "duration_s": 1.5, "warmup_s": 0.2}
    return run({**base, "output": folder, **options})


def test_a_change_is_gated_by_a_baseline_and_shown_by_compare(
    upstream: Upstream, tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    measure(upstream(ttft_ms=20), before)
    against = {"baseline": before / "report.json", "max_regression": ("p50=25%",)}
    slower = measure(upstream(ttft_ms=60), after, **against)
    (gate,) = slower["gates"]
    assert (slower["verdict"], slower["exit_code"]) == ("FAIL", 6)
    assert gate["metric"] == "e2e_p50_ms ÷ baseline"
    assert gate["interval"]["low"] > 1.25
    with pytest.raises(InputError, match="another workload: model"):
        measure(upstream(models=["other"]), after, **against)

    command = [sys.executable, "-m", "modelops", "compare", str(before), str(after)]
    asked = ["--max-regression", "p50=25%", "-o", str(tmp_path / "out"), "--json"]
    done = subprocess.run([*command, *asked], capture_output=True, text=True, timeout=60)
    assert done.returncode == 6, done.stderr
    rows = {row["metric"]: row["shown"] for row in json.loads(done.stdout)["rows"]}
    assert rows["e2e_p50_ms"] == "worse"
    page = (tmp_path / "out" / "compare.html").read_text()
    assert "Plotly.react" in page
    assert "src=" not in page.split("</style>")[0]

    backwards = [*command[:-2], *command[-1:], command[-2], *asked]
    assert subprocess.run(backwards, capture_output=True, timeout=60).returncode == 0
