"""GGUF files: dequantised once by the gguf package, and proven by two others' reading."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gguf import GGMLQuantizationType, dequantize

from modelops.checkpoint import Checkpoint
from modelops.checkpoint.finite import count_bad
from modelops.checkpoint.gguf_file import TYPES, GgufHeader, GgufTensor, read_header
from modelops.errors import CheckpointError, ExportError
from modelops.progress import Progress
from modelops_exporters.carried import json_bytes
from modelops_exporters.prepared import source_of
from modelops_exporters.text.gguf_blocks import KNOWN, unpack
from modelops_exporters.text.gguf_models import (
    config_of,
    family_of,
    generation_of,
    heads_of,
    name_of,
)
from modelops_exporters.text.gguf_tokenizer import (
    FILE,
    alone,
    documents,
    is_exact,
    read_tokenizer,
)
from modelops_exporters.text.model import quiet
from modelops_exporters.text.source import Tensors, TextSource

Floats = npt.NDArray[np.float32]

_BLOCKS = 1 << 15
# From the narrowest: the first that keeps every value is what is written.
_NARROW = (torch.bfloat16, torch.float16)


def prepare(checkpoint: Checkpoint, progress: Progress) -> TextSource:
    """Read what a GGUF file describes; its tensors stay in the file.

    Raises:
        ExportError: its architecture, tokenizer or a type of its tensors is none that is read.
        CheckpointError: it is damaged, or contradicts itself.
    """
    path = checkpoint.path
    progress("reading the GGUF file's metadata")
    header = read_header(path)
    config = config_of(header)
    kinds = Counter(t.type_name for t in header.tensors)
    if unknown := [k for k in kinds if k not in KNOWN]:
        raise ExportError(
            f"the GGUF file holds tensors of type {', '.join(unknown)}; {', '.join(KNOWN)} are "
            "read",
            hint="take a file of another quantisation of the same model",
        )
    for tensor in header.tensors:
        name_of(tensor.name)
    progress("building the tokenizer")
    tokenizer = read_tokenizer(header, path, config.max_position_embeddings)
    reading = Reading(header, path, config)
    dtype = reading.narrowest()
    stored = ", ".join(f"{kind} × {count}" for kind, count in kinds.most_common())
    return TextSource(
        config=config,
        tokenizer=tokenizer,
        source=source_of(checkpoint),
        source_bytes=path.stat().st_size,
        default_name=checkpoint.name,
        dtype=dtype,
        tensors=lambda: reading.tensors(dtype, checkpoint.name),
        reference=reading.reference,
        documents={
            **documents(tokenizer),
            "generation_config.json": json_bytes(generation_of(header)),
        },
        exact_text=is_exact(header),
        proofs={
            "every weight is what a second reading of the GGUF file gives": reading.check_weights,
            "the vocabulary is the GGUF file's, token by token": reading.check_vocabulary,
        },
        notes=[
            *checkpoint.notes,
            f"dequantised from GGUF ({stored}); {_name(dtype)} is the narrowest type that keeps "
            "every value",
        ],
        toolchain=("gguf",),
    )


class Reading:
    """One checked GGUF file, and its tensors read in three ways that must agree."""

    def __init__(self, header: GgufHeader, path: Path, config: Any) -> None:
        self._header = header
        self._path = path
        self._config = config
        self._family = family_of(header)

    def narrowest(self) -> torch.dtype:
        """Return the narrowest dtype that keeps every value of the file."""
        if any(TYPES[t.type].weights > 1 for t in self._header.tensors):
            return torch.float32
        left = list(_NARROW)
        for tensor in self._header.tensors:
            values = torch.from_numpy(self._dequantised(tensor))
            left = [d for d in left if torch.equal(values.to(d).float(), values)]
        return left[0] if left else torch.float32

    def tensors(self, dtype: torch.dtype, name: str) -> Tensors:
        """Return every tensor as transformers has it, dequantised by the gguf package.

        Raises:
            CheckpointError: values are NaN or infinite, or the file changed.
        """
        found: Tensors = {}
        for tensor in self._header.tensors:
            values = self._dequantised(tensor)
            heads = heads_of(tensor.name, self._family, self._config)
            if heads is not None:
                # Each head's rows are (pair, half) there, and (half, pair) here.
                parts = values.reshape(heads, len(values) // heads // 2, 2, *values.shape[1:])
                values = parts.swapaxes(1, 2).reshape(values.shape)
            made = torch.from_numpy(np.ascontiguousarray(values)).to(dtype)
            if bad := count_bad(made):
                raise CheckpointError(
                    f"{name}: {tensor.name} holds {bad} NaN or infinite values",
                    hint="take another file: this one is damaged",
                )
            found[name_of(tensor.name)] = made
        return found

    def reference(self) -> Any:
        """Return the model as transformers' own reader of GGUF files has it, in float32.

        Raises:
            ExportError: it cannot read the file.
        """
        import transformers

        known: Any = transformers.AutoModelForCausalLM
        try:
            with alone(self._path) as folder, quiet():
                return known.from_pretrained(
                    folder,
                    gguf_file=FILE,
                    dtype=torch.float32,
                    local_files_only=True,
                    trust_remote_code=False,
                ).eval()
        except (OSError, RuntimeError, ValueError, TypeError, KeyError, NotImplementedError) as e:
            raise ExportError(
                f"transformers {transformers.__version__} does not read this GGUF file, so there "
                f"is nothing to compare with: {str(e).splitlines()[0][:300]}",
                hint="export the original Hugging Face folder instead",
            ) from e

    def check_weights(self, folder: Path) -> list[str]:
        """Compare every written weight with our own unpacking of the file's blocks, exactly."""
        from safetensors import safe_open

        wrong, missing = [], {name_of(t.name): t for t in self._header.tensors}
        for path in sorted(folder.glob("*.safetensors")):
            with safe_open(path, framework="pt") as opened:
                for name in set(opened.keys()) & missing.keys():
                    tensor = missing.pop(name)
                    written = opened.get_tensor(name).float().numpy()
                    if not np.array_equal(self._unpacked(tensor), written):
                        wrong.append(f"the weight {name} is not what {tensor.name} holds")
        if self._config.tie_word_embeddings:
            missing.pop("lm_head.weight", None)
        return [*wrong, *(f"the weight {name} was not written" for name in missing)]

    def check_vocabulary(self, folder: Path) -> list[str]:
        """Compare the written tokenizer's vocabulary with the file's list of tokens."""
        from tokenizers import Tokenizer

        written = Tokenizer.from_file(str(folder / "tokenizer.json"))
        tokens: list[str] = self._header.metadata["tokenizer.ggml.tokens"]
        # A byte-level vocabulary spells spaces and newlines in letters of its own.
        wrong = [
            i
            for i, token in enumerate(tokens)
            if written.id_to_token(i) != token and not (is_exact(self._header) and _odd(token))
        ]
        if not wrong:
            return []
        first = wrong[0]
        return [
            f"{len(wrong)} tokens are others than the file's, such as {first}: "
            f"{written.id_to_token(first)!r}, not {tokens[first]!r}"
        ]

    def _raw(self, tensor: GgufTensor) -> npt.NDArray[np.uint8]:
        try:
            return np.memmap(self._path, np.uint8, "r", tensor.begin, (tensor.nbytes,))
        except (OSError, ValueError) as error:
            raise CheckpointError(
                f"{self._path} changed while it was read: {tensor.name} is gone"
            ) from error

    def _dequantised(self, tensor: GgufTensor) -> Floats:
        raw, block = self._raw(tensor), TYPES[tensor.type]
        rows = raw.reshape(-1, tensor.shape[-1] // block.weights * block.nbytes)
        values: Floats = dequantize(rows, GGMLQuantizationType(tensor.type))
        return np.array(values, np.float32).reshape(tensor.shape)

    def _unpacked(self, tensor: GgufTensor) -> Floats:
        raw, nbytes = self._raw(tensor), TYPES[tensor.type].nbytes
        step = _BLOCKS * nbytes
        parts = [
            unpack(tensor.type_name, np.array(raw[at : at + step]), nbytes)
            for at in range(0, len(raw), step)
        ]
        values = np.concatenate(parts).reshape(tensor.shape)
        heads = heads_of(tensor.name, self._family, self._config)
        if heads is None:
            return values
        # Written out, so that it shares nothing with the reshaping that it checks.
        width = len(values) // heads
        half = width // 2
        source = [
            head * width + 2 * pair + side
            for head in range(heads)
            for side in range(2)
            for pair in range(half)
        ]
        return values[source]


def _odd(token: str) -> bool:
    from tokenizers.pre_tokenizers import ByteLevel

    return not set(token) <= set(ByteLevel.alphabet())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
