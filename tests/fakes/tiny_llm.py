"""Tiny random language models: Hugging Face folders, and GGUF files of the same weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECIAL = ("<|end|>", "<|start|>", "<|stop|>")
MERGES = (("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("Ġ", "t"), ("Ġt", "he"))
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|stop|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
_GGUF_NAMES = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_output",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
}


def vocabulary() -> list[str]:
    return [
        *SPECIAL,
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
        *("".join(pair) for pair in MERGES),
    ]


def model(kind: str = "llama", *, dtype: torch.dtype = torch.float32, **fields: Any) -> Any:
    """Return a random model of two layers with grouped heads; ``kind`` is llama.cpp's name."""
    name = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "mixtral": "Mixtral"}[kind]
    config = getattr(transformers, f"{name}Config")(
        **{
            "vocab_size": len(vocabulary()),
            "hidden_size": 64,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            # transformers' reader of GGUF files knows no other width of Qwen3's heads.
            "head_dim": 128 if kind == "qwen3" else 16,
            "max_position_embeddings": 128,
            "rope_parameters": {"rope_type": "default", "rope_theta": 50_000.0},
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 2,
            "tie_word_embeddings": True,
            "initializer_range": 0.3,
        }
        | fields
    )
    torch.manual_seed(0)
    made = getattr(transformers, f"{name}ForCausalLM")(config)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.ndim == 1:
                parameter.copy_(1 + 0.2 * torch.randn(parameter.shape))
    return made.to(dtype).eval()


def folder(path: Path, made: Any, *, template: str | None = TEMPLATE) -> Path:
    """Save a model with its tokenizer."""
    path.mkdir(parents=True, exist_ok=True)
    made.save_pretrained(path)
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    vocab = {token: i for i, token in enumerate(vocabulary())}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=list(MERGES)))
    tokenizer.pre_tokenizer = byte_level
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in SPECIAL])
    tokenizer.save(str(path / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "clean_up_tokenization_spaces": False,
        "unk_token": SPECIAL[0],
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[2],
        "name_or_path": "/home/somebody/llm",
    }
    (path / "tokenizer_config.json").write_text(json.dumps(config))
    if template is not None:
        (path / "chat_template.jinja").write_text(template)
    return path


def gguf_file(
    path: Path,
    made: Any,
    kind: str = "llama",
    *,
    types: tuple[str, ...] = ("F32",),
    template: str | None = TEMPLATE,
    extra: dict[str, Any] | None = None,
    leave_out: tuple[str, ...] = (),
) -> Path:
    """Write a model as llama.cpp's converter does; matrices in ``types``, by turns."""
    config = made.config
    writer = gguf.GGUFWriter(path, kind)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    if kind == "qwen3":
        writer.add_key_length(config.head_dim)
    if "tokenizer" not in leave_out:
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("smollm")
        writer.add_token_list(vocabulary())
        normal = len(vocabulary()) - len(SPECIAL)
        writer.add_token_types([3] * len(SPECIAL) + [1] * normal)
        writer.add_token_merges([" ".join(pair) for pair in MERGES])
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
        writer.add_pad_token_id(2)
        writer.add_add_bos_token(False)
        if template is not None:
            writer.add_chat_template(template)
    for key, value in (extra or {}).items():
        put = writer.add_string if isinstance(value, str) else writer.add_uint32
        put(key, value)
    turn = 0
    for name, tensor in made.state_dict().items():
        if name in leave_out or (name == "lm_head.weight" and config.tie_word_embeddings):
            continue
        values = _arranged(name, tensor.float().numpy(), config, kind)
        wanted = "F32"
        if values.ndim > 1:
            wanted, turn = types[turn % len(types)], turn + 1
        stored = gguf.GGMLQuantizationType[wanted]
        writer.add_tensor(_gguf_name(name), gguf.quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _gguf_name(name: str) -> str:
    parts = name.split(".")
    block = f"blk.{parts[2]}." if parts[1] == "layers" else ""
    return f"{block}{_GGUF_NAMES[parts[-2]]}.{parts[-1]}"


def _arranged(name: str, values: np.ndarray, config: Any, kind: str) -> np.ndarray:
    """Interleave the halves of llama's heads, by the formula of llama.cpp's converter."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = heads.get(name.split(".")[-2])
    if kind != "llama" or count is None:
        return np.ascontiguousarray(values)
    split = values.reshape(count, 2, values.shape[0] // count // 2, *values.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2).reshape(values.shape))
