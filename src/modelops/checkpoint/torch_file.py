"""Files of ``torch.save``: scanned opcode by opcode, then loaded by torch as weights only."""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from modelops.checkpoint.constructors import is_allowed
from modelops.checkpoint.paths import open_regular
from modelops.checkpoint.pickle_machine import (
    MAX_PICKLE_BYTES,
    PickleContents,
    walk,
)
from modelops.checkpoint.sniff import Kind, sniff
from modelops.checkpoint.standins import ITEMSIZE, Opaque, TensorStub
from modelops.checkpoint.stored import restore
from modelops.checkpoint.trainers import lightning_classes
from modelops.checkpoint.zip_layout import read_archive, read_entry
from modelops.errors import CheckpointError, InputError, UnsafeInputError

RESAVE = (
    "where you trust the file, load it and save only its weights: "
    'torch.save(model.state_dict(), "weights.pt")'
)
_WHOLE = "it is a whole object, as torch.save(model) writes, and not its weights: "


@dataclass
class TorchScan:
    """What a torch file holds, told without running it; ``fault`` is why it must not be loaded."""

    kind: Kind
    root: Any = None
    globals: dict[str, None] = field(default_factory=dict)
    fault: InputError | None = None
    pickle_sha256: str = ""
    by_stand_ins: bool = False
    """It names harmless classes that no unpickler may be let loose on: see ``stored.restore``."""


def scan(path: Path, inert: frozenset[str] = frozenset()) -> TorchScan:
    """Scan a file of torch's, or any pickle, without running anything in it.

    ``inert`` are further globals that its format is known to name. They stay stand-ins: whoever
    allows them reads the tensors itself and never hands the pickle to an unpickler.

    Raises:
        CheckpointError: the file is damaged, or no such file.
    """
    with open_regular(path) as file:
        return scan_open(file, path, inert)


def scan_open(file: BinaryIO, path: Path, inert: frozenset[str] = frozenset()) -> TorchScan:
    """Do as ``scan`` does, on an open file."""
    kind = sniff(file)
    if kind == "zip":
        return _scan_zip(file, path, inert)
    if kind == "torch-legacy":
        return _scan_legacy(file, path)
    if kind == "pickle":
        return _scan_bare(file, path)
    raise CheckpointError(
        f"{path} is no file of torch.save: by its content it is {kind}", hint=_elsewhere(kind)
    )


def load(path: Path) -> Any:
    """Load what a scanned file holds, memory-mapped where its format allows.

    Raises:
        UnsafeInputError: it asks for more than plain tensors; nothing was run.
        CheckpointError: it is damaged.
    """
    import pickle
    import warnings

    import torch

    with open_regular(path) as file:
        scanned = scan_open(file, path)
        if scanned.fault:
            raise scanned.fault
        # Through the descriptor, so that what is loaded is the very file that was scanned
        # whatever happens to its name, and whatever that name ends with.
        name = f"/proc/self/fd/{file.fileno()}"
        try:
            if scanned.by_stand_ins:
                return restore(path, scanned.root)
            if scanned.kind == "zip":
                _same_pickle(name, path, scanned)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return torch.load(
                    name, map_location="cpu", weights_only=True, mmap=scanned.kind == "zip"
                )
        except pickle.UnpicklingError as error:
            reason = str(error).strip().splitlines()[-1][:300]
            raise UnsafeInputError(
                f"torch will not load {path} as weights only: {reason}", hint=RESAVE
            ) from error
        except InputError:
            raise
        except (Exception, RecursionError, MemoryError) as error:
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
            raise CheckpointError(f"{path} is damaged: {reason}", hint=RESAVE) from error


