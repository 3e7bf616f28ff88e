"""TensorRT plans: what they need of a machine, and how one is opened and run.

The exporter proves a plan by the same code that the engine serves it with. The bindings are an
argument everywhere: ``tensorrt``, or another package with the same API.
"""

from modelops.tensorrt.machine import (
    Gpu,
    bindings_or_none,
    find_gpu,
    require_bindings,
    require_gpu,
    what_is_missing,
)
from modelops.tensorrt.messages import Messages, listen
from modelops.tensorrt.opening import open_plan
from modelops.tensorrt.requirements import check_machine, requirements
from modelops.tensorrt.running import PlanRuntime

__all__ = [
    "Gpu",
    "Messages",
    "PlanRuntime",
    "bindings_or_none",
    "check_machine",
    "find_gpu",
    "listen",
    "open_plan",
    "require_bindings",
    "require_gpu",
    "requirements",
    "what_is_missing",
]
