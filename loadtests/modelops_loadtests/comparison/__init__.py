"""Two runs, or two sets of them, set against each other with confidence intervals."""

from modelops_loadtests.comparison.compare import compare
from modelops_loadtests.comparison.run import Run, baseline

__all__ = ["Run", "baseline", "compare"]