def fault_of(
    contents: PickleContents, path: Path, inert: frozenset[str] = frozenset()
) -> InputError | None:
    """Return why a pickle must not be loaded, or None; ``inert`` as for ``scan``."""
    refused = [n for n in contents.globals if not is_allowed(n) and n not in inert]
    if refused:
        shown = ", ".join(name[:200] for name in refused[:10])
        more = f" and {len(refused) - 10} more" if len(refused) > 10 else ""
        return UnsafeInputError(
            f"{path} asks to import {len(refused)} thing{'s' if len(refused) > 1 else ''} that no "
            f"plain weights need: {shown}{more}; nothing was run",
            hint=(_WHOLE if isinstance(contents.root, Opaque) else "") + RESAVE,
        )
    if contents.damage is not None:
        return CheckpointError(
            f"{path} is damaged or truncated: {contents.damage}",
            hint="fetch or save the file again",
        )
    if contents.unsupported:
        return CheckpointError(
            f"{path} is a pickle that torch's safe loader does not read (it uses "
            f"{', '.join(list(contents.unsupported)[:5])}, of a later or an odd protocol)",
            hint=RESAVE + " with the default pickle_protocol",
        )
    if contents.oddities:
        return UnsafeInputError(
            f"{path} holds what no torch.save of weights writes: "
            + "; ".join(list(contents.oddities)[:5]),
            hint=RESAVE,
        )
    return None


def _scan_zip(file: BinaryIO, path: Path, inert: frozenset[str]) -> TorchScan:
    archive = read_archive(file, path)
    if archive.kind == "torchscript":
        return TorchScan("zip", fault=_torchscript(path))
    if archive.kind == "pt2":
        return TorchScan("zip", fault=_pt2(file, path, archive.sizes))
    if archive.kind != "torch":
        pickles = [n for n in archive.sizes if n.endswith(".pkl")]
        if pickles:
            return TorchScan(
                "zip",
                fault=UnsafeInputError(
                    f"{path} holds pickles ({', '.join(pickles[:5])}) but not in the layout of "
                    "torch.save",
                    hint=RESAVE,
                ),
            )
        what = "a numpy .npz archive" if archive.kind == "npz" else "no archive of torch.save"
        if "model.weights.h5" in archive.sizes:
            what = "a Keras archive"
        raise CheckpointError(f"{path} is {what}", hint="save it as safetensors")
    others = [n for n in archive.sizes if n.endswith(".pkl") and n != f"{archive.prefix}/data.pkl"]
    data = read_entry(file, path, f"{archive.prefix}/data.pkl", MAX_PICKLE_BYTES)
    stream = io.BytesIO(data)
    contents = walk(stream, records=inert)
    inert |= lightning_classes(contents.root)
    fault = fault_of(contents, path, inert)
    if fault is None and others:
        fault = UnsafeInputError(
            f"{path} holds more pickles than torch.save writes: {', '.join(others[:5])}",
            hint=RESAVE,
        )
    if fault is None:
        for key, storage in contents.storages.items():
            held = archive.sizes.get(f"{archive.prefix}/data/{key}")
            if held is None:
                fault = CheckpointError(f"{path}: the data of storage {key[:100]!r} is missing")
            elif held != storage.numel * ITEMSIZE.get(storage.dtype, 1):
                fault = CheckpointError(
                    f"{path}: storage {key[:100]!r} should hold {storage.numel} × "
                    f"{storage.dtype}, but is {held} bytes long"
                )
    fault = fault or _misfit(contents.root, path)
    digest = hashlib.sha256(data).hexdigest()
    by_stand_ins = not inert.isdisjoint(contents.globals)
    return TorchScan("zip", contents.root, contents.globals, fault, digest, by_stand_ins)


def _scan_legacy(file: BinaryIO, path: Path) -> TorchScan:
    """Five pickles in a row (magic, protocol, system, object, keys), then the storages."""
    file.seek(0)
    parts: list[PickleContents] = []
    while len(parts) < 5 and not (parts and parts[-1].damage):
        parts.append(walk(file))
    wanted: dict[str, None] = {}
    fault: InputError | None = None
    for part in parts:
        wanted |= part.globals
        fault = fault or fault_of(part, path)
    if len(parts) < 5:
        return TorchScan("torch-legacy", globals=wanted, fault=fault)
    contents, keys = parts[3], parts[4].root
    if fault is None and (
        not isinstance(keys, list) or {str(k) for k in keys} != set(contents.storages)
    ):
        fault = CheckpointError(f"{path} is damaged: its storages are not those it lists")
    if fault is None:
        fault = _check_legacy_storages(file, path, contents, [str(k) for k in keys])
    if fault is None and _is_tar(file):
        fault = UnsafeInputError(f"{path} can be read both as a pickle and as a tar archive")
    file.seek(0)
    return TorchScan("torch-legacy", contents.root, wanted, fault or _misfit(contents.root, path))


