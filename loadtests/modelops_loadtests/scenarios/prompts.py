"""Synthetic prompts of an exact number of tokens, unique unless a common beginning is asked for.

Words are chosen that the model's tokenizer takes as one token each, wherever they stand: a prompt
of n of them has n tokens more than an empty one. So a prompt costs a few microseconds when it is
due, and no tokenizer runs then.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Self

from modelops.errors import InputError
from modelops_loadtests.scenarios.tokens import Tokenizer
from modelops_loadtests.scenarios.words import WORDS

_BLOCK = 16
_BLOCKS = 512
_CHECKED = (1, 2, 7, 64, 300)
_FEWEST_WORDS = 20
_STARTERS = 64


@dataclass(frozen=True)
class PromptMaker:
    """Makes prompts of ``n`` tokens: ``overhead`` of them come with every prompt.

    ``starters`` are the words that are one token at the very beginning, too. ``overhead`` is what
    the tokenizer adds by itself, and a chat's template. ``exact`` says whether lengths are in
    tokens, or in words where no tokenizer is known.
    """

    words: tuple[str, ...]
    starters: tuple[str, ...]
    blocks: tuple[str, ...]
    shared: tuple[str, ...]
    overhead: int
    exact: bool

    @classmethod
    def of(
        cls, tokenizer: Tokenizer | None, *, seed: int, template: int = 0, longest: int = 0
    ) -> Self:
        """Choose the words; ``template`` tokens come with every prompt besides the tokenizer's own.

        ``longest`` is the longest beginning, in tokens, that prompts may have in common.

        Raises:
            InputError: the tokenizer does not take words as tokens, as one of characters does.
        """
        words, starters, overhead = WORDS, WORDS, 0
        if tokenizer is not None:
            words, starters, overhead = _single_tokens(tokenizer)
        rng = Random(f"prompts/{seed}")  # noqa: S311
        # Long prompts are put together of ready pieces: choosing words one by one takes longer.
        blocks = tuple(" ".join(rng.choices(words, k=_BLOCK)) for _ in range(_BLOCKS))
        shared = (rng.choice(starters), *rng.choices(words, k=longest))
        exact = tokenizer is not None
        maker = cls(words, starters, blocks, shared, overhead + template, exact)
        if tokenizer is not None:
            maker._prove(tokenizer, template)
        return maker

    def make(self, tokens: int, rng: Random, shared: float = 0.0) -> str:
        """Return a prompt of this many tokens, of which the share ``shared`` is the same in all.

        A prompt has at least one word, also where ``tokens`` is below the overhead and one.
        """
        wanted = max(1, tokens - self.overhead)
        common = min(round(wanted * shared), len(self.shared))
        parts = list(self.shared[:common])
        own = wanted - common
        # The first of its own words are drawn one by one, so that no two prompts agree in them.
        first = min(own, _BLOCK)
        parts += rng.choices(self.words, k=first)
        if not common:
            parts[0] = rng.choice(self.starters)
        blocks, left = divmod(own - first, _BLOCK)
        parts += rng.choices(self.blocks, k=blocks)
        parts += rng.choices(self.words, k=left)
        return " ".join(parts)

    def _prove(self, tokenizer: Tokenizer, template: int) -> None:
        """Count a few prompts with the tokenizer itself."""
        rng = Random(0)  # noqa: S311
        for words in _CHECKED:
            tokens = words + self.overhead
            counted = tokenizer.count(self.make(tokens, rng)) + template
            if counted != tokens:
                raise InputError(
                    f"this tokenizer counts {counted} tokens in a prompt made to have {tokens}",
                    hint="give prompts of your own with --data, or leave --input-tokens out",
                )


def _single_tokens(tokenizer: Tokenizer) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Return the words that are one token each, those that also begin so, and the overhead.

    Groups are counted, not words: a server's tokenizer is asked about a hundred times in all.
    """
    anchor = next((w for w in WORDS[:_STARTERS] if _is_single(tokenizer, w)), None)
    if anchor is None:
        raise _no_words()
    # What one more word costs is one token, so the rest of a single word's is the overhead.
    overhead = tokenizer.count(anchor) - 1
    kept: list[str] = []
    groups = [WORDS[i : i + 32] for i in range(0, len(WORDS), 32)]
    while groups:
        group = groups.pop()
        text = " ".join((anchor, *group))
        if tokenizer.count(text) - overhead == 1 + len(group):
            kept += group
        elif len(group) > 1:
            half = len(group) // 2
            groups += [group[:half], group[half:]]
    kept.sort()
    tried = kept if tokenizer.is_local else kept[:: max(1, len(kept) // _STARTERS)]
    starters = tuple(w for w in tried if tokenizer.count(w) == overhead + 1)
    if len(kept) < _FEWEST_WORDS or not starters:
        raise _no_words()
    return tuple(kept), starters, overhead


def _is_single(tokenizer: Tokenizer, word: str) -> bool:
    one, two, three = (tokenizer.count(" ".join([word] * n)) for n in (1, 2, 3))
    return two - one == 1 and three - two == 1


def _no_words() -> InputError:
    return InputError(
        "this tokenizer does not take common words as one token each, so prompts of an exact "
        "length cannot be made",
        hint="give prompts of your own with --data, or leave --input-tokens out",
    )
