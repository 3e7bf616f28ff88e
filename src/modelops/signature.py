"""What goes into a model and what comes out: names, dtypes, symbolic shapes and their ranges."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from modelops.dtypes import DTYPES, dtype
from modelops.errors import RequestError, UsageError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]{0,127}\Z")
_SPEC = re.compile(
    r"\s*(?P<name>[A-Za-z_][\w.\-]*)\s*=\s*(?P<dtype>\w+)\s*\[(?P<shape>[^\[\]]*)\]\s*\Z"
)
_RANGE = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*=\s*(?P<min>\d+)(?:\.\.(?P<max>\d+))?\s*\Z")

_LARGEST = 2**31 - 1
DEFAULT_BATCH = (1, 64)
DEFAULT_DIM = (2, 512)


def _name(value: str) -> str:
    if not _NAME.match(value):
        raise ValueError(f"{value!r} is no tensor or dim name")
    return value


def _dtype(value: str) -> str:
    if value not in DTYPES:
        raise ValueError(f"{value!r} is no dtype; one of {', '.join(DTYPES)}")
    return value


Name = Annotated[str, AfterValidator(_name)]
DTypeName = Annotated[str, AfterValidator(_dtype)]


class Frozen(BaseModel):
    """Immutable, and refuses keys that it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class DimRange(Frozen):
    """The sizes that one symbolic dim may take, both ends included."""

    min: int = Field(ge=0)
    max: int = Field(ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min > self.max:
            raise ValueError(f"a dim's range must rise: {self.min}..{self.max}")
        return self


class TensorSpec(Frozen):
    """One input or output; ``shape`` mixes sizes and the names of symbolic dims.

    ``bounds`` are the lowest and highest value (both included) that an integer input may hold,
    such as token ids within the vocabulary; None where any value will do.
    """

    name: Name
    dtype: DTypeName
    shape: tuple[int | str, ...]
    bounds: tuple[int, int] | None = None

    @property
    def dynamic(self) -> tuple[str, ...]:
        """The names of its symbolic dims, in order."""
        return tuple(d for d in self.shape if isinstance(d, str))

    def sized(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """Return its shape with each symbolic dim replaced by its size in ``dims``."""
        return tuple(dims[d] if isinstance(d, str) else d for d in self.shape)

    def __str__(self) -> str:
        return f"{self.name}={self.dtype}[{','.join(str(d) for d in self.shape)}]"


class Padding(Frozen):
    """How a shorter item joins a longer batch: dim ``dim`` is filled with ``values[input]``.

    ``mask`` names the input that is 1 on real positions and 0 on padded ones. Its presence says
    that the model's answer for an item does not depend on padding: export proved it.
    """

    dim: Name
    mask: Name
    values: dict[str, int | float]


class Signature(Frozen):
    """The inputs in forward's order, the outputs, and the range of every symbolic dim."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    dims: dict[str, DimRange] = {}
    padding: Padding | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        for side in (self.inputs, self.outputs):
            names = [t.name for t in side]
            if len(set(names)) != len(names):
                raise ValueError(f"tensor names are not distinct: {', '.join(names)}")
        used = {d for t in self.inputs for d in t.dynamic}
        if missing := used - self.dims.keys():
            raise ValueError(f"dims without a range: {', '.join(sorted(missing))}")
        if self.padding is not None:
            inputs = {t.name for t in self.inputs}
            if self.padding.mask not in inputs or not self.padding.values.keys() <= inputs:
                raise ValueError("padding names an input that is not there")
        return self

    def input(self, name: str) -> TensorSpec:
        """Return the input called ``name``; KeyError where there is none."""
        return next(t for t in self.inputs if t.name == name)

    @property
    def batch_dim(self) -> str | None:
        """The symbolic dim that leads every input and output, along which items are batched."""
        leads = {t.shape[0] if t.shape else None for t in (*self.inputs, *self.outputs)}
        lead = leads.pop() if len(leads) == 1 else None
        return lead if isinstance(lead, str) else None

    def nbytes(self, dims: Mapping[str, int]) -> int:
        """Bytes of all inputs at the sizes ``dims``."""
        return sum(math.prod(t.sized(dims)) * DTYPES[t.dtype].itemsize for t in self.inputs)

    def bind(self, shapes: Mapping[str, Sequence[int]]) -> dict[str, int]:
        """Match concrete input shapes to the symbolic dims; return each dim's size.

        Raises:
            RequestError: an input is unknown or missing, a rank or fixed size is wrong, one dim
                has two sizes, or a size is outside its range. The input is named.
        """
        specs = {t.name: t for t in self.inputs}
        if unknown := shapes.keys() - specs.keys():
            raise RequestError(
                f"unexpected input {min(unknown)!r}; the model takes {', '.join(specs)}"
            )
        sizes: dict[str, int] = {}
        for name, spec in specs.items():
            if name not in shapes:
                raise RequestError(f"input {name!r} is missing: expected {spec}")
            shape = shapes[name]
            if len(shape) != len(spec.shape):
                raise RequestError(
                    f"input {name!r} has shape {list(shape)}, of rank {len(shape)}; expected {spec}"
                )
            for want, got in zip(spec.shape, shape, strict=True):
                if isinstance(want, int):
                    if want != got:
                        raise RequestError(
                            f"input {name!r} has shape {list(shape)}; expected {spec}"
                        )
                elif sizes.setdefault(want, got) != got:
                    raise RequestError(
                        f"input {name!r} has {want}={got}, but another input has "
                        f"{want}={sizes[want]}"
                    )
        for dim, size in sizes.items():
            allowed = self.dims[dim]
            if not allowed.min <= size <= allowed.max:
                raise RequestError(
                    f"{dim}={size} is outside {allowed.min}..{allowed.max}, the sizes this "
                    "artifact was proven for"
                )
        return sizes


def parse_tensor(text: str) -> TensorSpec:
    """Parse ``mels=float32[batch,frames,40]``.

    Raises:
        UsageError: the text is not of this form.
    """
    match = _SPEC.match(text)
    if match is None:
        raise UsageError(
            f"cannot read {text!r} as a tensor",
            hint='write it as "name=dtype[dim,dim,…]", such as "mels=float32[batch,frames,40]"',
        )
    shape: list[int | str] = []
    for part in filter(None, (p.strip() for p in match["shape"].split(","))):
        if part.isdecimal() and 0 < int(part[:11]) <= _LARGEST:
            shape.append(int(part))
        elif part.isdecimal():
            raise UsageError(f"{part[:20]} in {text[:80]!r} is no size: 1 to {_LARGEST} are")
        elif part.isidentifier():
            shape.append(part)
        else:
            raise UsageError(f"{part!r} in {text!r} is neither a size nor the name of a dim")
    return TensorSpec(name=match["name"], dtype=dtype(match["dtype"]).name, shape=tuple(shape))


def parse_dim(text: str) -> tuple[str, DimRange]:
    """Parse ``frames=2..512`` (or ``frames=80``, a single size).

    Raises:
        UsageError: the text is not of this form, or the range does not rise.
    """
    match = _RANGE.match(text)
    if match is None:
        raise UsageError(f"cannot read {text!r} as a dim", hint='write it as "frames=2..512"')
    low, high = (int((match[side] or match["min"])[:11]) for side in ("min", "max"))
    if not low > 0 or high > _LARGEST:
        raise UsageError(f"{text[:80]!r} is outside 1..{_LARGEST}, the sizes that a dim may take")
    if low > high:
        raise UsageError(f"the range of {text!r} does not rise")
    return match["name"], DimRange(min=low, max=high)


def default_dims(inputs: Sequence[TensorSpec]) -> dict[str, DimRange]:
    """Return the ranges used where none was given: the first dim 1..64, every other 2..512."""
    ranges: dict[str, DimRange] = {}
    for spec in inputs:
        for position, dim in enumerate(spec.shape):
            if isinstance(dim, str):
                low, high = DEFAULT_BATCH if position == 0 else DEFAULT_DIM
                ranges.setdefault(dim, DimRange(min=low, max=high))
    return ranges
