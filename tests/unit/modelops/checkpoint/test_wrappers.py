"""C11: what real wrappers save in any nesting: torch.compile, DDP, DataParallel, averaging."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from modelops.checkpoint import load_weights, open_checkpoint

# torch's own, when torch.compile is imported
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is:DeprecationWarning")


class Holder(nn.Module):
    """A trainer's own module around the model, as Lightning users write it."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model


class Net(nn.Module):
    """It has a part called ``module``, which is none of a wrapper's."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))


@pytest.fixture(scope="module", autouse=True)
def one_rank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = dist.FileStore(str(tmp_path_factory.mktemp("rank") / "store"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def inner_compiled(model: Any) -> Any:
    model.first = torch.compile(model.first)
    return model


def inner_checkpointed(model: Any) -> Any:
    model.module = checkpoint_wrapper(model.module)
    return model


@pytest.mark.parametrize(
    "wrappers",
    [
        (DistributedDataParallel,),
        (torch.compile,),
        (torch.compile, DistributedDataParallel),
        (DistributedDataParallel, torch.compile),
        (torch.compile, DistributedDataParallel, torch.compile),
        (nn.DataParallel, torch.compile),
        (torch.compile, Holder),
        (Holder, DistributedDataParallel, torch.compile),
        (inner_compiled, DistributedDataParallel),
        (inner_checkpointed, torch.compile, Holder),
        (AveragedModel,),
    ],
    ids=lambda wrappers: "-".join(w.__name__ for w in wrappers),
)
def test_c11_a_real_wrappers_keys_fit_the_bare_model(
    tmp_path: Path, wrappers: tuple[Callable[[Any], Any], ...]
) -> None:
    torch.manual_seed(0)
    bare = Net()
    wanted = {name: value.clone() for name, value in bare.state_dict().items()}
    wrapped: Any = bare
    for wrap in wrappers:
        wrapped = wrap(wrapped)
    keys = wrapped.state_dict().keys()
    assert keys != wanted.keys()
    torch.save({"epoch": 1, "state_dict": wrapped.state_dict()}, tmp_path / "w.ckpt")
    model = Net()
    notes = load_weights(model, open_checkpoint(str(tmp_path / "w.ckpt")))
    assert all(torch.equal(value, wanted[name]) for name, value in model.state_dict().items())
    assert any("stripped the prefix" in note for note in notes)
