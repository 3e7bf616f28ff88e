"""Which trainer wrote a training dict, and how far it had come, by the keys that it leaves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

COUNTERS = (
    "step",
    "global_step",
    "global_steps",
    "epoch",
    "iteration",
    "iter",
    "num_updates",
    "best_metric",
)

# Lightning's own containers of hyperparameters, and the callbacks by whose classes its releases
# before 1.5 named their states. They hold nothing that a weight needs.
_LIGHTNING = frozenset(
    {
        *(
            f"{package}.{name}"
            for package in ("pytorch_lightning", "lightning.pytorch")
            for name in (
                "utilities.parsing.AttributeDict",
                "callbacks.model_checkpoint.ModelCheckpoint",
                "callbacks.early_stopping.EarlyStopping",
                "callbacks.lr_monitor.LearningRateMonitor",
                "callbacks.progress.ProgressBar",
                "callbacks.timer.Timer",
                "callbacks.base.Callback",
            )
        ),
        "lightning.fabric.utilities.data.AttributeDict",
        "lightning_fabric.utilities.data.AttributeDict",
        "pytorch_lightning.utilities.data.AttributeDict",
    }
)
_LIGHTNING_VERSION = "pytorch-lightning_version"


def lightning_classes(root: Any) -> frozenset[str]:
    """Return the classes that a checkpoint of Lightning's may name; none for any other."""
    held = isinstance(root, Mapping) and isinstance(root.get(_LIGHTNING_VERSION), str)
    return _LIGHTNING if held else frozenset()


def progress_of(root: Mapping[Any, Any]) -> dict[str, int | float]:
    """Return the step, the epoch and the like, where they are numbers."""
    return {
        key: value
        for key in COUNTERS
        if isinstance(value := root.get(key), int | float) and abs(value) < 1 << 63
    }


def trainer_of(root: Mapping[Any, Any]) -> str | None:
    """Name the trainer, with its version where it is there."""
    keys = root.keys()
    if _LIGHTNING_VERSION in keys:
        return _named("PyTorch Lightning", root[_LIGHTNING_VERSION])
    if {"ds_config", "ds_version"} & keys:
        return _named("DeepSpeed", root.get("ds_version"))
    if {"cfg", "model", "optimizer_history"} <= keys:
        return "fairseq"
    if {"train_args", "ema", "updates"} <= keys:
        return "Ultralytics"
    if {"meta", "state_dict"} <= keys:
        return "OpenMMLab"
    if {"args", "checkpoint_version", "iteration"} <= keys:
        return "Megatron-LM"
    return None


def _named(trainer: str, version: Any) -> str:
    return f"{trainer} {version[:40]}" if isinstance(version, str) and version else trainer
