"""Comparing two sets of outputs: shape, dtype, finiteness, then distance."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from modelops.artifact.manifest import OutputParity, Tolerance
from modelops.dtypes import DTYPES
from modelops.protocols import Tensors
from modelops.signature import TensorSpec

Array = npt.NDArray[Any]


def compare_outputs(
    specs: tuple[TensorSpec, ...], eager: Tensors, artifact: Tensors, tolerance: Tolerance
) -> tuple[OutputParity, ...]:
    """Compare every output of ``specs`` and say for each whether it held, and why not."""
    return tuple(
        _compare(spec, eager.get(spec.name), artifact.get(spec.name), tolerance) for spec in specs
    )


def _compare(
    spec: TensorSpec, eager: Array | None, artifact: Array | None, tolerance: Tolerance
) -> OutputParity:
    if eager is None or artifact is None:
        side = "eager" if eager is None else "the artifact"
        return _failed(spec, f"{side} did not return it")
    if artifact.shape != eager.shape:
        return _failed(spec, f"shape {list(artifact.shape)} where eager gives {list(eager.shape)}")
    if artifact.dtype != eager.dtype:
        return _failed(spec, f"dtype {artifact.dtype} where eager gives {eager.dtype}")
    if eager.size == 0:
        return OutputParity(output=spec.name, max_abs=None, max_rel=None, cosine=None, passed=True)
    if not DTYPES[spec.dtype].is_float:
        return _exact(spec, eager, artifact)
    return _close(spec, eager.astype(np.float64), artifact.astype(np.float64), tolerance)


def _exact(spec: TensorSpec, eager: Array, artifact: Array) -> OutputParity:
    wrong = int(np.count_nonzero(eager != artifact))
    if spec.dtype == "string":
        gap = None
    else:
        gap = float(np.max(np.abs(eager.astype(np.float64) - artifact.astype(np.float64))))
    return OutputParity(
        output=spec.name,
        max_abs=gap,
        max_rel=None,
        cosine=None,
        passed=wrong == 0,
        why=f"{wrong} of {eager.size} values differ" if wrong else None,
    )


def _close(spec: TensorSpec, eager: Array, artifact: Array, tolerance: Tolerance) -> OutputParity:
    if (nans := int(np.isnan(eager).sum())) > 0:
        return _failed(spec, f"eager itself gives NaN in {nans} of {eager.size} values")
    finite = np.isfinite(eager)
    if not np.array_equal(finite, np.isfinite(artifact)):
        bad = int((~np.isfinite(artifact) & finite).sum())
        return _failed(
            spec,
            f"{bad} of {eager.size} values are NaN or inf where eager is finite"
            if bad
            else "finite where eager is infinite",
        )
    if not np.array_equal(eager[~finite], artifact[~finite]):
        return _failed(spec, "infinite with another sign than eager, or NaN where it is infinite")
    expected, got = eager[finite], artifact[finite]
    if expected.size == 0:
        return OutputParity(output=spec.name, max_abs=0, max_rel=0, cosine=None, passed=True)
    gap = np.abs(got - expected)
    scale = float(np.sqrt(np.mean(expected**2)))
    # Where all of eager is zero there is no scale to measure by, and atol stands for itself.
    allowed = tolerance.atol * (scale or 1.0) + tolerance.rtol * np.abs(expected)
    outside = int(np.count_nonzero(gap > allowed))
    cosine = _worst_cosine(eager, artifact, finite)
    max_rel = float(np.max(gap / np.maximum(np.abs(expected), scale or 1.0)))
    why = None
    if outside:
        why = (
            f"{outside} of {eager.size} values are off by up to {gap.max():.3g} "
            f"(eager's RMS is {scale:.3g})"
        )
    elif cosine is not None and cosine < tolerance.min_cosine:
        why = f"cosine of the worst row is {cosine:.6f}, under {tolerance.min_cosine}"
    return OutputParity(
        output=spec.name,
        max_abs=float(gap.max()),
        max_rel=max_rel,
        cosine=cosine,
        passed=why is None,
        why=why,
    )


def _worst_cosine(eager: Array, artifact: Array, finite: Array) -> float | None:
    # Of a scalar a row, the cosine is only a sign, and the distance has judged that already.
    if eager.ndim < 2 or eager.shape[-1] < 2:
        return None
    a = np.where(finite, eager, 0.0).reshape(-1, eager.shape[-1])
    b = np.where(finite, artifact, 0.0).reshape(-1, eager.shape[-1])
    norms = np.linalg.norm(a, axis=1)
    # A row that is nothing beside the others has only rounding for a direction.
    real = norms > 1e-3 * (norms.max() or 1.0)
    if not real.any():
        return None
    dots = np.einsum("ij,ij->i", a[real], b[real])
    lengths = norms[real] * np.linalg.norm(b[real], axis=1)
    return float(np.min(np.divide(dots, lengths, out=np.zeros_like(dots), where=lengths > 0)))


def _failed(spec: TensorSpec, why: str) -> OutputParity:
    return OutputParity(
        output=spec.name, max_abs=None, max_rel=None, cosine=None, passed=False, why=why
    )
