"""Trains a small model on two ranks and saves it in every way that torch itself has.

Run as a script, once for each rank: FOLDER RANK PORT. ``full.safetensors`` is what must come out.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn


class Scale(nn.Module):
    """One parameter of another dtype."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(3, 3, dtype=torch.bfloat16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight.float().mean()


class Trained(nn.Module):
    """Sizes that no two ranks share evenly, a buffer, a scalar, two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(7, 13), nn.GELU(), nn.Linear(13, 5))
        self.scale = Scale()
        self.register_buffer("steps", torch.tensor(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scale(self.body(x))


def main(folder: Path, rank: int, port: int) -> None:
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_model_state_dict,
        get_state_dict,
    )
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor
    from torch.nn.parallel import DistributedDataParallel

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)

    plain = Trained()
    wrapped = DistributedDataParallel(torch.compile(plain))  # type: ignore[arg-type]
    if rank == 0:
        torch.save({"epoch": 1, "model_state": wrapped.state_dict()}, folder / "ddp.pt")
        inside_out = torch.compile(DistributedDataParallel(plain, process_group=dist.group.WORLD))
        torch.save(inside_out.state_dict(), folder / "compiled.pt")
        save_file({k: v.clone() for k, v in plain.state_dict().items()}, folder / "ddp.safetensors")
    else:
        DistributedDataParallel(plain, process_group=dist.group.WORLD)

    model = Trained()
    fully_shard(model.scale, mesh=mesh)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        model(torch.randn(4, 7)).sum().backward()
        optimizer.step()
    state, moments = get_state_dict(model, optimizer)
    app: dict[str, Any] = {"model": state, "optim": moments, "step": 12, "note": {"by": "a test"}}
    dcp.save(app, checkpoint_id=folder / "fsdp")
    dcp.save(
        state, storage_writer=HuggingFaceStorageWriter(str(folder / "parts"), save_distributed=True)
    )
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))

    torch.manual_seed(1)
    columns = torch.rand(6, 10)
    dcp.save({"w": distribute_tensor(columns, mesh, [Shard(1)])}, checkpoint_id=folder / "columns")
    if rank == 0:
        save_file({k: v.clone() for k, v in full.items()}, folder / "full.safetensors")
        save_file({"w": columns}, folder / "columns.safetensors")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
