"""Text and token ids into a model's tensors, in batches that its signature allows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from modelops.artifact import Artifact
from modelops.dtypes import DTYPES, numpy_dtype
from modelops.errors import InputError, RequestError
from modelops.signature import Signature

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"
IDS, MASK, TYPES = "input_ids", "attention_mask", "token_type_ids"
# Beyond this many rows a batch only waits longer; it never gets faster on the machines measured.
MAX_ROWS = 32
# The tokenizer works on so many characters at a time: what it gives is freed in one piece, and
# nothing else in the process runs meanwhile.
_STEP_CHARACTERS = 2**18
# No text of more characters than this fits: tokens have about 4, and the longest about 100.
_TOKEN_CHARACTERS = 128


@dataclass(frozen=True)
class Batch:
    """Tensors of one inference, and which items of the request its first rows answer."""

    tensors: dict[str, npt.NDArray[Any]]
    items: tuple[int, ...]


class TextInputs:
    """Builds ``input_ids`` and its companions, as the signature has them.

    Raises:
        InputError: the model asks for an input that text cannot make, or gives no embedding.
    """

    def __init__(self, tokenizer: Tokenizer, signature: Signature, max_tokens: int) -> None:
        unknown = [t.name for t in signature.inputs if t.name not in (IDS, MASK, TYPES)]
        ids = next((t for t in signature.inputs if t.name == IDS), None)
        if unknown or ids is None or len(ids.shape) != 2:
            raise InputError(
                "text can make input_ids[batch, sequence], attention_mask and token_type_ids; "
                f"the model takes {', '.join(str(t) for t in signature.inputs)}",
                hint="export it with task tensor",
            )
        self._tokenizer = tokenizer
        self._inputs = [(t.name, numpy_dtype(t.dtype)) for t in signature.inputs]
        self._padding = signature.padding
        self._rows = _limits(signature, ids.shape[0])
        self._columns = _limits(signature, ids.shape[1])
        self.max_tokens = min(max_tokens, self._columns[1])
        self._max_characters = max(_STEP_CHARACTERS, self.max_tokens * _TOKEN_CHARACTERS)
        low, high = ids.bounds or (0, tokenizer.get_vocab_size(with_added_tokens=True) - 1)
        self._id_bounds = (low, high)
        self.output = signature.outputs[0]
        if len(self.output.shape) != 2 or not DTYPES[self.output.dtype].is_float:
            raise InputError(
                f"an embedding is a float vector for each item; the model's first output is "
                f"{self.output}"
            )

    @classmethod
    def of(cls, artifact: Artifact) -> TextInputs | None:
        """Return it for an embedding model that carries its tokenizer, else None."""
        manifest = artifact.manifest
        if manifest.task != "embedding" or TOKENIZER not in manifest.files or manifest.text is None:
            return None
        tokenizer = _open(artifact.file(TOKENIZER))
        return cls(tokenizer, manifest.signature, manifest.text.max_tokens)

    @property
    def dimensions(self) -> int | None:
        """The length of one embedding, where the signature fixes it."""
        last = self.output.shape[-1] if self.output.shape else None
        return last if isinstance(last, int) else None

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """Return each text's token ids, special tokens included, not truncated.

        Raises:
            RequestError: a text is too long, with its index; those behind it are not looked at.
        """
        rows: list[list[int]] = []
        for group in self._groups(texts):
            encodings = self._tokenizer.encode_batch_fast(group, add_special_tokens=True)
            for encoding in encodings:
                self._check_length(len(rows), len(encoding))
                rows.append(encoding.ids)
        return rows

    def check(self, rows: Sequence[Sequence[int]]) -> None:
        """Refuse token ids that the model does not know, and items that are too long.

        Raises:
            RequestError: with the item's index and the counts.
        """
        low, high = self._id_bounds
        for index, row in enumerate(rows):
            if not row:
                raise RequestError(f"input[{index}] holds no token")
            self._check_length(index, len(row))
            if min(row) < low or max(row) > high:
                raise RequestError(f"input[{index}] holds token ids outside {low}..{high}")
        if self._padding is None and any(len(row) < self._columns[0] for row in rows):
            raise RequestError(f"this model takes at least {self._columns[0]} tokens")

    def batches(self, rows: Sequence[Sequence[int]]) -> list[Batch]:
        """Group checked rows of like length, each batch within the signature's sizes."""
        order = sorted(range(len(rows)), key=lambda i: len(rows[i]))
        most = min(self._rows[1], max(MAX_ROWS, self._rows[0]))
        groups: list[list[int]] = []
        for index in order:
            fits = groups and len(groups[-1]) < most
            if fits and self._padding is None:
                fits = len(rows[groups[-1][0]]) == len(rows[index])
            if fits:
                groups[-1].append(index)
            else:
                groups.append([index])
        return [self._batch([rows[i] for i in group], tuple(group)) for group in groups]

    def _groups(self, texts: Sequence[str]) -> Iterator[list[str]]:
        group: list[str] = []
        size = 0
        for index, text in enumerate(texts):
            if len(text) > self._max_characters:
                raise RequestError(
                    f"this model's maximum context length is {self.max_tokens} tokens, and the "
                    f"{len(text)} characters of input[{index}] are more; shorten it"
                )
            if group and size + len(text) > _STEP_CHARACTERS:
                yield group
                group, size = [], 0
            group.append(text)
            size += len(text)
        if group:
            yield group

    def _check_length(self, index: int, tokens: int) -> None:
        if tokens > self.max_tokens:
            raise RequestError(
                f"this model's maximum context length is {self.max_tokens} tokens, but "
                f"input[{index}] has {tokens}; shorten it"
            )

    def _batch(self, rows: list[Sequence[int]], items: tuple[int, ...]) -> Batch:
        # Rows that only fill the smallest batch repeat the last one; nobody asks for their answer.
        rows = rows + [rows[-1]] * (self._rows[0] - len(rows))
        width = max(self._columns[0], max(len(row) for row in rows))
        values = self._padding.values if self._padding else {}
        ids = np.full((len(rows), width), values.get(IDS, 0), dtype=np.int64)
        mask = np.zeros((len(rows), width), dtype=np.int64)
        for position, row in enumerate(rows):
            ids[position, : len(row)] = row
            mask[position, : len(row)] = 1
        made = {IDS: ids, MASK: mask, TYPES: np.zeros_like(ids)}
        tensors = {name: made[name].astype(dtype, copy=False) for name, dtype in self._inputs}
        return Batch(tensors, items)


def _limits(signature: Signature, dim: int | str) -> tuple[int, int]:
    if isinstance(dim, int):
        return dim, dim
    allowed = signature.dims[dim]
    return max(1, allowed.min), allowed.max


def _open(path: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:
        raise InputError(f"{path} is no tokenizer: {error}") from error
    # Length and padding are this module's: a length beyond the model's is an error, never a cut.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
