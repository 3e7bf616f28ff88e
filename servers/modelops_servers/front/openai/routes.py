"""The routes of text engines, named apart from what answers them: they cost no import."""

from __future__ import annotations

TEXT_ROUTES = frozenset({
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/rerank",
    "/v1/score",
    "/tokenize",
    "/detokenize",
})  # fmt: skip
"""Taken as they are, by POST; which of them a model has, its engine decides."""
