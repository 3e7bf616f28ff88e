"""Which model is meant, by what the server says of its models."""

from __future__ import annotations

from typing import Any

import pytest

from modelops.errors import ModelNotFoundError, UsageError
from modelops_loadtests.preflight import resolve_model

LISTED = {"data": [{"id": "org/chat"}, {"id": "embed"}]}


def server(**replies: tuple[int, Any]) -> Any:
    """Answer GETs of the paths that are given, with __ for /; others are 404."""
    known = {"/v1/models": (200, LISTED), **{k.replace("__", "/"): v for k, v in replies.items()}}
    return lambda path: known.get(path, (404, None))


def test_a_listed_model_is_taken() -> None:
    assert resolve_model(server(), "org/chat") == "org/chat"


def test_an_alias_is_not_listed_and_yet_known() -> None:
    get = server(__v1__models__alias=(200, {"id": "org/chat"}))
    assert resolve_model(get, "alias") == "alias"


def test_what_is_neither_is_refused_with_the_nearest() -> None:
    with pytest.raises(ModelNotFoundError, match="no model 'enbed'") as caught:
        resolve_model(server(), "enbed")
    assert "did you mean 'embed'?" in str(caught.value.hint)


def test_of_several_the_only_one_that_is_ready_is_meant() -> None:
    get = server(__v2__models__embed__ready=(200, None))
    assert resolve_model(get, None) == "embed"
    with pytest.raises(UsageError, match="2 models; which one"):
        resolve_model(server(), None)
