"""Follows a pickle's opcodes with inert stand-ins: nothing is imported, called or hashed blindly.

Unlike a restricted Unpickler this never fails on what it does not know: it notes it. So the same
walk decides whether a file may be loaded and tells a person what is inside one that may not.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import IO, Any

from modelops.checkpoint.constructors import construct
from modelops.checkpoint.standins import (
    STORAGE_DTYPES,
    Global,
    Opaque,
    Record,
    StorageStub,
    TensorStub,
    is_plain,
)

MAX_OPCODES = 20_000_000
MAX_PICKLE_BYTES = 256 << 20

# What the weights-only unpickler of torch understands; a pickle with more of them is not for it.
_TORCH_OPCODES = frozenset(
    [
        "GLOBAL",
        "NEWOBJ",
        "REDUCE",
        "BUILD",
        "APPEND",
        "APPENDS",
        "SETITEM",
        "SETITEMS",
        "MARK",
        "TUPLE",
        "TUPLE1",
        "TUPLE2",
        "TUPLE3",
        "NONE",
        "NEWFALSE",
        "NEWTRUE",
        "EMPTY_TUPLE",
        "EMPTY_LIST",
        "EMPTY_DICT",
        "EMPTY_SET",
        "BININT",
        "BININT1",
        "BININT2",
        "BINFLOAT",
        "BINUNICODE",
        "SHORT_BINSTRING",
        "BINPERSID",
        "BINGET",
        "LONG_BINGET",
        "BINPUT",
        "LONG_BINPUT",
        "LONG1",
        "PROTO",
        "STOP",
    ]
)
_PYTHON2_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg", "cPickle": "pickle"}
_MARK = object()


class _MalformedError(ValueError):
    """The opcodes are not those of a whole, well-formed pickle."""


@dataclass
class PickleContents:
    """What one pickle would have built, and what it would have asked for on the way."""

    root: Any = None
    globals: dict[str, None] = field(default_factory=dict)
    """Dotted paths, in order of appearance."""
    storages: dict[str, StorageStub] = field(default_factory=dict)
    oddities: dict[str, None] = field(default_factory=dict)
    """Constructs that no ``torch.save`` of a state dict writes."""
    unsupported: dict[str, None] = field(default_factory=dict)
    """Opcodes that torch's weights-only loader does not read."""
    damage: str | None = None
    """Where it is truncated, corrupt or beyond the bounds on size; the rest is what came before."""


class BoundedReader:
    """Reads from a stream, never past ``limit`` bytes in all."""

    def __init__(self, stream: IO[bytes], limit: int = MAX_PICKLE_BYTES) -> None:
        self._stream = stream
        self._left = limit

    def read(self, size: int = -1) -> bytes:
        """Read as a file does."""
        if size < 0 or size > self._left:
            size = self._left + 1
        return self._spend(self._stream.read(size))

    def readline(self) -> bytes:
        """Read a line as a file does."""
        return self._spend(self._stream.readline(self._left + 1))

    def tell(self) -> int:
        """Return the position, which only serves error messages."""
        return self._stream.tell()

    def _spend(self, data: bytes) -> bytes:
        self._left -= len(data)
        if self._left < 0:
            raise _MalformedError(f"the pickle is larger than {MAX_PICKLE_BYTES >> 20} MiB")
        return data


def walk(
    stream: IO[bytes], limit: int = MAX_PICKLE_BYTES, records: Collection[str] = ()
) -> PickleContents:
    """Follow one pickle from the stream's position, which is left just behind it.

    ``records`` are the classes, by dotted path, whose objects are kept as a Record. A pickle that
    breaks off has run all that came before: that is told together with ``damage``.
    """
    machine = _Machine(records)
    try:
        opcodes = pickletools.genops(BoundedReader(stream, limit))  # type: ignore[arg-type]
        for count, (opcode, arg, _) in enumerate(opcodes):
            if count > MAX_OPCODES:
                raise _MalformedError(f"the pickle has more than {MAX_OPCODES} opcodes")
            machine.step(opcode.name, arg)
    except _MalformedError as error:
        machine.found.damage = str(error)
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, EOFError) as error:
        machine.found.damage = f"the pickle is damaged: {str(error)[:200]}"
    except (MemoryError, RecursionError):
        machine.found.damage = "the pickle does not fit in memory"
    return machine.found


