"""Hugging Face folders: the task by the architecture, the model by its config, our own loading."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from modelops.artifact.manifest import Task, TextOptions
from modelops.checkpoint import Checkpoint, load_weights
from modelops.errors import ExportError, InputError
from modelops.progress import Progress
from modelops.signature import DimRange, Padding, TensorSpec
from modelops_exporters.calling import FlatModel, named_arguments
from modelops_exporters.carried import carried_files
from modelops_exporters.pooling import SentenceHead, read_sentence_head
from modelops_exporters.prepared import Prepared, source_of
from modelops_exporters.tokens import Tokens, read_tokens


@dataclass(frozen=True)
class Head:
    """One kind of model: its task, and which of its results the graph returns."""

    task: Task
    output: str


# A new architecture with a known head needs nothing here; a new head is one line.
_HEADS = {
    "ForSequenceClassification": Head("text-classification", "logits"),
    "ForTokenClassification": Head("token-classification", "logits"),
    "Model": Head("tensor", "last_hidden_state"),
}
_EMBEDDING = Head("embedding", "last_hidden_state")
_TOKEN_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_DEFAULT_BATCH = DimRange(min=1, max=64)


class Encoder(torch.nn.Module):
    """An encoder, and what makes one vector or one row of logits of it."""

    def __init__(self, model: torch.nn.Module, output: str, head: SentenceHead | None) -> None:
        super().__init__()
        self.model = model
        self.output = output
        self.pooling = head.pooling if head else None
        self.after = head.after if head else None

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        """Return the pooled vectors, the logits, or the hidden states."""
        found: torch.Tensor = getattr(self.model(**inputs), self.output)
        if self.pooling is not None and self.after is not None:
            found = self.after(self.pooling(found, inputs["attention_mask"]))
        return found


def prepare(checkpoint: Checkpoint, progress: Progress) -> Prepared:
    """Build the model that a Hugging Face folder describes and load its weights.

    Raises:
        ExportError: the architecture is none that can be exported from a folder alone.
        CheckpointError: the weights do not fit it.
    """
    folder = checkpoint.path
    config = read_config(folder)
    sentence = read_sentence_head(folder)
    head, architecture = _head(config, sentence)
    progress(f"building {config.model_type}, {head.task}")
    model = _build(architecture, config)
    notes = list(load_weights(model, checkpoint))
    notes += _as_float32(model)
    tokens = read_tokens(folder, checkpoint.carried)
    encoder = Encoder(model, head.output, sentence)
    if encoder.training:
        encoder.eval()
    longest = _max_tokens(config, sentence, tokens)
    inputs = _inputs(model, config, tokens)
    names = tuple(t.name for t in inputs)
    padding = Padding(
        dim="sequence",
        mask="attention_mask",
        values={n: tokens.padding_value(n) for n in names},
    )
    labels = _labels(config) if head.task.endswith("classification") else ()
    return Prepared(
        model=FlatModel(encoder, named_arguments(encoder, names).rebuild).eval(),
        inputs=inputs,
        dims={"batch": _DEFAULT_BATCH, "sequence": DimRange(min=min(2, longest), max=longest)},
        padding=padding,
        task=head.task,
        text=TextOptions(
            max_tokens=longest,
            pooling=sentence.description if sentence else None,
            normalized=sentence.normalized if sentence else None,
            labels=labels,
        ),
        output_names=("embedding",) if sentence else (head.output,),
        precision_asked="float32",
        source=source_of(checkpoint),
        source_bytes=sum(p.stat().st_size for p in checkpoint.files),
        default_name=checkpoint.name,
        carried=carried_files(checkpoint.carried) | tokens.files,
        realistic=tokens.maker(names, padding),
        encode=tokens.encoder(longest),
        notes=[*checkpoint.notes, *notes],
    )


def read_config(folder: Path) -> Any:
    """Return the transformers config of a vetted folder.

    Raises:
        InputError: this transformers does not know it.
    """
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(
            folder, trust_remote_code=False, local_files_only=True
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"transformers {transformers.__version__} does not read config.json: "
            f"{str(error).splitlines()[0]}",
            hint="upgrade transformers, or export by --model or --recipe",
        ) from error


def _head(config: Any, sentence: SentenceHead | None) -> tuple[Head, str | None]:
    """Return the head and the transformers class; None for the encoder that AutoModel knows."""
    if sentence is not None:
        return _EMBEDDING, None
    names = config.architectures or []
    for name in names:
        # A language model's head gives text, and two stacks take inputs that no folder describes.
        if "HeadModel" in name or (config.is_encoder_decoder and "Encoder" not in name):
            continue
        for suffix, head in _HEADS.items():
            if name.endswith(suffix):
                return head, name
    shown = ", ".join(names) or f"of type {config.model_type}, which names no architecture"
    raise ExportError(
        f"a model {shown} cannot be exported from its folder alone; known are "
        + ", ".join(f"*{suffix}" for suffix in _HEADS)
        + " and sentence-transformers folders",
        hint="describe it in a recipe: modelops init SOURCE writes one to edit",
    )


def _build(architecture: str | None, config: Any) -> torch.nn.Module:
    import transformers

    config.use_cache = False
    known: Any = transformers.AutoModel
    if architecture is not None:
        known = getattr(transformers, architecture, None)
    if known is None:
        raise ExportError(
            f"transformers {transformers.__version__} has no {architecture}",
            hint="upgrade transformers, or export by --model or --recipe",
        )
    if getattr(known, "main_input_name", "input_ids") != "input_ids":
        raise ExportError(
            f"{architecture} takes {known.main_input_name}, not text",
            hint="describe its inputs in a recipe: modelops init SOURCE writes one to edit",
        )
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # transformers' own deprecations
            if architecture is None:
                model: torch.nn.Module = known.from_config(config, trust_remote_code=False)
            else:
                model = known(config)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise ExportError(
            f"transformers cannot build {architecture or config.model_type} from config.json: "
            f"{str(error).splitlines()[0]}",
            hint="compare config.json with the one that was trained, or export by --recipe",
        ) from error
    return model


def _as_float32(model: torch.nn.Module) -> list[str]:
    kinds = {p.dtype for p in model.parameters() if p.is_floating_point()}
    if kinds <= {torch.float32}:
        return []
    model.float()
    stored = ", ".join(sorted(str(k).removeprefix("torch.") for k in kinds))
    return [f"weights are stored as {stored}; exported in float32"]


def _inputs(model: torch.nn.Module, config: Any, tokens: Tokens) -> tuple[TensorSpec, ...]:
    takes = inspect.signature(model.forward).parameters
    wanted = [n for n in _TOKEN_INPUTS if n in takes and n in tokens.input_names]
    if "input_ids" not in wanted or "attention_mask" not in wanted:
        raise ExportError(
            f"{type(model).__name__} does not take input_ids and attention_mask",
            hint="describe its inputs in a recipe",
        )
    most = {
        "input_ids": int(config.vocab_size) - 1,
        "attention_mask": 1,
        "token_type_ids": max(int(getattr(config, "type_vocab_size", 1)) - 1, 0),
    }
    return tuple(
        TensorSpec(name=n, dtype="int64", shape=("batch", "sequence"), bounds=(0, most[n]))
        for n in wanted
    )


def _max_tokens(config: Any, sentence: SentenceHead | None, tokens: Tokens) -> int:
    limits = [tokens.max_tokens, sentence.max_tokens if sentence else None]
    positions = getattr(config, "max_position_embeddings", None)
    if positions:
        # RoBERTa's kin count positions from the padding id on, so that many are never reached.
        offset = (
            config.pad_token_id + 1
            if "roberta" in config.model_type or config.model_type == "camembert"
            else 0
        )
        limits.append(int(positions) - offset)
    known = [n for n in limits if n and n > 0]
    return min([*known, 8192])


def _labels(config: Any) -> tuple[str, ...]:
    table = getattr(config, "id2label", None) or {}
    return tuple(str(table[i]) for i in sorted(table))
