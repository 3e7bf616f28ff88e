"""What is mapped into the processes: a front that holds no runtime cannot fall with one."""

from __future__ import annotations

from pathlib import Path

import psutil
from running_server import Starter
from server_processes import processes


def _maps(process: psutil.Process) -> str:
    return Path(f"/proc/{process.pid}/maps").read_text()


def test_a_front_holds_neither_torch_nor_a_runtime(starter: Starter, zoo: dict[str, Path]) -> None:
    server = starter(str(zoo["mlp"]))
    x = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    assert server.infer("mlp", x).ok
    front = _maps(server.front)
    [host] = map(_maps, processes(server, "host"))
    assert "onnxruntime" in host
    for library in ("onnxruntime", "libtorch", "/torch/", "transformers"):
        assert library not in front
    for library in ("uvloop", "httptools", "fastapi"):
        assert library not in host
    supervisor = _maps(psutil.Process(server.process.pid))
    for library in ("onnxruntime", "/torch/", "uvloop", "httptools", "tokenizers"):
        assert library not in supervisor
