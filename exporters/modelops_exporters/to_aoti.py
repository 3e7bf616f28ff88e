"""AOTInductor: the model as machine code for this kind of machine, ``model.pt2``."""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
import threading
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from modelops.artifact.aoti_package import (
    AOTI_FORMAT,
    LIBRARY,
    METADATA,
    check_machine,
    check_package,
    release,
)
from modelops.artifact.manifest import Manifest
from modelops.errors import ExportError, MissingEnvironmentError, UsageError, VerificationError
from modelops.progress import Progress
from modelops.protocols import ExportedProgram, Written
from modelops.signature import Signature
from modelops_exporters.program_runtime import ProgramRuntime

ENTRY = "model.pt2"

_TICK_SECONDS = 5.0
_MARKS = {
    "archive_format": b"pt2",
    "archive_version": b"0",
    "byteorder": b"little",
    ".data/version": b"3\n",
    # Of random digits in PyTorch's own: nothing reads it back.
    ".data/serialization_id": b"0" * 40,
}
# "native" would be whatever this CPU is: these are defined, and what the manifest says of them.
_LEVELS = {"avx2": "x86-64-v3", "avx512": "x86-64-v4"}


class AotiExporter:
    """Compiles ``model.pt2``. Loading one runs code: such an artifact needs trust."""

    format = AOTI_FORMAT
    executable = True

    def write(
        self,
        exported: ExportedProgram,
        folder: Path,
        options: Mapping[str, Any],
        progress: Progress,
    ) -> Written:
        """Compile the program into ``folder``, for the CPU or GPU that it is on.

        Raises:
            UsageError: an ONNX opset was asked for.
            MissingEnvironmentError: there is no C++ compiler.
            ExportError: inductor cannot compile the model.
        """
        if options.get("opset") is not None:
            raise UsageError("--opset is ONNX's; an AOTInductor package has none")
        compiler = os.environ.get("CXX") or "g++"
        if shutil.which(compiler) is None:
            raise MissingEnvironmentError(
                f"AOTInductor compiles C++, and there is no {compiler} here",
                hint="apt-get install g++ (dnf install gcc-c++), or CXX=/path/to/g++",
            )
        import torch
        from torch._inductor.cpu_vec_isa import pick_vec_isa

        with tempfile.TemporaryDirectory(prefix="modelops-aoti-") as place:
            built = Path(place) / "built.pt2"
            with _building(Path(place), compiler) as settings, _ticking(progress):
                march = _LEVELS.get(str(pick_vec_isa()).partition(" ")[0])
                settings |= {"cpp.march": march} if march else {}
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # inductor's own deprecations
                        torch._inductor.aoti_compile_and_package(
                            exported.program, package_path=str(built), inductor_configs=settings
                        )
                except Exception as error:
                    raise ExportError(
                        f"AOTInductor cannot compile this model: {_first_line(error)}",
                        hint="--to onnx or --to torch-export need no compiler",
                    ) from error
            _make_canonical(built, folder / ENTRY)
        found = check_package(folder / ENTRY)
        return Written(
            entry=ENTRY,
            toolchain={"torch": version("torch")},
            requires=_requires(found, march or "native"),
            built={"package": found},
            notes=(
                "machine code: two compilations may differ in bytes, as the compiler, its headers "
                "and inductor's choices do",
            ),
        )

    def check(self, folder: Path, manifest: Manifest) -> list[str]:
        """Return what the package's own metadata says otherwise than the manifest."""
        found = check_package(folder / manifest.entry)
        asked = {"AOTI_DEVICE_KEY": "device", "AOTI_MACHINE": "machine"}
        asked |= {"AOTI_CPU_ISA": "instruction_set"} if found.get("AOTI_CPU_ISA") else {}
        return [
            f"the package says {key} {found.get(key)!r}, the manifest {manifest.requires.get(name)}"
            for key, name in asked.items()
            if found.get(key) != manifest.requires.get(name)
        ]

    def load(self, folder: Path, manifest: Manifest, *, threads: int | None = None) -> AotiRuntime:
        """Load it into PyTorch; the caller has made sure that it may run."""
        check_machine(manifest)
        check_package(folder / manifest.entry)
        return AotiRuntime(folder / manifest.entry, manifest.signature, threads)


class AotiRuntime(ProgramRuntime):
    """One loaded package, on the device that it was compiled for."""

    def __init__(self, path: Path, signature: Signature, threads: int | None = None) -> None:
        import torch
        import torch._inductor

        if threads:
            torch.set_num_threads(threads)
        try:
            model = torch._inductor.aoti_load_package(str(path))
        except RuntimeError as error:
            raise VerificationError(f"the package cannot be loaded: {error}") from error
        super().__init__(model, signature, "the package")


@contextmanager
def _building(place: Path, compiler: str) -> Iterator[dict[str, Any]]:
    """Yield inductor's settings for a compilation that leaves no path in what it makes."""
    import torch

    site = Path(torch.__file__).parents[1]
    wrapper = place / "g++"
    # The headers' asserts hold their own file names, and inductor takes no further flags.
    wrapper.write_text(
        f"#!/bin/sh\nexec {_quoted(compiler)} {_quoted(f'-ffile-prefix-map={place}=build')} "
        f'{_quoted(f"-ffile-prefix-map={site}=site")} "$@"\n',
        encoding="utf-8",
    )
    wrapper.chmod(0o700)
    variable, before = "TORCHINDUCTOR_CACHE_DIR", os.environ.get("TORCHINDUCTOR_CACHE_DIR")
    os.environ[variable] = str(place / "cache")
    try:
        yield {
            "cpp.cxx": (str(wrapper),),
            "aot_inductor.precompile_headers": False,
            "aot_inductor.enable_line_tables": False,
            "aot_inductor.model_name_for_generated_files": "model",
        }
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


@contextmanager
def _ticking(progress: Progress) -> Iterator[None]:
    """Say every few seconds that the compiler still works."""
    done, started = threading.Event(), time.monotonic()
    progress("compiling with AOTInductor")

    def tick() -> None:
        while not done.wait(_TICK_SECONDS):
            progress(f"compiling with AOTInductor, {time.monotonic() - started:.0f} s")

    thread = threading.Thread(target=tick, name="aoti-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def _make_canonical(built: Path, target: Path) -> None:
    """Keep the library and its metadata, under names and dates that are always the same.

    Inductor's C++ is left out: nothing loads it, and it begins with the command of its compiler.
    """
    with zipfile.ZipFile(built) as archive:
        libraries = [n for n in archive.namelist() if n.endswith(".so")]
        if len(libraries) != 1:
            raise ExportError(f"AOTInductor made {len(libraries)} libraries, not one")
        stem = libraries[0].removesuffix(".so")
        parts = {
            LIBRARY: archive.read(libraries[0]),
            METADATA: archive.read(f"{stem}_metadata.json"),
            **{"model/" + name: content for name, content in _MARKS.items()},
        }
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name), content)


def _requires(found: Mapping[str, str], march: str) -> dict[str, str]:
    device = found.get("AOTI_DEVICE_KEY", "cpu")
    requires = {
        "device": device,
        "machine": found.get("AOTI_MACHINE", platform.machine()),
        "instruction_set": found.get("AOTI_CPU_ISA", ""),
        "march": march,
        "torch": release(version("torch")),
    }
    if device == "cuda":
        import torch

        major, minor = torch.cuda.get_device_capability()
        requires["gpu_architecture"] = f"sm_{major}{minor}"
    return requires


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:600]
