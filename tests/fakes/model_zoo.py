"""Small models, each with one habit that exports trip over; importable as ``--model`` factories."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn


class Frames(nn.Module):
    """Dropout and BatchNorm: another answer in train() than in eval() (X6)."""

    def __init__(self, width: int = 6) -> None:
        super().__init__()
        self.a = nn.Linear(width, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.b = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(self.a(x)).mean(1)
        return self.b(self.drop(self.norm(hidden)))


class BakedMean(nn.Module):
    """X1: the mean of the batch, by a size turned into a Python int."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - x.sum(0) / int(x.shape[0])) * self.w


class BakedReshape(BakedMean):
    """X3: a reshape by a size turned into a Python int."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch = x.shape[0]
        return (x * self.w).reshape(int(batch), 2, 2)


class Masked(nn.Module):
    """X4: attention under a bool mask, any row of which may be false throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.q = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        heads = x.unflatten(-1, (2, 4)).transpose(1, 2)
        query = self.q(x).unflatten(-1, (2, 4)).transpose(1, 2)
        found = nn.functional.scaled_dot_product_attention(query, heads, heads, mask.unsqueeze(1))
        return found.transpose(1, 2).flatten(2)


class MaskedFlat(Masked):
    """The same without a heads' dim, which torch.onnx does not translate by itself."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(self.q(x), x, x, attn_mask=mask)


class Decides(nn.Module):
    """X12: a Python if on a tensor's values."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return self.a(x)
        return x


class Eigen(Decides):
    """X12: an operator that ONNX does not have."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        square = self.a(x)
        return torch.linalg.eigvals(square @ square.transpose(-1, -2)).real


class Batch(Decides):
    """X10: one dict for an argument, a dict for a result."""

    def forward(self, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"sum": self.a(batch["left"]) + batch["right"], "left": batch["left"]}


class Pair(NamedTuple):
    score: torch.Tensor
    raw: torch.Tensor


class Named(Decides):
    """Keyword arguments, a named tuple for a result, one tensor returned twice."""

    def forward(self, left: torch.Tensor, right: torch.Tensor, scale: float = 2.0) -> Pair:
        total = self.a(left) * scale - right
        return Pair(total, total)


class Tokens(nn.Module):
    """Integers that index a table of 11 rows."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(11, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids).sum(1)


class Short(Decides):
    """Takes no more than 16 steps."""

    def __init__(self) -> None:
        super().__init__()
        self.position = nn.Parameter(torch.randn(16, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) + self.position[: x.shape[1]]


class PassThrough(Decides):
    """Returns an input and a weight as they are, beside a result."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x, self.a(x), self.a.weight


class Double(nn.Module):
    """In float64 throughout."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x)


class Noisy(Decides):
    """Drops out in eval() too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.a(x), 0.5, training=True)


class Logs(Decides):
    """NaN on every other input."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log(self.a(x))


class Keeps(Decides):
    """Keeps a tensor from its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.count: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.count is None:
            self.count = torch.tensor(3.0)
        return self.a(x) / self.count


class Image(nn.Module):
    """Convolutions whose sizes are rounded down."""

    def __init__(self) -> None:
        super().__init__()
        self.c = nn.Conv2d(3, 4, 3, stride=2, padding=1)
        self.a = nn.Linear(4, 5)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        found = self.c(image)
        return self.a(found.mean((2, 3))).argmax(-1), found


class Wide(nn.Module):
    """More weights than a small file may hold."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(256, 256)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x)


class Remembers(Decides):
    """Divides by the batch size of its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.first: int | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.first is None:
            self.first = int(x.shape[0])
        return self.a(x) / self.first


class Prints(Decides):
    """Prints on every call."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print("hello from forward")  # noqa: T201
        return self.a(x)


class Exits(Decides):
    """Ends the process with success."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise SystemExit(0)
