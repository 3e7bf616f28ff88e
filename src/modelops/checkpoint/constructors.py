"""The constructors that a state dict needs: which may be named, and what each describes."""

from __future__ import annotations

from typing import Any

from modelops.checkpoint.standins import (
    ITEMSIZE,
    STORAGE_DTYPES,
    Global,
    Opaque,
    StorageStub,
    TensorStub,
    is_plain,
)

# A subset of what torch.load(weights_only=True) takes by default: torch checks again, by its own
# list, but other libraries widen that list when they are imported, and this one they cannot.
_ALLOWED = frozenset(
    {
        "collections.OrderedDict",
        "collections.Counter",
        "_codecs.encode",
        "builtins.set",
        "builtins.bytearray",
        "builtins.complex",
        "torch.Size",
        "torch.device",
        "torch.Tensor",
        "torch.nn.parameter.Parameter",
        "torch._utils._rebuild_tensor",
        "torch._utils._rebuild_tensor_v2",
        "torch._utils._rebuild_tensor_v3",
        "torch._utils._rebuild_parameter",
        "torch._utils._rebuild_parameter_with_state",
        "torch._tensor._rebuild_from_type_v2",
        "torch.storage.UntypedStorage",
        *(f"torch.{name}" for name in STORAGE_DTYPES),
        *(f"torch.cuda.{name}" for name in STORAGE_DTYPES),
        *(f"torch.{name}" for name in ITEMSIZE),
    }
)
MAX_DIMS = 64


def is_allowed(path: str) -> bool:
    """Whether a pickle may name the global ``path`` and still be loaded."""
    return path in _ALLOWED


def construct(maker: Global, args: Any) -> tuple[Any, str | None]:
    """Return the stand-in for ``maker(*args)`` and, where the call is odd, what is odd about it."""
    opaque = Opaque(maker.path)
    if not is_allowed(maker.path):
        return opaque, None  # reported by its name already
    if not isinstance(args, tuple):
        return opaque, f"{maker.path} is called without a tuple of arguments"
    match maker.path, args:
        case "collections.OrderedDict", ():
            return {}, None
        case "collections.OrderedDict", (list() as pairs,):
            return _ordered_dict(pairs, opaque)
        case "torch.Size", (tuple() as shape,):
            return (shape, None) if _is_shape(shape) else (opaque, "a shape that is none")
        case "_codecs.encode", (str() as text, "latin1" | "latin-1"):
            return text.encode("latin1", "replace"), None
        case "torch._utils._rebuild_tensor" | "torch._utils._rebuild_tensor_v2", (
            StorageStub() as storage,
            offset,
            shape,
            stride,
            *_,
        ):
            return _tensor(storage, storage.dtype, offset, shape, stride, opaque)
        case "torch._utils._rebuild_tensor_v3", (
            StorageStub() as storage,
            offset,
            shape,
            stride,
            _,
            _,
            Global(module="torch") as kind,
            *_,
        ):
            return _tensor(storage, kind.name, offset, shape, stride, opaque)
        case (
            "torch._utils._rebuild_parameter" | "torch._utils._rebuild_parameter_with_state",
            (TensorStub() as tensor, *_),
        ):
            return tensor, None
        case "torch._tensor._rebuild_from_type_v2", (
            Global() as inner,
            Global() as kind,
            tuple() as inner_args,
            _,
        ) if kind.path in ("torch.Tensor", "torch.nn.parameter.Parameter"):
            if inner.path == maker.path:
                return opaque, f"{maker.path} within itself"
            return construct(inner, inner_args)
        case "builtins.bytearray", () | (bytes(),) | (str(), "latin1" | "latin-1"):
            return opaque, None  # never of a number: that many bytes would be allocated
        case "builtins.set" | "collections.Counter" | "builtins.complex", _:
            flat = all(map(_is_flat, args))
            return opaque, None if flat else f"{maker.path} of values that are not plain"
        case "torch.device", _:
            return opaque, None if is_plain(args) else "a device that is none"
    return opaque, f"{maker.path} is called with arguments that torch.save does not write"


def _is_flat(value: Any) -> bool:
    if isinstance(value, dict):  # its keys are plain: the machine takes no others
        return all(map(is_plain, value.values()))
    return is_plain(value) or (isinstance(value, list) and all(map(is_plain, value)))


def _ordered_dict(pairs: list[Any], opaque: Opaque) -> tuple[Any, str | None]:
    found: dict[Any, Any] = {}
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2 and is_plain(pair[0])):
            return opaque, "an OrderedDict whose items are no pairs"
        found[pair[0]] = pair[1]
    return found, None


def _is_shape(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) <= MAX_DIMS
        and all(type(n) is int and 0 <= n < 1 << 62 for n in value)
    )


def _tensor(
    storage: StorageStub, dtype: str, offset: Any, shape: Any, stride: Any, opaque: Opaque
) -> tuple[Any, str | None]:
    if dtype not in ITEMSIZE:
        return opaque, f"a tensor of dtype {dtype}"
    if not (_is_shape(shape) and _is_shape(stride) and _is_shape((offset,))):
        return opaque, "a tensor whose shape, stride or offset is no list of sizes"
    if len(shape) != len(stride):
        return opaque, "a tensor whose shape and stride differ in length"
    return TensorStub(dtype, shape, stride, offset, storage), None
