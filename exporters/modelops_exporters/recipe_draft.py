"""The recipe that ``modelops init`` writes: what was seen in the checkpoint, to be edited."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from modelops.checkpoint import Inspection, TensorInfo, inspect_checkpoint
from modelops.errors import InputError, UsageError
from modelops.progress import Progress

_SHOWN = 12

_WEIGHTS = '''def model():
    """Return the model with any weights: export loads the checkpoint's into it, strictly."""
    from my_package.my_module import MyModel  # edit: the class that was trained

    return MyModel()


def inputs(batch, length):
    """Return example inputs at these sizes, named after forward's arguments.

    An axis that changes with a size becomes that dynamic dim; rename, add or drop sizes freely.
    """
    return {{"x": torch.randn(batch, length, {width})}}  # edit


# The sizes that must work, both ends included; parity is checked across them.
dims = {{"batch": (1, 64), "length": (2, 512)}}
'''

_FOLDER = '''def model():
    """Return the model with any weights: export loads the checkpoint's into it, strictly."""
    from transformers import AutoConfig, {auto}

    return {auto}.from_config(AutoConfig.from_pretrained({folder!r}))


def inputs(batch, sequence):
    """Return example inputs at these sizes, named after forward's arguments.

    An axis that changes with a size becomes that dynamic dim; rename, add or drop sizes freely.
    """
    mask = torch.ones(batch, sequence, dtype=torch.int64)
    mask[0, sequence // 2 + 1 :] = 0
    return {{
        "input_ids": torch.randint(0, {vocabulary}, (batch, sequence)),
        "attention_mask": mask,
    }}


# The sizes that must work, both ends included; parity is checked across them.
dims = {{"batch": (1, 64), "sequence": (2, {longest})}}
'''

_END = """
# Where the defaults do not fit:
# outputs = ["embedding"]
# tolerance = {"atol": 1e-4, "rtol": 1e-4, "min_cosine": 0.99999}
"""


def write(source: str, path: Path, progress: Progress) -> str:
    """Look at ``source`` without running anything in it, write a recipe to ``path``, return it.

    Raises:
        UsageError: ``path`` is there already, or its folder is not.
        InputError: the source cannot be read, or is refused.
    """
    progress(f"looking at {source}")
    seen = inspect_checkpoint(source)
    if seen.refused is not None:
        raise InputError(f"{source} will not be loaded: {seen.refused}")
    text = "\n".join([*_docstring(seen), "import torch", "", "", _body(seen, source) + _END])
    try:
        # O_EXCL: a recipe that somebody edited is never overwritten.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "w") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} is there already", hint="give another file with -o") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from error
    return text


def _docstring(seen: Inspection) -> list[str]:
    lines = [
        f'"""How to export {_plain(seen.name)}: edit what is marked, then export with --recipe.',
        "",
    ]
    lines += [f"Seen in it: {len(seen.tensors)} tensors, {seen.parameters:,} parameters."]
    lines += [f"    {_plain(t.name)}  {t.dtype}{list(t.shape)}" for t in seen.tensors[:_SHOWN]]
    if len(seen.tensors) > _SHOWN:
        lines.append(f"    … and {len(seen.tensors) - _SHOWN} more (modelops inspect shows all)")
    return [*lines, '"""', ""]


def _body(seen: Inspection, source: str) -> str:
    folder = Path(source)
    if not (folder / "config.json").is_file():
        return _WEIGHTS.format(width=_first_width(seen.tensors))
    import transformers

    config = transformers.AutoConfig.from_pretrained(
        folder, trust_remote_code=False, local_files_only=True
    )
    names = config.architectures or []
    auto = next(
        (
            f"AutoModel{suffix}"
            for suffix in ("ForSequenceClassification", "ForTokenClassification", "ForCausalLM")
            if any(n.endswith(suffix) for n in names)
        ),
        "AutoModel",
    )
    return _FOLDER.format(
        auto=auto,
        folder=source,
        vocabulary=getattr(config, "vocab_size", 1000),
        longest=getattr(config, "max_position_embeddings", 512),
    )


def _first_width(tensors: Sequence[TensorInfo]) -> int:
    """The width that the first matrix takes: often that of the model's input."""
    return next((t.shape[1] for t in tensors if len(t.shape) == 2), 1)


def _plain(text: str) -> str:
    # Names in a checkpoint are hostile: they must not end the docstring that they stand in.
    return "".join(c if c.isprintable() and c not in '"\\' else "?" for c in text)
