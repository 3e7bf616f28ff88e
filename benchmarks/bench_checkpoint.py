"""What it costs to look at, and to load, a large checkpoint in several files.

Two ranks write 2 GB of weights in the ways of the field: parts of torch.distributed.checkpoint
(FSDP2's), safetensors shards and shards of torch.save, each with an index. Every turn is a process
of its own, so that its peak of memory is its own too: beyond what importing takes, against the
bytes of the tensors. Beside it the trainers' own readers, which trust what they read.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gateway import report
from gateway.processes import note

_MB = 2**20
_LAYERS, _WIDTH = 8, 8192  # float32: 8 × 256 MiB
_SHARDS = 4
_LOAD_RATIO, _LOOK_SECONDS, _LOOK_MB = 1.2, 2.0, 200
_FORMS = ("dcp", "safetensors", "torch")


def write(folder: Path, rank: int, port: int, layers: int) -> None:
    """Write all forms, as one of two ranks."""
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    names = [f"layers.{n}.weight" for n in range(layers)]
    state = {
        name: distribute_tensor(torch.rand(_WIDTH, _WIDTH), mesh, [Shard(0)]) for name in names
    }
    dcp.save({"model": state}, checkpoint_id=folder / "dcp")
    for form, suffix in (("safetensors", "safetensors"), ("torch", "bin")) if rank == 0 else ():
        (folder / form).mkdir()
        stem = "model" if form == "safetensors" else "pytorch_model"
        index: dict[str, str] = {}
        for number in range(_SHARDS):
            own = {n: torch.rand(_WIDTH, _WIDTH) for n in names[number::_SHARDS]}
            shard = f"{stem}-{number + 1:05}-of-{_SHARDS:05}.{suffix}"
            (save_file if form == "safetensors" else torch.save)(own, folder / form / shard)
            index |= dict.fromkeys(own, shard)
        text = json.dumps({"metadata": {}, "weight_map": index})
        (folder / form / f"{stem}.{suffix}.index.json").write_text(text)
    dist.barrier()
    dist.destroy_process_group()


def _peak() -> float:
    """The largest resident set of this process so far, in MiB; mapped files count."""
    line = next(x for x in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in x)
    return int(line.split()[1]) / 1024


def _ours_load(folder: Path) -> int:
    from modelops.checkpoint import open_checkpoint

    tensors = open_checkpoint(str(folder)).tensors()
    sums = [float(t.sum()) for t in tensors.values()]  # every page is read
    return len(sums)


def _ours_look(folder: Path) -> int:
    from modelops.checkpoint import inspect_checkpoint

    return len(inspect_checkpoint(str(folder)).tensors)


def _theirs_load(folder: Path) -> int:
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file
    from torch.distributed.checkpoint.state_dict_loader import _load_state_dict_from_keys

    if folder.name == "dcp":
        held: Any = _load_state_dict_from_keys(storage_reader=dcp.FileSystemReader(folder))["model"]
    elif folder.name == "safetensors":
        held = {k: v for p in folder.glob("*.safetensors") for k, v in load_file(p).items()}
    else:
        held = {k: v for p in folder.glob("*.bin") for k, v in torch.load(p).items()}
    return len([float(t.sum()) for t in held.values()])


_TURNS: dict[str, Callable[[Path], int]] = {
    "load": _ours_load, "look": _ours_look, "their own": _theirs_load,
}  # fmt: skip


def turn(kind: str, folder: Path) -> None:
    """Do one thing in this process, and print what it took."""
    if kind != "look":
        import torch.distributed.checkpoint  # noqa: F401 - no reader pays for the import
    import modelops.checkpoint  # noqa: F401

    before, start = _peak(), time.perf_counter()
    tensors = _TURNS[kind](folder)
    seconds = time.perf_counter() - start
    peak = _peak()
    print(
        json.dumps({"seconds": seconds, "added_mb": peak - before, "peak_mb": peak, "n": tensors})
    )


def _own(*arguments: object) -> list[str]:
    return [sys.executable, __file__, *map(str, arguments)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=_LAYERS, help="of 256 MiB each (8)")
    options = parser.parse_args()
    where = report.machine()
    folder = Path(tempfile.mkdtemp(prefix="checkpoints-"))
    try:
        note("two ranks write the checkpoints")
        with socket.create_server(("127.0.0.1", 0)) as listening:
            port = listening.getsockname()[1]
        ranks = [
            subprocess.Popen(_own("--write", folder, rank, port, options.layers))
            for rank in range(2)
        ]
        if [rank.wait() for rank in ranks] != [0, 0]:
            raise SystemExit("a rank failed")
        rows = _measure(folder, options.rounds)
    finally:
        shutil.rmtree(folder)
    size = options.layers * _WIDTH * _WIDTH * 4 / _MB
    outcomes = _show(rows, size, where)
    path = report.save(
        "checkpoint", {"machine": where, "mb": size, "turns": rows, "outcomes": outcomes}
    )
    print(f"written to {path}", file=sys.stderr)


def _measure(folder: Path, rounds: int) -> list[dict[str, Any]]:
    rows = []
    for number in range(1, rounds + 1):
        note(f"round {number} of {rounds}")
        for form in _FORMS:
            for kind in _TURNS:
                told = subprocess.run(
                    _own("--turn", kind, folder / form), check=True, capture_output=True, text=True
                ).stdout
                rows.append({"form": form, "kind": kind, **json.loads(told.splitlines()[-1])})
    return rows


def _show(rows: list[dict[str, Any]], size: float, where: str) -> list[dict[str, str]]:
    def median(form: str, kind: str, key: str) -> float:
        return statistics.median(r[key] for r in rows if (r["form"], r["kind"]) == (form, kind))

    report.console.print(f"{where}; {size:,.0f} MiB of weights")
    table = report.table_of(
        "medians of the rounds", "form", "load s", "peak ÷ size", "its own reader: s",
        "peak ÷ size", "look s", "peak MB",
    )  # fmt: skip
    outcomes = []
    for form in _FORMS:
        ratio = median(form, "load", "added_mb") / size
        look, held = median(form, "look", "seconds"), median(form, "look", "peak_mb")
        table.add_row(
            form, f"{median(form, 'load', 'seconds'):.2f}", f"{ratio:.2f}",
            f"{median(form, 'their own', 'seconds'):.2f}",
            f"{median(form, 'their own', 'added_mb') / size:.2f}", f"{look:.2f}", f"{held:.0f}",
        )  # fmt: skip
        for target, word, met in (
            (f"{form}: loaded in ≤ {_LOAD_RATIO} × its size", f"{ratio:.2f}", ratio <= _LOAD_RATIO),
            (
                f"{form}: looked at in ≤ {_LOOK_SECONDS:g} s and {_LOOK_MB} MB",
                f"{look:.2f} s, {held:.0f} MB",
                look <= _LOOK_SECONDS and held <= _LOOK_MB,
            ),
        ):
            outcomes.append(
                {"target": target, "measured": word, "word": "met" if met else "MISSED"}
            )
    report.console.print(table)
    told = report.table_of("targets", "target", "measured", "")
    for outcome in outcomes:
        told.add_row(outcome["target"], outcome["measured"], outcome["word"])
    report.console.print(told)
    return outcomes


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write(Path(sys.argv[2]), *map(int, sys.argv[3:6]))
    elif sys.argv[1:2] == ["--turn"]:
        turn(sys.argv[2], Path(sys.argv[3]))
    else:
        main()
