"""The manifest, ``modelops.json``: what an artifact is, whence it came, how it was proven."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from modelops.signature import Frozen, Signature

MANIFEST = "modelops.json"

# Fields that came later: where they say nothing, the bytes and digests are those of before.
_SAID_WHERE_KNOWN = {"requires", "built"}

Task = Literal[
    "tensor", "embedding", "text-classification", "token-classification", "text-generation"
]
Role = Literal["model", "evidence"]


def check_name(value: str) -> str:
    """Return ``value``; raise ValueError where it cannot be an artifact's name."""
    if not 0 < len(value) <= 128 or value in (".", "..") or set(value) & set("/\\"):
        raise ValueError(f"{value[:128]!r} is no name of an artifact")
    if not value.isprintable():
        raise ValueError("the name of an artifact holds a control character")
    return value


ArtifactName = Annotated[str, AfterValidator(check_name)]
"""What a model is called, and served as: one part of a path, printable."""


class Source(Frozen):
    """Where the weights came from; ``name`` is never a path of the exporting machine."""

    format: str
    name: str
    sha256: str
    factory: str | None = None
    revision: str | None = None


class Precision(Frozen):
    """The precision asked for, and that found in the written model."""

    asked: str
    found: str


class Tolerance(Frozen):
    """What may differ: ``|a − e| ≤ atol·rms(e) + rtol·|e|`` everywhere, and each row's cosine.

    ``rms(e)`` is of eager's whole output at that point, so that the tolerance has no unit: an
    output of probabilities near 1e-5 is held as tightly as one of logits near 10.
    """

    atol: float = Field(ge=0, allow_inf_nan=False)
    rtol: float = Field(ge=0, allow_inf_nan=False)
    min_cosine: float = Field(ge=-1, le=1)


class OutputParity(Frozen):
    """One output at one checked point; null where an output holds nothing to compare.

    ``max_rel`` is relative to the larger of ``|e|`` and ``rms(e)``; ``cosine`` is the worst row's.
    """

    output: str
    max_abs: float | None
    max_rel: float | None
    cosine: float | None
    passed: bool
    why: str | None = None


class ParityPoint(Frozen):
    """One comparison with eager: at which sizes, with which inputs, how each output fared.

    ``data`` are the user's own, of which the worst call is told.
    """

    label: str
    dims: dict[str, int]
    inputs: Literal["random", "realistic", "data"]
    padded: bool
    outputs: tuple[OutputParity, ...]

    @property
    def passed(self) -> bool:
        """Whether every output held."""
        return all(o.passed for o in self.outputs)


class Parity(Frozen):
    """The proof: policy, seed, memory budget in bytes, and every checked point."""

    tolerance: Tolerance
    seed: int
    memory_budget: int
    points: tuple[ParityPoint, ...]
    checks: tuple[str, ...] = ()
    """Further properties that were shown, such as "padding does not change an item's answer"."""

    @property
    def passed(self) -> bool:
        """Whether every point held; no point at all is no proof."""
        return bool(self.points) and all(p.passed for p in self.points)


class FileEntry(Frozen):
    """Size in bytes and hash of one file; ``role`` says whether it is run or only read."""

    size: int = Field(ge=0)
    sha256: str
    """Plain SHA-256 up to 64 MiB; beyond, SHA-256 over the SHA-256 of each 64 MiB leaf."""
    role: Role


class TextOptions(Frozen):
    """How text becomes tensors and back, for artifacts that carry a tokenizer."""

    max_tokens: int
    pooling: str | None = None
    normalized: bool | None = None
    labels: tuple[str, ...] = ()


class Manifest(Frozen):
    """One artifact version. ``digest`` covers what it computes, ``seal`` the manifest itself."""

    schema_version: Literal[1] = 1
    name: ArtifactName
    digest: str
    format: str
    task: Task
    entry: str
    signature: Signature
    source: Source
    toolchain: dict[str, str]
    precision: Precision
    opset: int | None = None
    quantization: dict[str, Any] | None = None
    requires: dict[str, str] = Field(default_factory=dict)
    """What a machine must be to run it: instruction set, GPU architecture, runtime version."""
    built: dict[str, Any] | None = None
    """What a compiled artifact says of itself, read back from it: dtypes, profiles, layers."""
    text: TextOptions | None = None
    executable: bool = False
    parity: Parity
    notes: tuple[str, ...] = ()
    files: dict[str, FileEntry]
    seal: str = ""

    def computed_digest(self) -> str:
        """SHA-256 over what the artifact computes: the same wherever and whenever exported."""
        return "sha256:" + _sha256_json(
            {
                **self.model_dump(mode="json", include=self._said()),
                "format": self.format,
                "task": self.task,
                "entry": self.entry,
                "signature": self.signature.model_dump(mode="json"),
                "precision": self.precision.model_dump(mode="json"),
                "opset": self.opset,
                "quantization": self.quantization,
                "text": self.text.model_dump(mode="json") if self.text else None,
                "files": {
                    path: entry.sha256
                    for path, entry in sorted(self.files.items())
                    if entry.role == "model"
                },
            }
        )

    def computed_seal(self) -> str:
        """SHA-256 over every other field, so that an edited manifest is noticed."""
        return _sha256_json({k: v for k, v in self.written().items() if k != "seal"})

    def written(self) -> dict[str, Any]:
        """Return what is written of it: what most artifacts do not have is left out where empty."""
        return self.model_dump(mode="json", exclude=_SAID_WHERE_KNOWN - self._said())

    def _said(self) -> set[str]:
        return {name for name in _SAID_WHERE_KNOWN if getattr(self, name)}

    def sealed(self) -> Manifest:
        """Return a copy whose digest and seal are those of its contents."""
        dated = self.model_copy(update={"digest": self.computed_digest()})
        return dated.model_copy(update={"seal": dated.computed_seal()})


def _sha256_json(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()
