"""Let the trainers write the checkpoints that the tests read: ``tests/golden/checkpoints``.

It makes an environment of their own beside the project's torch (.venv/trainers), trains a tiny
model for two steps on two ranks (gloo), and keeps what was saved, the weights that must come out,
and the versions. ``-o DIR`` writes elsewhere. Needs the network the first time.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRAINERS = Path(__file__).resolve().parent / "trainers"
GOLDEN = ROOT / "tests" / "golden" / "checkpoints"
PACKAGES = ("deepspeed==0.19.8", "lightning==2.6.6")
RUNS = {1: "bf16", 2: "fp32", 3: "fp32"}
# DeepSpeed copies its own converters into each folder.
EXTRA = ("zero_to_fp32.py", "zero_to_torch.py")


def main() -> None:
    """Make all of them, then replace those that are there."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", dest="out", type=Path, default=GOLDEN)
    out = parser.parse_args().out
    python = environment(ROOT / ".venv" / "trainers")
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "run"
        made.mkdir()
        for stage, precision in RUNS.items():
            deepspeed(python, made / f"deepspeed-zero{stage}", stage, precision)
        run([python, str(TRAINERS / "lightning_run.py"), str(made)])
        for path in made.glob("*.callback"):
            shutil.rmtree(path)
        (made / "versions.json").write_text(json.dumps(versions(python), indent=2) + "\n")
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.copytree(made, out)
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    print(f"{out}: {size / 1000:.0f} kB")


def environment(folder: Path) -> str:
    """Return a Python that has the trainers, and torch and the rest from the project's .venv."""
    python = folder / "bin" / "python"
    stamp = folder / "trainers.txt"
    if stamp.is_file() and stamp.read_text() == " ".join(PACKAGES):
        return str(python)
    venv.create(folder, clear=True, with_pip=True)
    inside = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = Path(subprocess.check_output(inside, text=True).strip())
    (site / "project.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    # The project's own is newer, and builds wheels.
    subprocess.run([*pip, "uninstall", "-qy", "setuptools"], check=True)
    subprocess.run(
        [*pip, "install", "-q", "--no-build-isolation", *PACKAGES],
        check=True,
        env=os.environ | {"DS_BUILD_OPS": "0"},
    )
    stamp.write_text(" ".join(PACKAGES))
    return str(python)


def deepspeed(python: str, folder: Path, stage: int, precision: str) -> None:
    """Run two ranks; ``folder`` and ``folder.safetensors`` are what they leave."""
    torchrun = [python, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    run([*torchrun, str(TRAINERS / "deepspeed_run.py"), str(folder), str(stage), precision])
    for name in EXTRA:
        (folder / name).unlink(missing_ok=True)


def run(command: list[str]) -> None:
    """Run one trainer with one thread, its talk kept for the case that it fails."""
    quiet = {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=os.environ | quiet, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
        raise SystemExit(f"{' '.join(command)} failed ({done.returncode})")


def versions(python: str) -> dict[str, str]:
    """Return the versions that wrote the files."""
    ask = (
        "import json, platform; from importlib.metadata import version as v; "
        "print(json.dumps({'python': platform.python_version()} | "
        "{n: v(n) for n in ('torch', 'deepspeed', 'lightning')}))"
    )
    return dict(json.loads(subprocess.check_output([python, "-c", ask], text=True)))


if __name__ == "__main__":
    main()
