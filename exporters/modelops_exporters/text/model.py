"""Language models by transformers, from vetted tensors or a written folder: every name matched."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from modelops.errors import CheckpointError, ExportError, VerificationError
from modelops_exporters.text.source import Tensors

_SHOWN = 10


def architecture_of(config: Any) -> type[Any]:
    """Return the transformers class of a language model that continues text.

    Raises:
        ExportError: the config names none, or one that is no such model.
    """
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    names = config.architectures or []
    known = set(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values())
    found = next((n for n in names if n in known), None)
    if found is None:
        shown = ", ".join(names) or f"of type {config.model_type}, which names no architecture"
        raise ExportError(
            f"a model {shown} is no language model that continues text; known are "
            f"{len(known)} architectures of transformers {transformers.__version__}, such as "
            "LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and GemmaForCausalLM",
            hint="for encoders and classifiers: --to onnx",
        )
    made: type[Any] = getattr(transformers, found)
    return made


def build(config: Any, tensors: Tensors, dtype: torch.dtype, name: str) -> Any:
    """Return the model of ``config`` with ``tensors`` in it, every name matched, in eval().

    Raises:
        CheckpointError: a name is missing or unexpected, or a shape differs.
    """
    architecture = architecture_of(config)
    try:
        with quiet():
            model, found = architecture.from_pretrained(
                None, config=config, state_dict=tensors, dtype=dtype, output_loading_info=True
            )
    except (RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"{name} does not fit the {architecture.__name__} that its config describes: "
            f"{str(error).splitlines()[0][:300]}",
            hint="compare config.json with the one that was trained",
        ) from error
    if wrong := _misfits(found):
        raise CheckpointError(
            f"{name} does not fit the {architecture.__name__} that its config describes: {wrong}",
            hint="compare config.json with the one that was trained",
        )
    return model.eval()


def load(folder: Path) -> Any:
    """Return the model of a written folder, read anew from disk, in float32 and eval().

    Raises:
        VerificationError: transformers does not load it, or not whole.
    """
    import transformers

    known: Any = transformers.AutoModelForCausalLM
    try:
        with quiet():
            model, found = known.from_pretrained(
                folder,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                output_loading_info=True,
            )
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise VerificationError(
            f"the written folder does not load: {str(error).splitlines()[0][:300]}"
        ) from error
    if wrong := _misfits(found):
        raise VerificationError(f"the written folder does not load whole: {wrong}")
    return model.eval()


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars, load reports and deprecations off stderr."""
    import transformers

    logging: Any = transformers.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()


def _misfits(found: Any) -> str:
    parts = [
        _listed(found[key], what)
        for key, what in (
            ("missing_keys", "missing"),
            ("unexpected_keys", "unexpected"),
            ("mismatched_keys", "of another shape"),
        )
        if found[key]
    ]
    return "; ".join([*parts, *(str(e).splitlines()[0] for e in found.get("error_msgs") or [])])


def _listed(keys: Iterable[Any], what: str) -> str:
    names = sorted(k if isinstance(k, str) else str(k[0]) for k in keys)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{len(names)} {what}: {', '.join(names[:_SHOWN])}{more}"
