"""Parity: an artifact is published only if it computes what eager PyTorch computes."""

from modelops.parity.check import Eager, InputMaker, check_parity, recheck_samples
from modelops.parity.compare import compare_outputs
from modelops.parity.inputs import RandomInputs, example_sizes
from modelops.parity.points import Point, choose_points
from modelops.parity.policy import tolerance_for
from modelops.parity.samples import read_samples, write_samples

__all__ = [
    "Eager",
    "InputMaker",
    "Point",
    "RandomInputs",
    "check_parity",
    "choose_points",
    "compare_outputs",
    "example_sizes",
    "read_samples",
    "recheck_samples",
    "tolerance_for",
    "write_samples",
]
