"""From token vectors to one vector an item, as sentence-transformers folders describe it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from modelops.checkpoint import load_weights, open_checkpoint
from modelops.errors import ExportError, InputError

_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


class Pooling(torch.nn.Module):
    """Pools ``[batch, sequence, width]`` under a mask; several modes are joined side by side."""

    def __init__(self, modes: tuple[str, ...]) -> None:
        super().__init__()
        self.modes = modes

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return ``[batch, width × modes]``; padded positions count for nothing."""
        weight = mask.unsqueeze(-1).to(tokens.dtype)
        return torch.cat([self._pool(mode, tokens, weight) for mode in self.modes], dim=1)

    def _pool(self, mode: str, tokens: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        if mode == "cls":
            return tokens[:, 0]
        if mode == "max":
            lowest = torch.finfo(tokens.dtype).min
            return tokens.masked_fill(weight == 0, lowest).amax(dim=1)
        if mode == "lasttoken":
            last = weight.squeeze(-1).cumsum(dim=1).argmax(dim=1)
            index = last[:, None, None].expand(-1, 1, tokens.shape[-1])
            return tokens.gather(1, index).squeeze(1)
        if mode == "weightedmean":
            weight = weight * weight.cumsum(dim=1)
        total = weight.sum(dim=1).clamp(min=1e-9)
        pooled = (tokens * weight).sum(dim=1)
        return pooled / (total.sqrt() if mode == "mean_sqrt_len_tokens" else total)


class Dense(torch.nn.Module):
    """A projection after pooling, with the activation that its config names."""

    def __init__(self, width: int, out: int, *, bias: bool, activation: torch.nn.Module) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(width, out, bias=bias)
        self.activation_function = activation

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Project ``[batch, width]`` to ``[batch, out]``."""
        result: torch.Tensor = self.activation_function(self.linear(vectors))
        return result


class Normalize(torch.nn.Module):
    """Scales each vector to length 1."""

    def forward(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return ``[batch, width]`` with rows of length 1."""
        return torch.nn.functional.normalize(vectors, p=2, dim=1)


@dataclass(frozen=True)
class SentenceHead:
    """What follows the encoder: how it pools, what it applies, how long a text may be."""

    pooling: Pooling
    after: torch.nn.Sequential
    normalized: bool
    max_tokens: int | None

    @property
    def description(self) -> str:
        """The pooling modes in words."""
        return "+".join(self.pooling.modes)


def read_sentence_head(folder: Path) -> SentenceHead | None:
    """Read a sentence-transformers folder's modules; None where the folder is not one.

    Raises:
        ExportError: it has a module that is not known here.
        InputError: its files are not what they should be.
    """
    listing = folder / "modules.json"
    if not listing.is_file():
        return None
    pooling: Pooling | None = None
    after: list[torch.nn.Module] = []
    normalized = False
    for entry in _json(listing):
        kind = str(entry.get("type", "")).rsplit(".", 1)[-1]
        place = _inside(folder, str(entry.get("path", "")))
        if kind == "Transformer":
            continue
        if kind == "Pooling":
            pooling = _pooling(_json(place / "config.json"))
        elif kind == "Dense":
            after.append(_dense(place))
        elif kind == "Normalize":
            after.append(Normalize())
        else:
            raise ExportError(
                f"{listing.name} has a module of type {entry.get('type')!r}, which is not known "
                "here",
                hint="export the whole model by a recipe",
            )
        normalized = kind == "Normalize"
    if pooling is None:
        raise ExportError(f"{listing.name} has no Pooling module", hint="export by a recipe")
    limits = folder / "sentence_bert_config.json"
    longest = _json(limits).get("max_seq_length") if limits.is_file() else None
    return SentenceHead(pooling, torch.nn.Sequential(*after), normalized, longest)


def _pooling(config: dict[str, Any]) -> Pooling:
    # Newer folders name the mode; older ones have a flag for each.
    named = config.get("pooling_mode")
    if isinstance(named, str | list):
        modes = [named] if isinstance(named, str) else named
    else:
        modes = [mode for flag, mode in _MODES.items() if config.get(flag)]
    if not modes or not all(mode in _MODES.values() for mode in modes):
        raise ExportError(f"the pooling {modes or config} is not known here")
    return Pooling(tuple(modes))


def _dense(folder: Path) -> Dense:
    config = _json(folder / "config.json")
    name = str(config.get("activation_function", "torch.nn.modules.linear.Identity"))
    activation = getattr(torch.nn, name.rsplit(".", 1)[-1], None)
    if not name.startswith("torch.nn.modules.") or not isinstance(activation, type):
        raise ExportError(f"the activation {name!r} of a Dense module is not torch.nn's")
    dense = Dense(
        int(config["in_features"]),
        int(config["out_features"]),
        bias=bool(config.get("bias", True)),
        activation=activation(),
    )
    weights = next(
        (p for n in ("model.safetensors", "pytorch_model.bin") if (p := folder / n).is_file()), None
    )
    if weights is None:
        raise InputError(f"{folder.name} has no weights: looked for model.safetensors")
    load_weights(dense, open_checkpoint(str(weights)))
    return dense


def _inside(folder: Path, relative: str) -> Path:
    place = folder / relative
    if not place.resolve().is_relative_to(folder.resolve()):
        raise InputError(f"modules.json points outside its folder: {relative!r}")
    return place


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path.name} cannot be read: {error}") from error