def _check_legacy_storages(
    file: BinaryIO, path: Path, contents: PickleContents, keys: list[str]
) -> InputError | None:
    size = os.fstat(file.fileno()).st_size
    for key in keys:
        storage = contents.storages[key]
        if storage.dtype not in ITEMSIZE:
            return CheckpointError(
                f"{path} is in torch's format of before 1.6 and holds a dtype newer than that, "
                "which torch itself cannot read back",
                hint="torch.save it in the default format",
            )
        numel = int.from_bytes(file.read(8), "little")
        if numel != storage.numel:
            return CheckpointError(f"{path} is damaged: storage {key[:100]!r} has another size")
        end = file.tell() + numel * ITEMSIZE[storage.dtype]
        if end > size:
            return CheckpointError(f"{path} is truncated: it ends within storage {key[:100]!r}")
        file.seek(end)
    return None


def _scan_bare(file: BinaryIO, path: Path) -> TorchScan:
    contents = walk(file)
    fault = fault_of(contents, path) or CheckpointError(
        f"{path} is a plain pickle, not a file of torch.save, and holds no tensors", hint=RESAVE
    )
    return TorchScan("pickle", contents.root, contents.globals, fault)


def _same_pickle(name: str, path: Path, scanned: TorchScan) -> None:
    """Make sure that torch's own zip reader finds the very pickle that was scanned."""
    import torch

    found = torch._C.PyTorchFileReader(name).get_record("data.pkl")
    if hashlib.sha256(found).hexdigest() != scanned.pickle_sha256:
        raise UnsafeInputError(f"{path} shows torch another pickle than the one that was checked")


def _misfit(root: Any, path: Path) -> InputError | None:
    """Name a tensor that reaches outside its storage."""
    pending, seen = [("", root)], set()
    while pending:
        name, value = pending.pop()
        if isinstance(value, TensorStub):
            if not value.fits():
                return CheckpointError(f"{path}: tensor {name!r} reaches past the end of its data")
        elif isinstance(value, Mapping | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            pending += [(f"{name}.{k}"[-200:].lstrip("."), v) for k, v in items]
    return None


def _is_tar(file: BinaryIO) -> bool:
    file.seek(0)
    try:
        return tarfile.is_tarfile(file)
    except Exception:  # noqa: BLE001 whatever a hostile header provokes, it is no tar
        return False
    finally:
        file.seek(0)


def _torchscript(path: Path) -> InputError:
    return UnsafeInputError(
        f"{path} is a TorchScript archive, which is a program and not only weights",
        hint="where you trust it: torch.save(torch.jit.load(path).state_dict(), 'weights.pt')",
    )


def _pt2(file: BinaryIO, path: Path, sizes: Mapping[str, int]) -> InputError:
    pickled = [n for n in sizes if n.endswith((".pt", ".pkl", ".pickle"))]
    for name in (n for n in sizes if n.endswith(".json") and sizes[n] <= 64 << 20):
        text = read_entry(file, path, name, 64 << 20).replace(b" ", b"")
        if b'"use_pickle":true' in text:
            pickled.append(name)
    asks = f", and its content asks for pickle ({', '.join(pickled[:5])})" if pickled else ""
    return UnsafeInputError(
        f"{path} is a torch.export archive, which is executable code{asks}",
        hint="give the checkpoint that it was exported from; an artifact of modelops is served, "
        "and verified, by its folder",
    )


def _elsewhere(kind: Kind) -> str:
    hints = {
        "gguf": "a whole GGUF file, given by its path, becomes a text artifact: --to vllm",
        "hdf5": "convert it to safetensors first",
        "tar": "files of torch before 0.1.10, and .nemo archives, must be unpacked and re-saved",
    }
    return hints.get(kind, "a checkpoint is a safetensors file or a file of torch.save")
