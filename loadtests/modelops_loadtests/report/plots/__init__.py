"""The plots of a load test as plain plotly figures; colours are named roles of the page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from modelops_loadtests.report.plots import client, distributions, over_time, server, sweep
from modelops_loadtests.report.plots.plot import Plot
from modelops_loadtests.samples import SampleTable


def groups(result: Mapping[str, Any], samples: SampleTable) -> list[tuple[str, list[Plot]]]:
    """Return the plots in the page's order, by heading; headings without a plot are left out.

    ``samples`` are all of the run, warm-up included.
    """
    found = [
        ("Load", sweep.plots(result)),
        (
            "Over time",
            [
                *over_time.plots(result, samples),
                *server.plots(result),
            ],
        ),
        ("Distributions", distributions.plots(result, samples)),
        ("The client itself", client.plots(result)),
    ]
    return [(heading, plots) for heading, plots in found if plots]
