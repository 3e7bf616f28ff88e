"""Flat tensors into forward's arguments, and its result into flat outputs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from model_zoo import Batch, Named, Pair

from modelops.errors import ExportError, UsageError
from modelops_exporters.calling import (
    FlatModel,
    flat_outputs,
    named_arguments,
    nested_arguments,
)

A, B = torch.ones(2, 4), torch.zeros(2, 4)


def call(model: torch.nn.Module, names: list[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return named_arguments(model, names).rebuild([A, B])


def test_by_name_in_any_order() -> None:
    args, kwargs = call(Named(), ["right", "left"])
    assert args == ()
    assert kwargs["right"] is A


def test_by_position_where_no_name_is_forwards() -> None:
    args, kwargs = call(Named(), ["query", "document"])
    assert args[0] is A
    assert kwargs == {}


def test_one_dict_where_forward_takes_one_argument() -> None:
    args, _ = call(Batch(), ["left", "right"])
    assert set(args[0]) == {"left", "right"}


def test_a_name_in_the_wrong_place_is_no_accident_to_let_pass() -> None:
    with pytest.raises(UsageError, match="argument 2 of forward"):
        named_arguments(Named(), ["right", "other"])


class Anything(torch.nn.Module):
    def forward(self, **tensors: torch.Tensor) -> torch.Tensor:
        return tensors["a"]


def test_keyword_arguments_of_any_name() -> None:
    args, kwargs = call(Anything(), ["a", "b"])
    assert args == ()
    assert set(kwargs) == {"a", "b"}


@pytest.mark.parametrize(
    ("example", "names"),
    [
        ({"left": A, "right": B}, ("left", "right")),
        ((A, B), ("left", "right")),
        ({"query": A, "document": B}, ("query", "document")),
        ({"left": {"x": A}, "right": {"x": B}}, ("left.x", "right.x")),
        ({"left": [A, B], "right": A}, ("left.0", "left.1", "right")),
    ],
)
def test_structures_get_names(example: Any, names: tuple[str, ...]) -> None:
    arguments, leaves = nested_arguments(Named(), example)
    assert arguments.names == names
    args, kwargs = arguments.rebuild(leaves)
    assert len(args) + len(kwargs) == 2


def test_what_is_not_a_tensor_is_named() -> None:
    with pytest.raises(ExportError, match=r"holds float at \['right'\]"):
        nested_arguments(Named(), {"left": A, "right": 1.0})


@dataclass
class Result:
    logits: torch.Tensor
    cache: None = None


@pytest.mark.parametrize(
    ("result", "names"),
    [
        (A, ["output"]),
        ((A, B), ["output_0", "output_1"]),
        ([A, None, B], ["output_0", "output_2"]),
        ({"a": A, "b": {"c": B}}, ["a", "c"]),
        ({"a": {"x": A}, "b": {"x": B}}, ["a.x", "b.x"]),
        (Pair(A, B), ["score", "raw"]),
        (Result(A), ["logits"]),
    ],
)
def test_outputs_get_names(result: Any, names: list[str]) -> None:
    assert [name for name, _ in flat_outputs(result)] == names


@pytest.mark.parametrize("result", [None, (), 3, {"a": "text"}, (A, 2)])
def test_what_no_artifact_can_return(result: Any) -> None:
    with pytest.raises(ExportError):
        flat_outputs(result)


def test_a_flat_model_calls_as_the_caller_would() -> None:
    model = Named()
    flat = FlatModel(model, named_arguments(model, ["left", "right"]).rebuild)
    expected = model(left=A, right=B)
    assert torch.equal(flat(A, B)[0], expected.score)
