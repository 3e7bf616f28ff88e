"""How large a token is in a model's KV cache, by the model's own ``config.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelops.errors import InputError

_MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Geometry:
    """Of each token a layer keeps ``2 × kv_heads × head_size`` values; None: it does not say.

    ``alike`` is false where layers differ (sliding windows, state spaces) or keep something else
    (``latent``: multi-head latent attention): then a token's size does not follow from these.
    """

    layers: int | None
    kv_heads: int | None
    head_size: int | None
    latent: bool
    alike: bool
    dtype: str | None
    heads: int | None = None
    """Those that ask; several may share one of ``kv_heads``."""

    def values_per_token(self, tensor_parallel: int, pipeline_parallel: int) -> int | None:
        """Return how many values one worker keeps for a token; None where it cannot be said."""
        if not self.alike or self.latent:
            return None
        if self.layers is None or self.kv_heads is None or self.head_size is None:
            return None
        layers = -(-self.layers // pipeline_parallel)
        heads = max(1, self.kv_heads // tensor_parallel)
        return layers * heads * 2 * self.head_size


def read_geometry(folder: Path) -> Geometry:
    """Read the ``config.json`` of a Hugging Face folder.

    Raises:
        InputError: there is none, or it is not one.
    """
    path = folder / "config.json"
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
        value = json.loads(data) if len(data) <= _MAX_BYTES else None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is no valid JSON") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} is no model's configuration")
    return geometry_of(value)


def geometry_of(config: dict[str, Any]) -> Geometry:
    """Return the geometry that a model's configuration describes."""
    text = config.get("text_config")
    own = text if isinstance(text, dict) else config
    heads = _count(own, "num_attention_heads")
    head_size = _count(own, "head_dim")
    hidden = _count(own, "hidden_size")
    if head_size is None and heads and hidden:
        head_size = hidden // heads
    kinds = own.get("layer_types")
    one_kind = not isinstance(kinds, list) or all(k == "full_attention" for k in kinds)
    windows = own.get("sliding_window") is not None and own.get("use_sliding_window", True)
    if isinstance(kinds, list):
        windows = False  # they say it layer by layer
    dtype = own.get("dtype") or own.get("torch_dtype") or config.get("torch_dtype")
    return Geometry(
        layers=_count(own, "num_hidden_layers"),
        kv_heads=_count(own, "num_key_value_heads") or heads,
        head_size=head_size,
        latent=own.get("kv_lora_rank") is not None,
        alike=one_kind and not windows and not any("mamba" in k or "ssm" in k for k in own),
        dtype=dtype if isinstance(dtype, str) else None,
        heads=heads,
    )


def _count(config: dict[str, Any], key: str) -> int | None:
    value = config.get(key)
    return value if type(value) is int and value > 0 else None
