"""Peers in environments of their own, made on first use beside the one that runs this."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from gateway.processes import note

_PINS = {
    # Its workers ask uvloop for an event loop in a way that 0.22 no longer answers.
    "mlserver": ("mlserver==1.7.1", "uvloop==0.21.0"),
    "litserve": ("litserve==0.2.19", "uvloop", "httptools"),
    # Some releases of it were malicious (1.82.7, 1.82.8): never a newer one without a look.
    "litellm": ("litellm[proxy]==1.98.1",),
    "vllm-router": ("vllm-router==0.1.17",),
    "guidellm": ("guidellm==0.8.1",),
}
_RUN_ONNX = ("mlserver", "litserve")
_SHOWN = ("uvicorn", "fastapi", "starlette", "pydantic", "uvloop", "httptools", "orjson", "numpy")


def python_of(peer: str) -> Path:
    """Return the interpreter of the peer's environment; install it where it is not there."""
    pins = list(_PINS[peer])
    if peer in _RUN_ONNX:
        pins.append(f"onnxruntime=={version('onnxruntime')}")
    # Not below benchmarks/: what looks through the sources would find theirs.
    place = Path(sys.prefix) / "peers" / peer
    stamp = place / ".installed"
    python = place / "bin" / "python"
    if not stamp.exists() or stamp.read_text() != "\n".join(pins):
        note(f"installing {', '.join(pins)} into {place} (once)")
        stamp.unlink(missing_ok=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-qq"]
        if subprocess.run([*pip, *pins], check=False).returncode:
            raise SystemExit(f"{peer} could not be installed; leave it out with --without {peer}")
        stamp.write_text("\n".join(pins))
    return python


def versions(python: Path | str, *packages: str) -> dict[str, str]:
    """Return the versions installed beside an interpreter, of ``packages`` and what they run on."""
    code = (
        "import json, sys\n"
        "from importlib import metadata\n"
        "found = {}\n"
        "for name in sys.argv[1:]:\n"
        "    try: found[name] = metadata.version(name)\n"
        "    except metadata.PackageNotFoundError: pass\n"
        "print(json.dumps(found))"
    )
    command = [str(python), "-c", code, *packages, "onnxruntime", *_SHOWN]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found
