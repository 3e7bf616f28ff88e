"""Targets, engines and scenarios by name, resolved only when used.

Third parties join by an entry point in the group ``modelops.exporters``,
``modelops.engines`` or ``modelops.scenarios``.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, Literal

from modelops.errors import MissingEnvironmentError, UsageError

Kind = Literal["exporters", "engines", "scenarios"]

_BUILT_IN: dict[Kind, dict[str, str]] = {
    "exporters": {
        "onnx": "modelops_exporters.to_onnx:OnnxExporter",
        "torch-export": "modelops_exporters.to_torch_export:TorchExportExporter",
        "aoti": "modelops_exporters.to_aoti:AotiExporter",
        "tensorrt": "modelops_exporters.to_tensorrt:TensorRTExporter",
        "vllm": "modelops_exporters.text.to_huggingface:HuggingFaceExporter",
        # By the name of its format too: what is exported for vLLM is what other engines take.
        "huggingface": "modelops_exporters.text.to_huggingface:HuggingFaceExporter",
    },
    "engines": {
        "onnxruntime": "modelops_servers.engines.onnxruntime_engine:OnnxRuntimeEngine",
        "openai": "modelops_servers.keeper.seat:OpenAIServer",
        "torch": "modelops_servers.engines.torch_engine:TorchEngine",
        "tensorrt": "modelops_servers.engines.tensorrt_engine:TensorRTEngine",
        "vllm": "modelops_servers.keeper.seat:Vllm",
    },
    "scenarios": {
        "chat": "modelops_loadtests.scenarios.chat:ChatScenario",
        "completion": "modelops_loadtests.scenarios.completion:CompletionScenario",
        "embeddings": "modelops_loadtests.scenarios.embeddings:EmbeddingsScenario",
        "tensors": "modelops_loadtests.scenarios.tensors:TensorsScenario",
    },
}
_EXTRA = {"exporters": "export", "engines": "serve", "scenarios": "loadtest"}


def names(kind: Kind) -> list[str]:
    """Return every registered name of ``kind``, built in or from an installed package."""
    return sorted({*_BUILT_IN[kind], *(e.name for e in entry_points(group=f"modelops.{kind}"))})


def resolve(kind: Kind, name: str) -> Any:
    """Import and return what is registered as ``name``.

    Raises:
        UsageError: nothing is registered under this name.
        MissingEnvironmentError: it is, but what it imports is not installed.
    """
    target = _BUILT_IN[kind].get(name)
    if target is None:
        target = next((e.value for e in entry_points(group=f"modelops.{kind}", name=name)), None)
    if target is None:
        raise UsageError(f"no {kind[:-1]} named {name!r}", hint="one of: " + ", ".join(names(kind)))
    return load(target, extra=_EXTRA[kind])


def load(target: str, *, extra: str) -> Any:
    """Import ``module:attribute``; where a dependency is missing, say which extra brings it.

    Raises:
        MissingEnvironmentError: a module that it imports is not installed.
    """
    module, _, attribute = target.partition(":")
    try:
        return getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        raise MissingEnvironmentError(
            f"{module} needs {error.name!r}, which is not installed here",
            hint=f'pip install "modelops[{extra}]"',
        ) from error
