"""Heavy looks, each in a child process: what crashes or hangs there is a finding here.

The child prints one JSON line before and after each step, so that the step at which it died is
known. Its code is the functions below; nothing of modelops is imported there.
"""

from __future__ import annotations

import importlib
import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Probe:
    """What a child reported: facts by step, errors by step."""

    facts: dict[str, Any] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)


def run(task: str, *arguments: str, timeout: float = 120) -> Probe:
    """Run ``task`` (``imports`` or ``providers``) in a child; ``timeout`` in seconds."""
    argv = [sys.executable, "-P", __file__, task, *arguments]
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
            end = None
        except subprocess.TimeoutExpired:
            process.kill()
            out, err = process.communicate()
            end = f"did not end within {timeout:g} s"
    if end is None and process.returncode < 0:
        end = f"crashed ({signal.Signals(-process.returncode).name})"
    elif end is None and process.returncode:
        end = (err.strip().splitlines() or [f"exit code {process.returncode}"])[-1]
    return _read(out, end)


def _read(out: str, end: str | None) -> Probe:
    probe = Probe()
    step = "start"
    for line in out.splitlines():
        try:
            told = json.loads(line)
        except ValueError:
            continue  # a library wrote to stdout
        if not isinstance(told, dict) or "step" not in told:
            continue
        step = told["step"]
        if "fact" in told:
            probe.facts[step] = told["fact"]
        if "error" in told:
            probe.errors[step] = told["error"]
    if end is not None:
        probe.errors[step] = end
    return probe


def _tell(step: str, **what: Any) -> None:
    sys.stdout.write("\n" + json.dumps({"step": step} | what) + "\n")
    sys.stdout.flush()


def _imports(modules: list[str]) -> None:
    for name in modules:
        _tell(name)
        try:
            module = importlib.import_module(name)
        except BaseException as error:  # noqa: BLE001 - whatever it is, it is what we look for
            _tell(name, error=f"{type(error).__name__}: {error}")
            continue
        fact: dict[str, Any] = {}
        if name == "torch":
            cuda = module.version.cuda
            fact = {"cuda": cuda, "gpu": bool(cuda) and module.cuda.is_available()}
        _tell(name, fact=fact)


def _providers(_: list[str]) -> None:
    _tell("onnxruntime")
    import onnx
    import onnxruntime
    from onnx import TensorProto, helper

    value = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1]) for n in "xy"]
    node = helper.make_node("Identity", ["x"], ["y"])
    graph = helper.make_graph([node], "identity", value[:1], value[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    for provider in onnxruntime.get_available_providers():
        _tell(provider)
        try:
            session = onnxruntime.InferenceSession(model, options, providers=[provider])
            in_use = session.get_providers()
        except Exception as error:  # noqa: BLE001 - native errors have no common base
            _tell(provider, error=str(error))
            continue
        _tell(provider, fact=provider in in_use)


if __name__ == "__main__":
    {"imports": _imports, "providers": _providers}[sys.argv[1]](sys.argv[2:])
