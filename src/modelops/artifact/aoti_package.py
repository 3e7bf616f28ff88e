"""AOTInductor packages: machine code in a zip, looked at before any of it is loaded."""

from __future__ import annotations

import json
import platform
import stat
import zipfile
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

from modelops.artifact.manifest import Manifest
from modelops.errors import IntegrityError, MissingEnvironmentError

AOTI_FORMAT = "aoti"

_ROOT = "model/"
LIBRARY = _ROOT + "data/aotinductor/model/model.wrapper.so"
METADATA = _ROOT + "data/aotinductor/model/model.wrapper_metadata.json"
_MARKS = {
    _ROOT + name
    for name in (
        "archive_format",
        "archive_version",
        "byteorder",
        ".data/version",
        ".data/serialization_id",
    )
}
_LARGEST_MARK = 2**16

# What Linux calls the instructions that code compiled for a set of inductor's executes.
_FLAGS = {
    "AVX2": "avx2 fma f16c bmi1 bmi2",
    "AVX512": "avx2 fma f16c bmi1 bmi2 avx512f avx512dq avx512vl avx512bw avx512cd",
    "AVX512_VNNI": "avx512_vnni",
    "AMX_TILE": "amx_tile amx_int8 amx_bf16",
    "AVX512_BF16": "avx512_bf16",
    "ASIMD": "asimd",
}


def check_package(path: Path) -> dict[str, str]:
    """Return what the package says it was compiled for; nothing of it is unpacked to disk.

    Only the files that the exporter writes may be in it, each once, stored as it is.

    Raises:
        IntegrityError: it is no such package.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            names = [entry.filename for entry in entries]
            allowed = {LIBRARY, METADATA, *_MARKS}
            if strange := [name for name in names if name not in allowed]:
                raise IntegrityError(f"{path.name} holds {strange[0][:200]!r}, which is no part")
            if len(set(names)) != len(names) or set(names) < allowed:
                raise IntegrityError(f"{path.name} lacks a part of a package, or has one twice")
            for entry in entries:
                mode = entry.external_attr >> 16
                if stat.S_IFMT(mode) not in (0, stat.S_IFREG):
                    raise IntegrityError(f"{path.name}: {entry.filename} is a link or a device")
                if entry.compress_type != zipfile.ZIP_STORED or (
                    entry.filename != LIBRARY and entry.file_size > _LARGEST_MARK
                ):
                    raise IntegrityError(f"{path.name}: {entry.filename} is not as exported")
            if sum(entry.file_size for entry in entries) > path.stat().st_size:
                raise IntegrityError(f"{path.name}: its parts are larger than the file")
            found = json.loads(archive.read(METADATA))
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, RecursionError) as error:
        raise IntegrityError(f"{path.name} is no AOTInductor package: {error}") from error
    if not isinstance(found, dict) or not all(isinstance(v, str) for v in found.values()):
        raise IntegrityError(f"{path.name}: its metadata is not text by name")
    return found


def check_machine(manifest: Manifest) -> None:
    """Check that this machine can run what was compiled for another, or for itself.

    Raises:
        MissingEnvironmentError: another instruction set, GPU architecture or version of PyTorch.
    """
    requires = manifest.requires
    here = {"machine": platform.machine(), "torch": release(version("torch"))}
    wrong = [
        f"{name} {requires.get(name, 'unknown')}, and here it is {found}"
        for name, found in here.items()
        if requires.get(name) != found
    ]
    if requires.get("device") == "cuda":
        wrong += _gpu(requires)
    elif not wrong:
        asked = requires.get("instruction_set", "")
        flags = cpu_flags()
        known = [part in _FLAGS for part in asked.split()]
        lacking = [f for part in asked.split() for f in _FLAGS.get(part, "").split()]
        lacking = [flag for flag in lacking if flag not in flags]
        if lacking or not known or not all(known):
            wrong.append(
                f"the instruction set {asked or 'unknown'}, and this CPU has "
                f"{instruction_sets(flags)}"
                + (f" (it lacks {', '.join(dict.fromkeys(lacking))})" if lacking else "")
            )
    if wrong:
        raise MissingEnvironmentError(
            f"{manifest.name!r} was compiled for {'; '.join(wrong)}",
            hint="rebuild it on a machine of this kind: modelops export SOURCE --to aoti",
        )


def instruction_sets(flags: frozenset[str]) -> str:
    """Return the instruction sets that a CPU with ``flags`` has, by inductor's names."""
    found = [name for name, needed in _FLAGS.items() if flags.issuperset(needed.split())]
    return " ".join(found) or "none that is known"


def cpu_flags() -> frozenset[str]:
    """Return what the kernel says that this CPU can do."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return frozenset()
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def release(text: str) -> str:
    """Return a version without its build: ``2.9.0+cpu`` is ``2.9.0``."""
    return text.partition("+")[0]


def _gpu(requires: Mapping[str, str]) -> list[str]:
    import torch

    asked = requires.get("gpu_architecture", "unknown")
    if not torch.cuda.is_available():
        return [f"the GPU architecture {asked}, and here is no GPU that PyTorch can use"]
    major, minor = torch.cuda.get_device_capability()
    found = f"sm_{major}{minor}"
    return [] if found == asked else [f"the GPU architecture {asked}, and here it is {found}"]
