"""One build: a graph, the shapes it is for and the options in, a plan out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from modelops.errors import ExportError, InputError
from modelops.progress import Progress
from modelops.tensorrt import Messages, listen
from modelops_exporters.trt.options import TensorRTOptions
from modelops_exporters.trt.parsing import (
    create_network,
    network_dtypes,
    parse,
    refuse_shape_inputs,
)
from modelops_exporters.trt.profiles import InputShapes
from modelops_exporters.trt.watching import watch


@dataclass(frozen=True)
class Built:
    """A plan, how many layers of its network give each dtype, and what TensorRT warned of."""

    plan: bytes
    dtypes: dict[str, int]
    layers: int
    warnings: tuple[str, ...]


def build(
    trt: Any,
    graph: Path,
    shapes: Mapping[str, InputShapes],
    options: TensorRTOptions,
    progress: Progress,
) -> Built:
    """Build a plan with the bindings ``trt``.

    Raises:
        ExportError: TensorRT refuses the graph or the shapes, or fails to build; never None.
        InputError: the timing cache cannot be read or written.
    """
    messages = listen(trt)
    builder = trt.Builder(messages.logger)
    network = create_network(trt, builder)
    progress("parsing the graph")
    parse(trt, network, graph, messages)
    refuse_shape_inputs(network)
    config = builder.create_builder_config()
    _settle(trt, config, options)
    _add_profile(builder, config, network, shapes, messages)
    if options.timing_cache is not None:
        _use_cache(config, options.timing_cache, messages)
    monitor = watch(trt, progress)
    config.progress_monitor = monitor
    dtypes, layers = network_dtypes(network), network.num_layers
    messages.forget()
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ExportError(f"TensorRT {trt.__version__} builds no plan: {messages.said()}")
    if options.timing_cache is not None:
        _keep_cache(config, options.timing_cache)
    return Built(bytes(plan), dtypes, layers, tuple(dict.fromkeys(messages.warnings)))


def _settle(trt: Any, config: Any, options: TensorRTOptions) -> None:
    for flag, wanted in (
        (trt.BuilderFlag.TF32, options.tf32),
        (trt.BuilderFlag.VERSION_COMPATIBLE, options.version_compatible),
        (trt.BuilderFlag.WEIGHT_STREAMING, options.weight_streaming),
    ):
        (config.set_flag if wanted else config.clear_flag)(flag)
    if options.optimization_level is not None:
        config.builder_optimization_level = options.optimization_level
    if options.workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace)
    if options.hardware_compatibility:
        config.hardware_compatibility_level = trt.HardwareCompatibilityLevel.AMPERE_PLUS
    # Without it the plan does not tell the dtypes of its layers, which are read back.
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED


def _add_profile(
    builder: Any,
    config: Any,
    network: Any,
    shapes: Mapping[str, InputShapes],
    messages: Messages,
) -> None:
    messages.forget()
    profile = builder.create_optimization_profile()
    for index in range(network.num_inputs):
        name = network.get_input(index).name
        wanted = shapes.get(name)
        if wanted is None:
            raise ExportError(f"the graph has an input {name!r} that the model does not have")
        profile.set_shape(name, wanted.min, wanted.opt, wanted.max)
    if config.add_optimization_profile(profile) < 0:
        raise ExportError(f"TensorRT does not take the shapes: {messages.said()}")


def _use_cache(config: Any, path: Path, messages: Messages) -> None:
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise InputError(f"the timing cache {path} cannot be read: {error.strerror}") from error
    messages.forget()
    cache = config.create_timing_cache(content)
    # One of another GPU or version is refused: what it says would not be true here.
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        raise InputError(
            f"the timing cache {path} is not of this TensorRT and GPU: {messages.said()}",
            hint="name another file, or remove it",
        )


def _keep_cache(config: Any, path: Path) -> None:
    cache = config.get_timing_cache()
    if cache is None:
        return
    partial = path.with_name(path.name + ".partial")
    try:
        partial.write_bytes(bytes(cache.serialize()))
        partial.replace(path)
    except OSError as error:
        raise InputError(f"the timing cache {path} cannot be written: {error.strerror}") from error
