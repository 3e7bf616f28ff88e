"""One plan that computes: a context, a stream, and a buffer for each tensor."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from modelops.artifact.manifest import Manifest
from modelops.dtypes import numpy_dtype
from modelops.errors import EngineError, RequestError
from modelops.protocols import Tensors
from modelops.tensorrt.buffers import Buffer, Cuda
from modelops.tensorrt.dtypes import dtype_name
from modelops.tensorrt.machine import Gpu, cuda_runtime, require_bindings, require_gpu
from modelops.tensorrt.messages import listen
from modelops.tensorrt.opening import open_plan
from modelops.tensorrt.requirements import check_machine

_PROFILE = 0


class PlanRuntime:
    """A ``modelops.protocols.Runtime`` on the first GPU. One thread at a time."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        """Open the plan.

        Raises:
            MissingEnvironmentError: TensorRT or a GPU is missing.
            VerificationError: the plan is for another machine.
            EngineError: it does not load.
            IntegrityError: the file is no whole plan.
        """
        trt = require_bindings()
        self.gpu: Gpu = require_gpu()
        self.version: str = trt.__version__
        check_machine(manifest.requires, self.version, self.gpu)
        self._messages = listen(trt)
        engine = open_plan(trt, path, self._messages)
        if engine.streamable_weights_size:
            engine.weight_streaming_budget_v2 = engine.get_weight_streaming_automatic_budget()
        context = engine.create_execution_context()
        if context is None:
            raise EngineError(f"TensorRT makes no context: {self._messages.said()}")
        self.engine = engine
        self._context = context
        self._host = trt.TensorLocation.HOST
        self._signature = manifest.signature
        self._cuda: Cuda | None = Cuda(cuda_runtime())
        names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
        self._dtypes = {name: dtype_name(engine.get_tensor_dtype(name)) for name in names}
        self._buffers = {name: Buffer(self._cuda) for name in names}
        if not context.set_optimization_profile_async(_PROFILE, self._cuda.stream):
            raise EngineError(f"TensorRT does not take its profile: {self._messages.said()}")
        self._cuda.wait()

    def run(self, inputs: Tensors) -> dict[str, npt.NDArray[Any]]:
        """Compute every output.

        Raises:
            RequestError: a shape is outside the plan's profile.
            EngineError: TensorRT or CUDA fails; their messages are kept.
        """
        if self._cuda is None:
            raise EngineError("the plan is closed")
        self._messages.forget()
        held = [self._give(self._cuda, spec.name, inputs) for spec in self._signature.inputs]
        if lacking := self._context.infer_shapes():
            raise EngineError(f"TensorRT lacks {', '.join(lacking)}: {self._messages.said()}")
        shapes = {t.name: self._room(t.name) for t in self._signature.outputs}
        if not self._context.execute_async_v3(self._cuda.stream):
            raise EngineError(f"TensorRT failed: {self._messages.said()}")
        for name, shape in shapes.items():
            buffer = self._buffers[name]
            self._cuda.download(buffer.pinned, buffer.device, self._nbytes(name, shape))
        self._cuda.wait()
        del held
        # The buffers are the next call's: answers leave as copies.
        return {
            name: self._buffers[name].view(shape, numpy_dtype(self._dtypes[name])).copy()
            for name, shape in shapes.items()
        }

    def close(self) -> None:
        """Give everything back; may be called more than once."""
        if self._cuda is not None:
            for buffer in self._buffers.values():
                buffer.release()
            self._cuda.close()
        self._cuda = self._context = self.engine = None

    def _give(self, cuda: Cuda, name: str, inputs: Tensors) -> npt.NDArray[Any]:
        array = np.ascontiguousarray(inputs[name])
        if array.dtype != numpy_dtype(self._dtypes[name]):
            raise RequestError(
                f"input {name!r} is {array.dtype}; the plan takes {self._dtypes[name]}"
            )
        if not self._context.set_input_shape(name, array.shape):
            low, _, high = self.engine.get_tensor_profile_shape(name, _PROFILE)
            raise RequestError(
                f"input {name!r} has shape {list(array.shape)}; the plan was built for "
                f"{list(low)} to {list(high)}"
            )
        if self.engine.get_tensor_location(name) == self._host:
            # TensorRT reads the values of a shape from the host, until the call is over.
            self._context.set_tensor_address(name, array.ctypes.data)
            return array
        buffer = self._buffers[name]
        buffer.reserve(max(1, array.nbytes))
        buffer.view(array.shape, array.dtype)[...] = array
        cuda.upload(buffer.device, buffer.pinned, array.nbytes)
        self._context.set_tensor_address(name, buffer.device)
        return array

    def _room(self, name: str) -> tuple[int, ...]:
        shape = tuple(self._context.get_tensor_shape(name))
        if any(size < 0 for size in shape):
            raise EngineError(f"the shape of output {name!r} depends on values: {list(shape)}")
        self._buffers[name].reserve(max(1, self._nbytes(name, shape)))
        self._context.set_tensor_address(name, self._buffers[name].device)
        return shape

    def _nbytes(self, name: str, shape: tuple[int, ...]) -> int:
        count = int(np.prod(shape, dtype=np.int64))
        return count * int(numpy_dtype(self._dtypes[name]).itemsize)
