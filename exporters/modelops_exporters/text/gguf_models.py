"""Which GGUF architectures are read, and which of their tensors is which of transformers'."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np

from modelops.checkpoint.gguf_file import GgufHeader
from modelops.errors import CheckpointError, ExportError


@dataclass(frozen=True)
class Family:
    """One architecture of llama.cpp: transformers' class and config, and how it was rearranged.

    ``interleaved`` is True where llama.cpp turns pairs of neighbours by rope, and its converter
    therefore interleaved the two halves of each head in the rows of q and k.
    """

    architecture: str
    config: str
    interleaved: bool = False
    per_head_norms: bool = False


# A new architecture is one line where config keys and tensors are those below; all others, and
# all keys that change what is computed and are not known below, are refused.
FAMILIES = {
    "llama": Family("LlamaForCausalLM", "LlamaConfig", interleaved=True),
    "qwen2": Family("Qwen2ForCausalLM", "Qwen2Config"),
    "qwen3": Family("Qwen3ForCausalLM", "Qwen3Config", per_head_norms=True),
}
_NEEDED = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
# Keys that say what is said elsewhere, or that hold a value that changes nothing.
_TOLD = {"vocab_size", "attention.head_count_kv", "attention.layer_norm_rms_epsilon"}
_TOLD |= {"rope.freq_base", "rope.dimension_count", "attention.key_length"}
_IDLE = {
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (0, 1),
    "rope.scale_linear": (0, 1),
    "expert_count": (0,),
    "expert_used_count": (0,),
    "attention.causal": (True,),
    "use_parallel_residual": (False,),
    "tensor_data_layout": ("Meta AI original pth",),
}
_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d{1,6})\.([a-z_]+)\.(weight|bias)\Z")


def family_of(header: GgufHeader) -> Family:
    """Return how the file's architecture is read.

    Raises:
        ExportError: it is none that is.
    """
    found = FAMILIES.get(header.architecture)
    if found is None:
        raise ExportError(
            f"the GGUF file is of architecture {header.architecture[:60]!r}; "
            f"{', '.join(FAMILIES)} are read",
            hint="export the original Hugging Face folder instead",
        )
    return found


def config_of(header: GgufHeader) -> Any:
    """Return the transformers config that the metadata describes.

    Raises:
        ExportError: the architecture, or a property of this model, is not read.
        CheckpointError: a needed key is missing, or is no number that can be.
    """
    import transformers

    family, prefix = family_of(header), header.architecture + "."
    own = {k.removeprefix(prefix): v for k, v in header.metadata.items() if k.startswith(prefix)}
    _refuse_unknown(own, prefix)
    names = {tensor.name for tensor in header.tensors}
    fields = {field: _count(own, key, prefix) for key, field in _NEEDED.items()}
    heads, hidden = fields["num_attention_heads"], fields["hidden_size"]
    sizes = {tensor.name: tensor.shape for tensor in header.tensors}
    if "token_embd.weight" not in sizes:
        raise CheckpointError("the GGUF file holds no token_embd.weight: it is no language model")
    if len(header.tensors) < 2 * fields["num_hidden_layers"]:
        raise CheckpointError(
            f"the GGUF file claims {fields['num_hidden_layers']} layers, and holds "
            f"{len(header.tensors)} tensors"
        )
    key_heads = _count(own, "attention.head_count_kv", prefix, heads)
    turned = _count(own, "rope.dimension_count", prefix, hidden // heads)
    width = _count(own, "attention.key_length", prefix, turned)
    if "rope.dimension_count" in own and turned != width:
        raise ExportError("rope turns only a part of each head in this GGUF file: it is not read")
    fields |= {
        "num_key_value_heads": key_heads,
        "head_dim": width,
        "vocab_size": sizes["token_embd.weight"][0],
    }
    _check_shapes(sizes, fields)
    theta = _number(own, "rope.freq_base", prefix, 10_000.0)
    config: Any = getattr(transformers, family.config)(
        **fields,
        rms_norm_eps=_number(own, "attention.layer_norm_rms_epsilon", prefix, 1e-5),
        rope_parameters={"rope_type": "default", "rope_theta": theta},
        tie_word_embeddings="output.weight" not in names,
        architectures=[family.architecture],
        **special_ids(header),
    )
    if family.config == "LlamaConfig":
        config.attention_bias = "blk.0.attn_q.bias" in names
        config.mlp_bias = "blk.0.ffn_up.bias" in names
    return config


def special_ids(header: GgufHeader) -> dict[str, int | None]:
    """Return the ids of the special tokens that a config names.

    Raises:
        CheckpointError: one lies outside the vocabulary.
    """
    found: dict[str, int | None] = {}
    count = len(header.metadata.get("tokenizer.ggml.tokens", ()))
    for name, key in (("bos", "bos"), ("eos", "eos"), ("eot", "eot"), ("pad", "padding")):
        value = header.metadata.get(f"tokenizer.ggml.{key}_token_id")
        if value is not None and not (isinstance(value, int) and 0 <= value < count):
            raise CheckpointError(
                f"the GGUF file names {str(value)[:40]} as its {name} token, of {count} tokens"
            )
        if name != "eot":
            found[f"{name}_token_id"] = value
    return found


def generation_of(header: GgufHeader) -> dict[str, Any]:
    """Return what a generation_config.json says: which tokens begin, end and pad a text."""
    found: dict[str, Any] = {k: v for k, v in special_ids(header).items() if v is not None}
    end, turn = found.get("eos_token_id"), header.metadata.get("tokenizer.ggml.eot_token_id")
    if end is not None and turn not in (None, end):
        found["eos_token_id"] = [end, turn]
    return found


def name_of(tensor: str) -> str:
    """Return transformers' name of a tensor of a GGUF file.

    Raises:
        ExportError: it is none of a known model.
    """
    block = _BLOCK.match(tensor)
    if block is not None and block[2] in _INNER:
        return f"model.layers.{int(block[1])}.{_INNER[block[2]]}.{block[3]}"
    if tensor in _OUTER:
        return _OUTER[tensor]
    why = ""
    if tensor.startswith("rope_freqs"):
        why = " (frequencies of rope scaled in a way that the file does not describe)"
    raise ExportError(
        f"the GGUF file holds the tensor {tensor[:100]!r}, which is not understood{why}: leaving "
        "it out would change what the model computes",
        hint="export the original Hugging Face folder instead",
    )


def heads_of(tensor: str, family: Family, config: Any) -> int | None:
    """Return how many heads' rows of a tensor are interleaved; None where none are."""
    if not family.interleaved:
        return None
    kind = tensor.split(".")[2] if tensor.startswith("blk.") else ""
    heads: int | None = {
        "attn_q": config.num_attention_heads,
        "attn_k": config.num_key_value_heads,
    }.get(kind)
    return heads


