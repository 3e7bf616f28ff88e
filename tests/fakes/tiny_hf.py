"""Tiny Hugging Face folders, as save_pretrained and sentence-transformers write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors

_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
_WORDS = [*_SPECIAL, *(f"word{i}" for i in range(12))]


def tokenizer(folder: Path, *, max_length: int = 32) -> None:
    """Write a word-level tokenizer with BERT's special tokens."""
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(_WORDS)}, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    made.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": max_length,
        "pad_token": "[PAD]",
        "unk_token": "[UNK]",
        "cls_token": "[CLS]",
        "sep_token": "[SEP]",
        "model_input_names": ["input_ids", "token_type_ids", "attention_mask"],
        "name_or_path": "/home/somebody/checkpoints/run7",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def save(folder: Path, architecture: str, config: Any) -> Any:
    """Make a model of ``architecture`` from ``config`` and save it with a tokenizer."""
    import transformers

    torch.manual_seed(0)
    model = getattr(transformers, architecture)(config).eval()
    model.save_pretrained(folder)
    tokenizer(folder)
    return model


def bert_config(**fields: Any) -> Any:
    """Return the config of a BERT of two layers."""
    import transformers

    return transformers.BertConfig(
        vocab_size=len(_WORDS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        **fields,
    )


def sentence_modules(folder: Path, *modules: tuple[str, dict[str, Any]]) -> None:
    """Write modules.json and a folder for each (type, config) after the Transformer."""
    listing = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}
    ]
    for number, (kind, config) in enumerate(modules, 1):
        place = folder / f"{number}_{kind}"
        place.mkdir()
        if config:
            (place / "config.json").write_text(json.dumps(config))
        listing.append(
            {
                "idx": number,
                "name": str(number),
                "path": place.name,
                "type": f"sentence_transformers.models.{kind}",
            }
        )
    (folder / "modules.json").write_text(json.dumps(listing))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 24}))
