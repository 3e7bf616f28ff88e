"""A model with all that makes a sharded checkpoint hard, and data for it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

TOKENS = 11
WIDTH = 6


class Net(nn.Module):
    """Tied weights, a frozen layer, buffers, and sizes that no number of ranks divides."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(TOKENS, WIDTH)
        self.frozen = nn.Linear(WIDTH, 5).requires_grad_(False)
        self.hidden = nn.Linear(5, 7)
        self.norm = nn.LayerNorm(7)
        self.register_buffer("mean", torch.zeros(7))
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        self.out = nn.Linear(7, WIDTH)
        self.scale = nn.Parameter(torch.ones(3))
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Return logits ``[batch, tokens]`` for ids ``[batch, length]``."""
        pooled = self.embed(ids).mean(1) * self.scale.sum()
        hidden = self.hidden(self.frozen(pooled)).relu()
        self.mean += hidden.detach().mean(0)
        self.seen += len(ids)
        return self.head(self.out(self.norm(hidden)))


def batch(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ids ``[8, 4]`` and one wanted token for each row."""
    source = torch.Generator().manual_seed(seed)
    ids = torch.randint(TOKENS, (8, 4), generator=source)
    return ids, ids[:, 0]


def groups(net: nn.Module) -> list[dict[str, Any]]:
    """Return two groups of parameters, as trainers that do not decay biases have them."""
    trained = [p for p in net.parameters() if p.requires_grad]
    return [
        {"params": [p for p in trained if p.dim() > 1], "weight_decay": 0.01},
        {"params": [p for p in trained if p.dim() <= 1], "weight_decay": 0.0},
    ]
