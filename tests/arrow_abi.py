"""Arrow structures made by hand with ctypes: every field can be what no sound producer would write."""

import ctypes
from collections.abc import Sequence
from typing import Any

Release = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class Schema(ctypes.Structure):
    """struct ArrowSchema."""


class Array(ctypes.Structure):
    """struct ArrowArray."""


class Stream(ctypes.Structure):
    """struct ArrowArrayStream."""


GetSchema = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Schema))
GetNext = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Stream), ctypes.POINTER(Array))
GetError = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(Stream))
Schema._fields_ = [
    ("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_char_p), ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64), ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)), ("release", Release), ("private_data", ctypes.c_void_p),
]  # fmt: skip
Array._fields_ = [
    ("length", ctypes.c_int64), ("null_count", ctypes.c_int64), ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64), ("n_children", ctypes.c_int64), ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))), ("dictionary", ctypes.POINTER(Array)), ("release", Release),
    ("private_data", ctypes.c_void_p),
]  # fmt: skip
Stream._fields_ = [
    ("get_schema", GetSchema), ("get_next", GetNext), ("get_last_error", GetError), ("release", Release),
    ("private_data", ctypes.c_void_p),
]  # fmt: skip

new_capsule = ctypes.pythonapi.PyCapsule_New
new_capsule.restype, new_capsule.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)


ALIVE: list[object] = []  # an error keeps what was taken in; what that points to has to be there as long


class Node:
    """A schema and an array of one column or struct, with all that they point to; `released` counts calls."""

    def __init__(
        self,
        format: bytes,
        length: int,
        buffers: Sequence[bytes | None],
        children: Sequence["Node"] = (),
        *,
        name: bytes = b"",
        offset: int = 0,
        nulls: int = 0,
    ) -> None:
        ALIVE.append(self)
        self.children = list(children)
        self.released: list[str] = []
        self.memory = [None if b is None else ctypes.create_string_buffer(b, max(len(b), 1)) for b in buffers]
        addresses = [None if m is None else ctypes.addressof(m) for m in self.memory]
        self.buffers = (ctypes.c_void_p * max(len(buffers), 1))(*addresses)
        self.schema_places = (ctypes.POINTER(Schema) * max(len(self.children), 1))(
            *[ctypes.pointer(child.schema) for child in self.children]
        )
        self.array_places = (ctypes.POINTER(Array) * max(len(self.children), 1))(
            *[ctypes.pointer(child.array) for child in self.children]
        )
        self.schema = Schema(
            format, name, None, 2, len(self.children), self.schema_places, None, self._releaser("schema", Schema), None
        )
        self.array = Array(
            length, nulls, offset, len(buffers), len(self.children), self.buffers, self.array_places, None,
            self._releaser("array", Array), None,
        )  # fmt: skip

    def _releaser(self, what: str, kind: Any) -> Any:
        def release(address: int) -> None:
            self.released.append(what)
            kind.from_address(address).release = Release()

        made = Release(release)
        self.__dict__.setdefault("kept", []).append(made)
        return made

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        schema = new_capsule(ctypes.addressof(self.schema), b"arrow_schema", None)
        return schema, new_capsule(ctypes.addressof(self.array), b"arrow_array", None)


class Streamed:
    """Nodes of one schema as a stream; `codes` are what the calls of get_schema and get_next answer, 0 at the end."""

    def __init__(self, nodes: Sequence[Node], codes: Sequence[int] = (), error: bytes | None = None) -> None:
        ALIVE.append(self)
        self.nodes, self.codes = list(nodes), list(codes)
        self.calls = 0
        self.released = 0
        self.error = None if error is None else ctypes.create_string_buffer(error)
        self.kept = (GetSchema(self._schema), GetNext(self._next), GetError(self._error), Release(self._release))
        self.stream = Stream(*self.kept, None)

    def _code(self) -> int:
        self.calls += 1
        return self.codes[self.calls - 1] if self.calls <= len(self.codes) else 0

    def _schema(self, stream: Any, out: Any) -> int:
        code = self._code()
        if self.nodes and not code:
            ctypes.memmove(out, ctypes.addressof(self.nodes[0].schema), ctypes.sizeof(Schema))
        return code

    def _next(self, stream: Any, out: Any) -> int:
        code = self._code()
        ctypes.memset(out, 0, ctypes.sizeof(Array))
        if self.nodes and not code:
            ctypes.memmove(out, ctypes.addressof(self.nodes.pop(0).array), ctypes.sizeof(Array))
        return code

    def _error(self, stream: Any) -> int | None:
        return None if self.error is None else ctypes.addressof(self.error)

    def _release(self, address: int) -> None:
        self.released += 1
        Stream.from_address(address).release = Release()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return new_capsule(ctypes.addressof(self.stream), b"arrow_array_stream", None)
