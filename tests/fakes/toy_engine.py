"""An engine small enough to be installed in a test: wheels made here, no network, real pip."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from modelops.environments import catalogue
from modelops.environments.catalogue import Build, Engine, Lock

_PROBE = """
import json
import sys
import toydep
import toyengine
def tell(step, **what):
    print("\\n" + json.dumps({"step": step} | what), flush=True)
tell("importing toyengine")
tell("version", fact=toyengine.VERSION)
tell("platform", fact=toyengine.PLATFORM)
tell("flags", fact={"--level": ["low", "high"], "--name": None})
"""


def wheel(folder: Path, name: str, version: str, files: Mapping[str, str]) -> str:
    """Write a wheel of ``files`` into ``folder`` and return its SHA-256."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    held = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: toy\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    lines = []
    for path, text in held.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=")
        lines.append(f"{path},sha256={digest.decode()},{len(text.encode())}")
    held[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,"]) + "\n"
    file = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(file, "w") as archive:
        for path, text in held.items():
            archive.writestr(zipfile.ZipInfo(path), text)
    return hashlib.sha256(file.read_bytes()).hexdigest()


def lock(path: Path, pins: Mapping[str, str], pythons: str = "") -> Path:
    """Write a lock of ``pins``, from ``name==version`` to SHA-256."""
    ours = pythons or f"{sys.version_info[0]}.{sys.version_info[1]}"
    head = ["# toy", "# platform: linux x86_64", f"# pythons: {ours}", "# glibc: 2.5"]
    head.append("# download: 1000")
    lines = [f"{pin} \\\n    --hash=sha256:{digest}" for pin, digest in pins.items()]
    path.write_text("\n".join([*head, *lines]) + "\n")
    return path


def mend(site: Path, build: Build) -> tuple[str, ...]:
    """Leave a file, as a repair does."""
    (site / "mended.txt").write_text(build.name)
    return ("mended",)


class Toy:
    """The engine ``toy`` in ``folder``: builds ``fast`` (needs a GPU), ``best`` and ``plain``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels = folder / "wheels"
        self.probe = folder / "probe_toy.py"
        dep = wheel(self.wheels, "toydep", "2.0", {"toydep/__init__.py": "value = 1\n"})
        code = "VERSION = '1.0'\nPLATFORM = 'cpu'\n"
        files = {"toyengine/__init__.py": code, "toyengine/part.py": "part = 1\n"}
        main = wheel(self.wheels, "toyengine", "1.0", files)
        self.probe.write_text(_PROBE)
        self.pins = {"toyengine==1.0": main, "toydep==2.0": dep}
        self.plain = lock(folder / "plain.txt", self.pins)
        self.best = folder / "best.txt"

    def engine(self) -> Engine:
        """Return the engine as it would stand in the catalogue."""
        plain = Build(
            name="plain",
            about="the plain build",
            distribution="toyengine",
            version="1.0",
            platform="cpu",
            gpu=False,
            locks=(Lock(self.plain),),
            disk_bytes=1000,
        )
        best = replace(plain, name="best", about="the best build", locks=(Lock(self.best),))
        fast = replace(plain, name="fast", about="the fast build", gpu=True)
        return Engine("toy", "a toy", (fast, best, plain), self.probe, mend, {"TOY": "1"})

    def register(self) -> None:
        """Put the engine into this process's catalogue."""
        catalogue.ENGINES["toy"] = self.engine()

    def variables(self, **more: str) -> dict[str, str]:
        """Return what pip needs to find the wheels and nothing else."""
        return {
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_EXTRA_INDEX_URL": "",
            **more,
        }

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of ``modelops`` in a process that knows the engine."""
        code = (
            f"import sys; sys.path.append({str(Path(__file__).parent)!r}); import pathlib\n"
            "import toy_engine; from modelops.cli.main import main\n"
            f"toy = toy_engine.Toy.__new__(toy_engine.Toy); toy.__dict__.update({self._state()})\n"
            f"toy.register(); main({json.dumps(arguments)})"
        )
        return [sys.executable, "-c", code]

    def _state(self) -> str:
        paths = ("folder", "wheels", "probe", "plain", "best")
        items = ", ".join(f"{n!r}: pathlib.Path({str(getattr(self, n))!r})" for n in paths)
        return "{" + items + "}"
