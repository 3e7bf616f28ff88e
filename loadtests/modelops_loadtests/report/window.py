"""Which samples the figures of a result are of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from modelops_loadtests.samples import SampleTable


def measured(result: Mapping[str, Any], samples: SampleTable) -> SampleTable:
    """Return the samples that were due inside the window that was measured."""
    window = result["window"]
    inside = (samples.due >= window["start_s"]) & (samples.due < window["end_s"])
    if "stage" in window:
        inside &= samples["stage"] == window["stage"]
    return samples.where(np.asarray(inside))
