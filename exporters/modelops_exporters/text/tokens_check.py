"""Whether the written tokenizer is the source's: ids, text, special tokens and chat template."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from modelops.errors import VerificationError
from modelops_exporters.text.model import quiet
from modelops_exporters.text.prompts import CORPUS, Conversation, render
from modelops_exporters.text.source import TextSource


def read(folder: Path) -> Any:
    """Return the tokenizer of a written folder, read anew from disk.

    Raises:
        VerificationError: transformers does not load it.
    """
    import transformers

    try:
        with quiet():
            return transformers.AutoTokenizer.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except Exception as error:  # tokenizers raises Exception itself
        raise VerificationError(
            f"the written tokenizer does not load: {str(error).splitlines()[0][:300]}"
        ) from error


def compare(
    source: TextSource, folder: Path, chats: Sequence[Conversation]
) -> tuple[list[str], list[str]]:
    """Compare the written tokenizer with the source's; return what is wrong, and what was shown.

    Raises:
        VerificationError: the written one does not load.
    """
    mine, theirs = read(folder), source.tokenizer
    texts = [*CORPUS, *(render(theirs, c) for c in chats)]
    wrong = [
        f"the tokenizer gives other ids than the source's for {_short(text)}"
        for text in texts
        for special in (True, False)
        if _ids(mine, text, special) != _ids(theirs, text, special)
    ]
    wrong += [
        f"the tokenizer decodes otherwise than the source's: {_short(text)}"
        for text in texts
        if mine.decode(_ids(mine, text, True)) != theirs.decode(_ids(theirs, text, True))
    ]
    shown = [f"token ids equal the source's on {len(texts)} texts, special tokens on and off"]
    vocabulary = int(source.config.vocab_size)
    if (most := max(mine.get_vocab().values(), default=0)) >= vocabulary:
        wrong.append(f"the tokenizer has the id {most}, the model embeddings for {vocabulary}")
    added = [str(t) for t in theirs.added_tokens_decoder.values() if t.special]
    specials = list(dict.fromkeys([*map(str, theirs.all_special_tokens), *added]))
    split = [s for s in specials if len(_ids(mine, s, False)) != 1]
    wrong += [f"the special token {_short(s)} is not one id" for s in split]
    shown.append(f"each of {len(specials)} special tokens is one id")
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        if getattr(mine, name) != getattr(theirs, name):
            wrong.append(f"{name} is {getattr(mine, name)}, the source's {getattr(theirs, name)}")
    if chats:
        if any(render(mine, c) != render(theirs, c) for c in chats):
            wrong.append("the chat template writes a conversation otherwise than the source's")
        shown.append(f"the chat template writes {len(chats)} conversations as the source's does")
    elif mine.chat_template is not None:
        wrong.append("there is a chat template, but none in the source")
    if source.exact_text:
        lost = [t for t in CORPUS if _again(mine, t) != t]
        wrong += [f"text does not survive its tokens: {_short(t)}" for t in lost]
        shown.append(f"{len(CORPUS)} texts come back from their tokens unchanged")
    return list(dict.fromkeys(wrong)), shown


def _ids(tokenizer: Any, text: str, special: bool) -> list[int]:
    found: list[int] = tokenizer(text, add_special_tokens=special)["input_ids"]
    return found


def _again(tokenizer: Any, text: str) -> str:
    ids = _ids(tokenizer, text, False)
    found: str = tokenizer.decode(
        ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
    )
    return found


def _short(text: str) -> str:
    shown = ascii(text)
    return shown if len(shown) <= 60 else shown[:60] + "…"
