"""Inert stand-ins for what a pickle would build: they describe, they never act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Global:
    """A class or function that the pickle asks for by name; it is never imported."""

    module: str
    name: str

    @property
    def path(self) -> str:
        """The dotted path, as an import statement would spell it."""
        return f"{self.module}.{self.name}"


@dataclass(frozen=True, slots=True)
class StorageStub:
    """A run of ``numel`` elements kept outside the pickle under ``key``."""

    dtype: str
    key: str
    numel: int


@dataclass(frozen=True, slots=True)
class TensorStub:
    """A strided view of a storage; offset and stride count elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    storage: StorageStub

    def fits(self) -> bool:
        """Whether every element lies inside the storage."""
        if any(size == 0 for size in self.shape):
            return True
        last = sum((n - 1) * step for n, step in zip(self.shape, self.stride, strict=True))
        return self.offset + last < self.storage_numel()

    def storage_numel(self) -> int:
        """Length of the storage in elements of this tensor's dtype (it may be kept as bytes)."""
        if self.storage.dtype == "bytes":
            return self.storage.numel // ITEMSIZE[self.dtype]
        return self.storage.numel


@dataclass(frozen=True, slots=True)
class Opaque:
    """An object that some global would have made."""

    made_by: str


@dataclass(eq=False, slots=True)
class Record:
    """An object whose class is known and not needed: what it was made of, and its state.

    It is equal to itself alone, so that it may be a dict's key whatever it holds.
    """

    made_by: str
    args: tuple[Any, ...] = ()
    state: Any = None

    def field(self, name: str) -> Any:
        """Return one attribute that its state would have set; None where it has none."""
        return self.state.get(name) if isinstance(self.state, dict) else None


ITEMSIZE = {
    "bool": 1,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "float16": 2,
    "bfloat16": 2,
    "float32": 4,
    "float64": 8,
    "complex32": 4,
    "complex64": 8,
    "complex128": 16,
    "float8_e4m3fn": 1,
    "float8_e4m3fnuz": 1,
    "float8_e5m2": 1,
    "float8_e5m2fnuz": 1,
    "float8_e8m0fnu": 1,
}

STORAGE_DTYPES = {
    "ByteStorage": "uint8",
    "CharStorage": "int8",
    "ShortStorage": "int16",
    "IntStorage": "int32",
    "LongStorage": "int64",
    "HalfStorage": "float16",
    "BFloat16Storage": "bfloat16",
    "FloatStorage": "float32",
    "DoubleStorage": "float64",
    "BoolStorage": "bool",
    "ComplexFloatStorage": "complex64",
    "ComplexDoubleStorage": "complex128",
    "UntypedStorage": "bytes",
}


def is_plain(value: Any) -> bool:
    """Whether a value is a scalar, or a flat tuple of scalars: safe to hash, cheap to show."""
    if isinstance(value, tuple):
        return len(value) <= 64 and all(_is_scalar(v) for v in value)
    return _is_scalar(value)


def _is_scalar(value: Any) -> bool:
    if isinstance(value, int):
        return value.bit_length() <= 4096  # Python will not print a much longer one
    return value is None or isinstance(value, str | float | bytes)