def _refuse_unknown(own: dict[str, Any], prefix: str) -> None:
    for key, value in own.items():
        if key in _NEEDED or key in _TOLD or key == "attention.value_length":
            continue
        if isinstance(value, str | int | float) and value in _IDLE.get(key, ()):
            continue
        raise ExportError(
            f"the GGUF file says {prefix}{key} = {str(value)[:60]}, which is not understood: "
            "leaving it out could change what the model computes",
            hint="export the original Hugging Face folder instead",
        )


def _count(own: dict[str, Any], key: str, prefix: str, default: int | None = None) -> int:
    value = own.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 1 << 31:
        said = "does not say" if value is None else f"says {str(value)[:40]} for"
        raise CheckpointError(f"the GGUF file {said} {prefix}{key}: a number from 1 on is needed")
    return value


def _number(own: dict[str, Any], key: str, prefix: str, default: float) -> float:
    value = own.get(key, default)
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise CheckpointError(f"the GGUF file says {str(value)[:40]} for {prefix}{key}")
    # Stored as float32: the shortest decimal that means the same is what was written once.
    return float(str(np.float32(value)))


def _check_shapes(sizes: dict[str, tuple[int, ...]], fields: dict[str, int]) -> None:
    """Refuse sizes that the tensors do not have, before a model of those sizes is made."""
    hidden, width = fields["hidden_size"], fields["head_dim"]
    wanted = {
        "token_embd.weight": (fields["vocab_size"], hidden),
        "blk.0.attn_q.weight": (fields["num_attention_heads"] * width, hidden),
        "blk.0.attn_k.weight": (fields["num_key_value_heads"] * width, hidden),
        "blk.0.attn_v.weight": (fields["num_key_value_heads"] * width, hidden),
        "blk.0.ffn_up.weight": (fields["intermediate_size"], hidden),
    }
    for name, shape in wanted.items():
        if (found := sizes.get(name)) != shape:
            raise CheckpointError(
                f"tensor {name!r} of the GGUF file "
                + (f"has the shape {list(found)}" if found else "is missing")
                + f", but its metadata mean {list(shape)}"
            )
    if width % 2:
        raise CheckpointError(f"heads of the GGUF file are {width} wide, which rope cannot turn")