class _Machine:
    """Pickle's stack machine over stand-ins."""

    def __init__(self, records: Collection[str] = ()) -> None:
        self.found = PickleContents()
        self.records = records
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, arg: Any) -> None:
        if name not in _TORCH_OPCODES:
            self.found.unsupported[name] = None
        if isinstance(arg, str) and not arg.isascii():
            arg = self.printable(arg)
        handler = _HANDLERS.get(name)
        if handler is not None:
            handler(self, arg)
        elif name not in _NO_EFFECT:
            self.stack.append(arg)  # every opcode left pushes its literal argument

    def odd(self, what: str) -> None:
        self.found.oddities[what] = None

    def printable(self, text: str) -> str:
        """Escape half characters, which no terminal, JSON or file name can hold."""
        shown = text.encode("utf-8", "backslashreplace").decode("utf-8")
        if shown != text:
            self.odd("text that is no Unicode")
        return shown

    def find(self, module: Any, name: Any) -> Global:
        found = Global(_PYTHON2_MODULES.get(str(module), str(module)), str(name))
        self.found.globals[found.path] = None
        return found

    def pop_mark(self) -> list[Any]:
        items: list[Any] = []
        while (item := self.stack.pop()) is not _MARK:
            items.append(item)
        items.reverse()
        return items

    # Each handler takes the opcode's argument; names follow pickletools.
    def stop(self, _: Any) -> None:
        self.found.root = self.stack.pop()

    def mark(self, _: Any) -> None:
        self.stack.append(_MARK)

    def pop(self, _: Any) -> None:
        self.stack.pop()

    def discard(self, _: Any) -> None:
        self.pop_mark()

    def dup(self, _: Any) -> None:
        self.stack.append(self.stack[-1])

    def get(self, index: Any) -> None:
        self.stack.append(self.memo[int(index)])

    def put(self, index: Any) -> None:
        self.memo[int(index)] = self.stack[-1]

    def memoize(self, _: Any) -> None:
        self.memo[len(self.memo)] = self.stack[-1]

    def global_(self, arg: Any) -> None:
        module, _, name = str(arg).partition(" ")
        self.stack.append(self.find(module, name))

    def stack_global(self, _: Any) -> None:
        name, module = self.stack.pop(), self.stack.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            self.odd("a global whose name is no text")
            name, module = "<computed>", "<computed>"
        self.stack.append(self.find(module, name))

    def extension(self, code: Any) -> None:
        self.stack.append(self.find("copyreg", f"<extension {int(code)}>"))

    def reduce(self, _: Any) -> None:
        args, maker = self.stack.pop(), self.stack.pop()
        self.stack.append(self.make(maker, args))

    def newobj_ex(self, _: Any) -> None:
        _kwargs, args, maker = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.stack.append(self.make(maker, args))

    def inst(self, arg: Any) -> None:
        args = tuple(self.pop_mark())
        self.global_(arg)
        self.stack.append(self.make(self.stack.pop(), args))

    def obj(self, _: Any) -> None:
        maker, *args = self.pop_mark()
        self.stack.append(self.make(maker, tuple(args)))

    def make(self, maker: Any, args: Any) -> Any:
        if not isinstance(maker, Global):
            self.odd("something that is no global is called")
            return Opaque("<computed>")
        if maker.path in self.records and isinstance(args, tuple):
            return Record(maker.path, args)
        made, problem = construct(maker, args)
        if problem:
            self.odd(problem)
        return made

    def build(self, _: Any) -> None:
        state = self.stack.pop()
        target = self.stack[-1]
        # state_dict() hangs its version table onto the OrderedDict: the one state that is usual.
        if not (isinstance(target, dict) and isinstance(state, dict) and set(state) <= _METADATA):
            if isinstance(target, Opaque):
                return
            if isinstance(target, Record):
                target.state = state
                return
            self.odd("state is set on an object other than a state dict")

    def persistent_id(self, pid: Any) -> None:
        match pid:
            case ("storage", Global() as kind, str() as key, str(), int() as numel, *view) if (
                not view or view == [None]
            ):
                dtype = STORAGE_DTYPES.get(kind.name)
                if dtype is None or numel < 0:
                    self.odd(f"a storage of kind {kind.path}")
                    self.stack.append(Opaque("storage"))
                    return
                storage = StorageStub(dtype, key, numel)
                if self.found.storages.setdefault(key, storage) != storage:
                    self.odd("two storages under one key")
                self.stack.append(storage)
            case _:
                self.odd("a persistent id that is no plain storage")
                self.stack.append(Opaque("<persistent id>"))

    def binpersid(self, _: Any) -> None:
        self.persistent_id(self.stack.pop())

    def empty_list(self, _: Any) -> None:
        self.stack.append([])

    def empty_dict(self, _: Any) -> None:
        self.stack.append({})

    def empty_set(self, _: Any) -> None:
        self.stack.append(Opaque("builtins.set"))

    def list_(self, _: Any) -> None:
        self.stack.append(self.pop_mark())

    def dict_(self, _: Any) -> None:
        items = self.pop_mark()
        self.stack.append({})
        self.set_items(items)

    def tuple_(self, _: Any) -> None:
        self.stack.append(tuple(self.pop_mark()))

    def tuple_of(self, size: int) -> None:
        items = tuple(self.stack[-size:])
        if len(items) < size:
            raise _MalformedError("the pickle is damaged: its stack is empty")
        self.stack[-size:] = [items]

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, Opaque):
            self.odd("items are added to something that is no list")

    def set_items(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if len(items) % 2:
            raise _MalformedError("the pickle is damaged: a key without a value")
        if not isinstance(target, dict):
            if not isinstance(target, Opaque):
                self.odd("keys are set on something that is no dict")
            return
        for key, value in zip(items[::2], items[1::2], strict=True):
            if not (
                isinstance(key, Record | Global) or is_plain(key)
            ):  # hashing a deeply nested key would overflow the C stack
                self.odd("a dict key that is no plain value")
                continue
            if isinstance(target.get(key), TensorStub):
                self.odd(f"the key {str(key)[:200]!r} twice in one dict")
            target[key] = value


_METADATA = {"_metadata"}
_NO_EFFECT = frozenset({"PROTO", "FRAME"})
_HANDLERS: dict[str, Callable[[_Machine, Any], None]] = {
    "STOP": _Machine.stop,
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "POP_MARK": _Machine.discard,
    "DUP": _Machine.dup,
    "GET": _Machine.get,
    "BINGET": _Machine.get,
    "LONG_BINGET": _Machine.get,
    "PUT": _Machine.put,
    "BINPUT": _Machine.put,
    "LONG_BINPUT": _Machine.put,
    "MEMOIZE": _Machine.memoize,
    "GLOBAL": _Machine.global_,
    "STACK_GLOBAL": _Machine.stack_global,
    "EXT1": _Machine.extension,
    "EXT2": _Machine.extension,
    "EXT4": _Machine.extension,
    "REDUCE": _Machine.reduce,
    "NEWOBJ": _Machine.reduce,
    "NEWOBJ_EX": _Machine.newobj_ex,
    "INST": _Machine.inst,
    "OBJ": _Machine.obj,
    "BUILD": _Machine.build,
    "PERSID": _Machine.persistent_id,
    "BINPERSID": _Machine.binpersid,
    "NONE": lambda m, _: m.stack.append(None),
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    "EMPTY_TUPLE": lambda m, _: m.stack.append(()),
    "EMPTY_LIST": _Machine.empty_list,
    "EMPTY_DICT": _Machine.empty_dict,
    "EMPTY_SET": _Machine.empty_set,
    "LIST": _Machine.list_,
    "DICT": _Machine.dict_,
    "TUPLE": _Machine.tuple_,
    "TUPLE1": lambda m, _: m.tuple_of(1),
    "TUPLE2": lambda m, _: m.tuple_of(2),
    "TUPLE3": lambda m, _: m.tuple_of(3),
    "APPEND": lambda m, _: m.extend([m.stack.pop()]),
    "APPENDS": lambda m, _: m.extend(m.pop_mark()),
    "ADDITEMS": lambda m, _: m.extend(m.pop_mark()),
    "FROZENSET": lambda m, _: m.stack.append(Opaque(f"frozenset of {len(m.pop_mark())}")),
    "SETITEM": lambda m, _: m.set_items([*reversed([m.stack.pop(), m.stack.pop()])]),
    "SETITEMS": lambda m, _: m.set_items(m.pop_mark()),
    "NEXT_BUFFER": lambda m, _: m.stack.append(Opaque("<buffer>")),
    "READONLY_BUFFER": lambda _m, _: None,
}
