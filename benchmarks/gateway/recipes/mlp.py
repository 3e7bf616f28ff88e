"""A tiny MLP, x=float32[batch,16] → 32 → 4; run as a program it writes weights for the recipe."""

import sys

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(16, 32)
        self.out = nn.Linear(32, 4)

    def forward(self, x):
        return self.out(torch.relu(self.hidden(x)))


def model():
    return Mlp()


def inputs(batch):
    return {"x": torch.randn(batch, 16)}


dims = {"batch": (1, 64)}
outputs = ["y"]

if __name__ == "__main__":
    from safetensors.torch import save_file

    torch.manual_seed(7)
    save_file(model().state_dict(), sys.argv[1])
