"""From an ONNX file to a strongly typed network, or to the node that TensorRT refuses."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from modelops.errors import ExportError
from modelops.tensorrt import Messages
from modelops.tensorrt.dtypes import dtype_name

_SHOWN = 3


def create_network(trt: Any, builder: Any) -> Any:
    """Return an empty network whose precision is what the graph says, and nothing else."""
    return builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))


def parse(trt: Any, network: Any, path: Path, messages: Messages) -> None:
    """Fill ``network`` with the graph in ``path``; weights beside it are found.

    Raises:
        ExportError: TensorRT's parser refuses it; node, operator and reason are named.
    """
    messages.forget()
    parser = trt.OnnxParser(network, messages.logger)
    # parse(bytes) would not find external data.
    if parser.parse_from_file(str(path)):
        return
    found = [parser.get_error(i) for i in range(parser.num_errors)]
    lines = [_line(error) for error in found[:_SHOWN]]
    more = f" (and {len(found) - _SHOWN} more)" if len(found) > _SHOWN else ""
    raise ExportError(
        f"TensorRT {trt.__version__} does not take the graph: "
        f"{'; '.join(lines) or messages.said()}{more}",
        hint="use other operators in that place, or --option via=torch",
    )


def _line(error: Any) -> str:
    node, operator = error.node_name(), error.node_operator()
    reason = " ".join(error.desc().split())
    return f"node {node or '(unnamed)'} ({operator}): {reason}" if operator else reason


def network_dtypes(network: Any) -> dict[str, int]:
    """Return how many layers give each dtype: what is computed, as the graph asks for it."""
    counted: Counter[str] = Counter()
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        counted.update({dtype_name(layer.get_output(0).dtype)} if layer.num_outputs else ())
    return dict(sorted(counted.items()))


def refuse_shape_inputs(network: Any) -> None:
    """Refuse inputs whose values decide shapes: no range of them is known.

    Raises:
        ExportError: there is one.
    """
    for index in range(network.num_inputs):
        tensor = network.get_input(index)
        if tensor.is_shape_tensor:
            raise ExportError(
                f"the values of input {tensor.name!r} decide shapes, and a plan needs their range",
                hint="let the model take the sizes from its tensors' own shapes",
            )
