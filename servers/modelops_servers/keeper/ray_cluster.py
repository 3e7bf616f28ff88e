"""Workers that Ray starts, here and on other machines: what has to be there, and what is said."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from typing import TYPE_CHECKING

from modelops.errors import MissingEnvironmentError

if TYPE_CHECKING:
    from modelops.environments import EngineEnvironment

ADDRESS = "RAY_ADDRESS"
"""The variable that names a cluster; Ray reads it."""

_LOOK = "import importlib.util, sys; sys.exit(importlib.util.find_spec('ray') is None)"
_LOOK_SECONDS = 60


def lacking(environment: EngineEnvironment) -> MissingEnvironmentError | None:
    """Return that the engine's environment has no Ray; None where it has."""
    try:
        looked = subprocess.run(
            [str(environment.python), "-P", "-c", _LOOK],
            env=environment.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LOOK_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return MissingEnvironmentError(f"{environment.python} cannot be run: {error}")
    if looked.returncode == 0:
        return None
    hint = f"{environment.python} -m pip install ray"
    if environment.kind == "managed":
        # What modelops locked and tried stays as it is.
        hint = (
            "have one of your own: python -m venv llm && llm/bin/pip install "
            f"vllm=={environment.version} ray && modelops engine install vllm "
            "--python llm/bin/python"
        )
    return MissingEnvironmentError(
        f"Ray is to start the workers, and {environment.python} cannot import ray", hint=hint
    )


def variables(base: Mapping[str, str]) -> dict[str, str]:
    """Return what Ray is told beside its address.

    It looks for this machine's cluster in the folder for temporary files, and keeps sockets there;
    the engine's own folder holds neither, and its path is too long for them.
    """
    return {"RAY_TMPDIR": base.get("RAY_TMPDIR") or base.get("TMPDIR") or "/tmp"}  # noqa: S108


def note(base: Mapping[str, str], workers: int) -> str:
    """Return where the workers will be, for whoever starts them."""
    if address := base.get(ADDRESS):
        return f"Ray starts the {workers} workers in the cluster at {address} ({ADDRESS})"
    return (
        f"Ray starts the {workers} workers in this machine's cluster, or where there is none in "
        "one of this machine alone: `ray start --head --port 6379` here and `ray start --address "
        f"HOST:6379` on each other machine make one; {ADDRESS}=HOST:6379 names one elsewhere"
    )
