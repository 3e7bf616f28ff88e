"""Train with Lightning for two steps and save; the argument is the folder to write into."""

from __future__ import annotations

import sys
import warnings
from enum import Enum
from pathlib import Path
from typing import Any

import torch
from lightning import LightningModule, Trainer
from lightning.fabric.utilities.data import AttributeDict
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from net import Net, batch
from safetensors.torch import save_file
from torch import nn
from torch.utils.data import DataLoader


class Kind(Enum):
    """A hyperparameter whose class is the trainer's own."""

    WARM = "warm"


class Module(LightningModule):
    """The net as Lightning wants it, with hyperparameters of any kind."""

    def __init__(self, **_: Any) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.model = Net()

    def training_step(self, item: Any, _: int) -> torch.Tensor:
        """Return the loss of one batch."""
        ids, wanted = item
        loss = nn.functional.cross_entropy(self.model(ids), wanted)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        """Return an optimizer and a schedule, whose states are saved as well."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


def main(folder: Path) -> None:
    """Write a plain checkpoint, its weights, and one whose hyperparameters name foreign code."""
    warnings.simplefilter("ignore")
    weights = train(folder / "lightning.ckpt", lr=0.01, layers=[1, 2], data=AttributeDict(dim=6))
    save_file(weights, folder / "lightning.safetensors")
    train(folder / "lightning-enum.ckpt", lr=0.01, kind=Kind.WARM)


def train(path: Path, **hyperparameters: Any) -> dict[str, torch.Tensor]:
    """Fit for two steps, save to ``path``, and return the state dict."""
    torch.manual_seed(0)
    module = Module(**hyperparameters)
    keep = ModelCheckpoint(dirpath=path.with_suffix(".callback"), monitor="loss", mode="min")
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=2,
        callbacks=[keep, EarlyStopping("loss")],
        default_root_dir=path.parent,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
    )
    trainer.fit(module, DataLoader([batch(0)], batch_size=None))
    trainer.save_checkpoint(path)
    return {k: v.detach().clone() for k, v in module.state_dict().items()}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
