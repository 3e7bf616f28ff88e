"""The tokenizer that a GGUF file describes: built by transformers, with what it leaves out."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, pre_tokenizers

from modelops.checkpoint.gguf_file import GgufHeader
from modelops.errors import CheckpointError, ExportError
from modelops_exporters.carried import json_bytes
from modelops_exporters.text.model import quiet

FILE = "model.gguf"
_MODELS = ("gpt2", "llama")
_MAX_TEMPLATE = 1 << 20

# How text is split before its bytes are merged, by llama.cpp's name. transformers knows some and
# takes GPT-2's way for all others, which is wrong for those that split every digit off first.
_GPT2 = ("gpt-2", "phi-2", "mpt", "olmo", "jina-en", "jina-es", "jina-de", "gigachat")
_DIGITS_FIRST = ("smollm", "starcoder", "refact", "command-r", "codeshell", "minerva-7b")


@contextmanager
def alone(path: Path) -> Iterator[Path]:
    """Yield a folder that holds nothing but a link to ``path``, called ``FILE``.

    transformers takes the name of a folder, and reads what else lies there.
    """
    with tempfile.TemporaryDirectory(prefix="modelops-") as folder:
        (Path(folder) / FILE).symlink_to(path)
        yield Path(folder)


def read_tokenizer(header: GgufHeader, path: Path, max_tokens: int) -> Any:
    """Return the file's tokenizer, chat template included.

    Raises:
        CheckpointError: there is none in the file, or it is damaged.
        ExportError: it is of a kind that is not read.
    """
    _check(header)
    import transformers

    try:
        with alone(path) as folder, quiet():
            found = transformers.AutoTokenizer.from_pretrained(
                folder, gguf_file=FILE, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:
        raise CheckpointError(
            f"the GGUF file's tokenizer cannot be built: {str(error).splitlines()[0][:300]}",
            hint="export the original Hugging Face folder instead",
        ) from error
    backend = _within(found.backend_tokenizer, len(header.metadata["tokenizer.ggml.tokens"]))
    split = _pre_tokenizer(header)
    if split is not None:
        backend.pre_tokenizer = split()
    made: Any = transformers.PreTrainedTokenizerFast
    return made(
        tokenizer_object=backend,
        model_max_length=max_tokens,
        clean_up_tokenization_spaces=False,
        chat_template=header.metadata.get("tokenizer.chat_template"),
        **_specials(header),
    )


def _within(backend: Tokenizer, count: int) -> Tokenizer:
    """Leave out tokens beyond the file's own: transformers adds GPT-2's end of text where absent.

    The model has no embedding for such an id.
    """
    described = json.loads(backend.to_str())
    described["added_tokens"] = [t for t in described["added_tokens"] if t["id"] < count]
    return Tokenizer.from_str(json.dumps(described))


def _specials(header: GgufHeader) -> dict[str, str]:
    data = header.metadata
    tokens = data["tokenizer.ggml.tokens"]
    found = {}
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        number = data.get(f"tokenizer.ggml.{key}_token_id")
        if isinstance(number, int) and 0 <= number < len(tokens):
            found[f"{name}_token"] = tokens[number]
    return found


def is_exact(header: GgufHeader) -> bool:
    """Whether every text survives its tokens: byte-level ones keep all, sentencepiece does not."""
    return header.metadata.get("tokenizer.ggml.model") == "gpt2"


def documents(tokenizer: Any) -> dict[str, bytes]:
    """Return the files of a tokenizer, as any release of transformers reads them."""
    special = {
        name: str(getattr(tokenizer, name))
        for name in ("bos_token", "eos_token", "unk_token", "pad_token")
        if getattr(tokenizer, name) is not None
    }
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": tokenizer.model_max_length,
        "clean_up_tokenization_spaces": False,
        **special,
    }
    extra = [str(t) for t in tokenizer.all_special_tokens if str(t) not in special.values()]
    if extra:
        config["additional_special_tokens"] = list(dict.fromkeys(extra))
    found = {
        "tokenizer.json": tokenizer.backend_tokenizer.to_str(pretty=True).encode(),
        "tokenizer_config.json": json_bytes(config),
    }
    if tokenizer.chat_template is not None:
        found["chat_template.jinja"] = tokenizer.chat_template.encode()
    return found


def _check(header: GgufHeader) -> None:
    data = header.metadata
    kind, tokens = data.get("tokenizer.ggml.model"), data.get("tokenizer.ggml.tokens")
    if kind is None or not isinstance(tokens, list) or not tokens:
        raise CheckpointError(
            "the GGUF file holds no tokenizer (tokenizer.ggml.model and .tokens)",
            hint="convert the model again with its tokenizer, or export its original folder",
        )
    if kind not in _MODELS:
        raise ExportError(
            f"the GGUF file's tokenizer is of kind {str(kind)[:40]!r}; {', '.join(_MODELS)} are "
            "read",
            hint="export the original Hugging Face folder instead",
        )
    types = data.get("tokenizer.ggml.token_type")
    if types is not None and len(types) != len(tokens):
        raise CheckpointError(f"the GGUF file has {len(tokens)} tokens, and types for {len(types)}")
    if len(set(tokens)) != len(tokens):
        raise CheckpointError("the GGUF file's vocabulary holds a token twice")
    if kind == "gpt2" and not isinstance(data.get("tokenizer.ggml.merges"), list):
        raise CheckpointError("the GGUF file's tokenizer has no merges (tokenizer.ggml.merges)")
    template = data.get("tokenizer.chat_template")
    if template is not None and not (isinstance(template, str) and len(template) <= _MAX_TEMPLATE):
        raise CheckpointError(f"the GGUF file's chat template is no text of up to {_MAX_TEMPLATE}")


def _pre_tokenizer(header: GgufHeader) -> Callable[[], Any] | None:
    """Return how to split text, or None where transformers has seen to it.

    Raises:
        ExportError: the file names a way that is not known.
    """
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    if header.metadata.get("tokenizer.ggml.model") != "gpt2":
        return None
    name = header.metadata.get("tokenizer.ggml.pre")
    if name in GGUF_PRE_TOKENIZER_SPLITS or name in _GPT2:
        return None
    if name in _DIGITS_FIRST:
        return _digits_first
    raise ExportError(
        f"the GGUF file splits text as {str(name)[:40]!r}, which is not known: tokens would be "
        "wrong",
        hint="export the original Hugging Face folder instead",
    )


def _digits_first() -> Any:
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
