"""Train with DeepSpeed for two steps and save: one process of torchrun's.

Arguments: the folder, the ZeRO stage, ``fp32`` or ``bf16``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import deepspeed
import torch
from deepspeed.utils import safe_get_full_fp32_param
from net import Net, batch, groups
from safetensors.torch import save_file
from torch import nn


def main(folder: Path, stage: int, precision: str) -> None:
    """Write ``folder`` as DeepSpeed does, and beside it the weights that it must hold."""
    torch.manual_seed(0)
    model = Net()
    zero: dict[str, Any] = {"stage": stage}
    if stage == 3:
        # Both kinds of parameters, those kept whole and those divided, in several flat groups.
        zero |= {"stage3_param_persistence_threshold": 10, "sub_group_size": 50}
    config = {
        "train_micro_batch_size_per_gpu": 8,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
        "bf16": {"enabled": precision == "bf16"},
    }
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=groups(model), config=config, dist_init_required=True
    )
    for step in range(2):
        ids, wanted = batch(10 * step + engine.global_rank)
        loss = nn.functional.cross_entropy(engine(ids).float(), wanted)
        engine.backward(loss)
        engine.step()
    engine.save_checkpoint(str(folder), client_state={"epoch": 1})
    weights = full_weights(engine.module, stage)
    if engine.global_rank == 0:
        save_file(weights, folder.with_suffix(".safetensors"))


def full_weights(module: nn.Module, stage: int) -> dict[str, torch.Tensor]:
    """Return every tensor in full, in fp32 where the optimizer keeps it so; all ranks call it."""
    with deepspeed.zero.GatheredParameters(list(module.parameters()), enabled=stage == 3):
        found = {name: value.detach().clone() for name, value in module.state_dict().items()}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if parameter.requires_grad:
            found[name] = safe_get_full_fp32_param(parameter).detach().clone()
    return {k: v.float() if v.is_floating_point() else v for k, v in found.items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
