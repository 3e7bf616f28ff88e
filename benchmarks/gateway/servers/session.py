"""The model run the same way by every contender, and the Open Inference Protocol's plain forms.

Imported inside the peers' environments too: only numpy and onnxruntime.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime as ort

DATATYPES = {"FP32": np.float32, "INT64": np.int64}


def open_session(path: str, threads: int) -> ort.InferenceSession:
    """Open ``path`` with the options of modelops' own engine."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return ort.InferenceSession(path, sess_options=options, providers=["CPUExecutionProvider"])


def arrays_of(inputs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The arrays that the JSON form of a request's inputs holds."""
    return {
        i["name"]: np.array(i["data"], dtype=DATATYPES[i["datatype"]]).reshape(i["shape"])
        for i in inputs
    }


def padded(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Stack one-row feeds, each filled with zeros up to the longest."""
    batch = {}
    for name, first in items[0].items():
        longest = max(item[name].shape[1] for item in items)
        batch[name] = np.zeros((len(items), longest), dtype=first.dtype)
        for row, item in enumerate(items):
            batch[name][row, : item[name].shape[1]] = item[name][0]
    return batch


def arguments(description: str | None) -> argparse.ArgumentParser:
    """The options that every server here takes."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--model", required=True, metavar="FILE", help="the ONNX file")
    parser.add_argument("--name", required=True, help="the name to serve it under")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--threads", type=int, default=2)
    return parser
