"""C3: a torch.export archive, taken as a source only where its digest is trusted."""

from __future__ import annotations

import shutil
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from modelops.api.trust import remove_trust, trust_artifact
from modelops.checkpoint import inspect_checkpoint, load_weights, open_checkpoint
from modelops.errors import CheckpointError, InputError, UnsafeInputError


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(3, 3, bias=False)
        self.second = torch.nn.Linear(3, 3, dtype=torch.float32)
        self.second.weight = self.first.weight
        self.register_buffer("count", torch.tensor([3, 4]))
        self.register_buffer("made", torch.ones(3), persistent=False)
        self.narrow = torch.nn.Parameter(torch.ones(2, 3).to(torch.bfloat16).t())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        total = self.count.sum() + self.narrow.float().sum() + self.made.sum()
        return self.second(self.first(x)) + total


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Tied]:
    torch.manual_seed(0)
    path, model = tmp_path_factory.mktemp("exported") / "tied.pt2", Tied()
    exported = torch.export.export(model, (torch.ones(1, 3),))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No complete tensor found")  # of the transposed weight
        torch.export.save(exported, path)
    return path, model


def test_it_is_refused_until_it_is_trusted(program: tuple[Path, Tied], tmp_path: Path) -> None:
    source, model = program
    path = Path(shutil.copy(source, tmp_path / "renamed.pt"))
    with pytest.raises(UnsafeInputError, match=r"executable code, and sha256:\w+ is not") as caught:
        open_checkpoint(str(path))
    assert f"modelops trust {path}" in (caught.value.hint or "")
    seen = inspect_checkpoint(str(path))
    assert (seen.format, seen.trainer) == ("pt2", "torch.export")
    assert seen.refused == caught.value.message
    assert {t.name: t.shape for t in seen.tensors} == {
        key: tuple(value.shape) for key, value in model.state_dict().items()
    }

    decision = trust_artifact(path)
    assert (decision.format, decision.already) == ("pt2", False)
    assert inspect_checkpoint(str(path)).refused is None
    checkpoint = open_checkpoint(str(path))
    assert checkpoint.format == "pt2"
    found = checkpoint.tensors()
    for key, value in model.state_dict().items():
        assert found[key].dtype == value.dtype
        assert torch.equal(found[key], value), key
    again = Tied()
    load_weights(again, checkpoint)
    assert torch.equal(again(torch.ones(1, 3)), model(torch.ones(1, 3)))

    assert remove_trust(str(path)) == decision.digest
    with pytest.raises(UnsafeInputError):
        open_checkpoint(str(path))


def changed(path: Path, out: Path, edit: Callable[[str, bytes], bytes]) -> Path:
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w") as new:
        for name in old.namelist():
            new.writestr(name, edit(name, old.read(name)))
    return out


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (b'"use_pickle": false', b'"use_pickle": true', "asks for pickle"),
        (b'"dtype": 7', b'"dtype": 77', "not described"),
        (b'{"as_int": 3}', b'{"as_int": 300}', "past the end"),
        (b'"weight_0"', b'"../weight_0"', "not described"),
        (b'"config"', b'"other"', "no list of weights"),
    ],
)
def test_c3_what_its_list_of_weights_must_not_say(
    program: tuple[Path, Tied], tmp_path: Path, old: bytes, new: bytes, told: str
) -> None:
    def edit(name: str, data: bytes) -> bytes:
        return data.replace(old, new) if name.endswith("weights_config.json") else data

    path = changed(program[0], tmp_path / "changed.pt2", edit)
    trust_artifact(path)
    with pytest.raises((UnsafeInputError, CheckpointError), match=told) as caught:
        open_checkpoint(str(path))
    assert caught.value.exit_code == 3


def test_only_an_archive_of_torch_export_is_trusted_as_a_file(tmp_path: Path) -> None:
    torch.save({"w": torch.ones(2)}, tmp_path / "w.pt")
    with pytest.raises(InputError, match=r"no torch\.export archive"):
        trust_artifact(tmp_path / "w.pt")
