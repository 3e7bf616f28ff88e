"""Two sets of outputs: what passes for equal, and what never does."""

import numpy as np
import pytest

from modelops.artifact.manifest import OutputParity
from modelops.parity import compare_outputs, tolerance_for
from modelops.signature import TensorSpec

FP32 = tolerance_for("float32")
Y = (TensorSpec(name="y", dtype="float32", shape=("batch", 3)),)


def compare(
    eager: np.ndarray, artifact: np.ndarray, spec: tuple[TensorSpec, ...] = Y
) -> OutputParity:
    return compare_outputs(spec, {"y": eager}, {"y": artifact}, FP32)[0]


@pytest.fixture
def eager() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((5, 3)).astype(np.float32)


def test_equal_outputs_pass(eager: np.ndarray) -> None:
    found = compare(eager, eager.copy())
    assert found.passed
    assert found.max_abs == 0
    assert found.cosine == pytest.approx(1)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_tolerance_has_no_unit(eager: np.ndarray, scale: float) -> None:
    near, far = eager * np.float32(1 + 1e-5), eager * np.float32(1.01)
    assert compare(eager * scale, near * scale).passed
    assert not compare(eager * scale, far * scale).passed


def test_a_broadcastable_shape_is_not_the_shape(eager: np.ndarray) -> None:
    same = np.ones((1, 3), np.float32)
    found = compare(np.ones((5, 3), np.float32), same)
    assert not found.passed
    assert "shape [1, 3]" in (found.why or "")


def test_another_dtype_fails(eager: np.ndarray) -> None:
    assert "float64" in (compare(eager, eager.astype(np.float64)).why or "")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_where_eager_is_finite_fails(eager: np.ndarray, bad: float) -> None:
    wrong = eager.copy()
    wrong[2, 1] = bad
    assert "NaN or inf" in (compare(eager, wrong).why or "")


def test_nan_never_passes_even_where_both_agree(eager: np.ndarray) -> None:
    both = eager.copy()
    both[0, 0] = np.nan
    assert "eager itself gives NaN" in (compare(both, both.copy()).why or "")


def test_infinities_pass_only_with_their_sign(eager: np.ndarray) -> None:
    masked = eager.copy()
    masked[0, 0] = -np.inf
    assert compare(masked, masked.copy()).passed
    flipped = masked.copy()
    flipped[0, 0] = np.inf
    assert not compare(masked, flipped).passed
    assert not compare(masked, eager).passed


def test_one_wrong_row_among_many_is_found() -> None:
    eager = np.random.default_rng(0).standard_normal((4096, 3)).astype(np.float32)
    wrong = eager.copy()
    wrong[4000] = wrong[4000][::-1]
    assert "of 12288 values" in (compare(eager, wrong).why or "")


def test_integers_are_equal_or_wrong() -> None:
    spec = (TensorSpec(name="y", dtype="int64", shape=("batch",)),)
    labels = np.arange(6)
    assert compare(labels, labels.copy(), spec).passed
    found = compare(labels, labels + np.array([0, 0, 1, 0, 0, 0]), spec)
    assert found.why == "1 of 6 values differ"


def test_a_missing_output_fails(eager: np.ndarray) -> None:
    found = compare_outputs(Y, {"y": eager}, {}, FP32)[0]
    assert not found.passed


def test_all_zeros_is_held_to_zeros() -> None:
    zeros = np.zeros((2, 3), np.float32)
    assert compare(zeros, zeros.copy()).passed
    assert not compare(zeros, zeros + 0.01).passed


def test_an_empty_output_passes_by_its_shape() -> None:
    empty = np.zeros((0, 3), np.float32)
    assert compare(empty, empty.copy()).passed
    assert not compare(empty, np.zeros((0, 4), np.float32)).passed
