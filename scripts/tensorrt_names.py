"""Record which names TensorRT's bindings have, of 10.x and 11.x, as the bindings themselves say.

``make tensorrt-names`` runs it. Each wheel of the bindings (1 MB) is fetched and really imported;
the libraries that it is linked with (2 GB and a GPU's driver) are stood in for by empty ones, since
no function of theirs is called to list names.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

RECORD = Path(__file__).resolve().parents[1] / "tests" / "golden" / "tensorrt-names.json"
WHEELS = {
    "10.3.0": "tensorrt-cu12-bindings",
    "10.16.1.11": "tensorrt-cu12-bindings",
    "11.0.0.114": "tensorrt-cu13-bindings",
    "11.4.0.106": "tensorrt-cu13-bindings",
}
CUDA = "13.5.0"
LIBRARIES = ("nvinfer", "nvonnxparser", "nvinfer_plugin")
SYMBOLS = (
    "createInferBuilder_INTERNAL",
    "createInferRefitter_INTERNAL",
    "createInferRuntime_INTERNAL",
    "createNvOnnxParser_INTERNAL",
    "createNvOnnxParserRefitter_INTERNAL",
    "getBuilderPluginRegistry",
    "getNvOnnxParserVersion",
    "getPluginRegistry",
    "initLibNvInferPlugins",
)
LIST = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("tensorrt", sys.argv[1])
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
found = {n: getattr(module, n) for n in dir(module) if n[0].isupper()}
names = {
    n: sorted(a for a in dir(v) if not a.startswith("_"))
    for n, v in found.items()
    if isinstance(v, type)
}
print(json.dumps(names))
"""
LIST_CUDA = """
import json
from cuda.bindings import runtime
print(json.dumps(sorted(n for n in dir(runtime) if n.startswith(("cuda", "CUDA")))))
"""
# What nobody here builds networks by hand with, or writes plugins with.
LEFT_OUT = ("Plugin", "IPlugin", "Dims", "Permutation", "Weights")


def main() -> int:
    """Fetch, import, record."""
    record = {}
    for version, package in WHEELS.items():
        with tempfile.TemporaryDirectory() as work:
            record[version] = of_bindings(Path(work), package, version)
    with tempfile.TemporaryDirectory() as work:
        record[f"cuda-bindings {CUDA}"] = {"runtime": of_cuda(Path(work))}
    lines = []
    for version, classes in record.items():
        rows = [f'  {json.dumps(n)}: "{" ".join(names)}"' for n, names in sorted(classes.items())]
        lines.append(f" {json.dumps(version)}: {{\n" + ",\n".join(rows) + "\n }")
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"wrote {RECORD}")
    return 0


def of_bindings(work: Path, package: str, version: str) -> dict[str, list[str]]:
    """Return the names of one version's classes and enumerations."""
    pip("download", "--no-deps", "-d", str(work), f"{package}=={version}")
    with zipfile.ZipFile(next(work.glob("*.whl"))) as wheel:
        wheel.extract("tensorrt_bindings/tensorrt.so", work)
    source = work / "empty.c"
    source.write_text("".join(f"void *{symbol}(void) {{ return 0; }}\n" for symbol in SYMBOLS))
    for library in LIBRARIES:
        name = f"lib{library}.so.{version.partition('.')[0]}"
        link = ["gcc", "-shared", "-fPIC", f"-Wl,-soname,{name}", "-o", str(work / name)]
        subprocess.run([*link, str(source)], check=True)
    bindings = work / "tensorrt_bindings" / "tensorrt.so"
    found = subprocess.run(
        [sys.executable, "-c", LIST, str(bindings)],
        check=True,
        capture_output=True,
        env={"LD_LIBRARY_PATH": str(work)},
    )
    names: dict[str, list[str]] = json.loads(found.stdout)
    return {
        n: attributes
        for n, attributes in names.items()
        if not n.startswith(LEFT_OUT) and (n == "ILayer" or not n.endswith("Layer"))
    }


def of_cuda(work: Path) -> list[str]:
    """Return the functions that are called, of CUDA's runtime bindings."""
    pip("install", "--target", str(work), f"cuda-bindings=={CUDA}")
    found = subprocess.run(
        [sys.executable, "-c", LIST_CUDA],
        check=True,
        capture_output=True,
        env={"PYTHONPATH": str(work)},
    )
    names: list[str] = json.loads(found.stdout)
    return [
        n
        for n in names
        if n.startswith(("cudaMem", "cudaM", "cudaF", "cudaStream", "cudaGet"))
        or n == "cudaError_t"
    ]


def pip(*arguments: str) -> None:
    """Run pip quietly."""
    subprocess.run([sys.executable, "-m", "pip", "-q", *arguments], check=True)


if __name__ == "__main__":
    sys.exit(main())
