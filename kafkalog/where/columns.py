"""The arrays of fields, computed from the columns of a record batch without a Python object for a row."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import IllegalArgument
from kafkalog.where.fields import COLUMN_OF, UnknownField, unknown_name
from kafkalog.where.kinds import FIXED, Kind, kind_of, storage_type
from kafkalog.where.lists import Elements, element_of, is_list
from kafkalog.where.nodes import Field, Step

_TYPES = {
    Kind.INTEGER: pa.int64(), Kind.TIME: pa.timestamp("ms", "UTC"), Kind.BYTES: pa.binary(), Kind.TEXT: pa.string()
}
_KERNEL_TYPES = frozenset({pa.binary(), pa.string(), pa.int64(), pa.int32(), pa.timestamp("ms", "UTC")})
KEY_SIZE, VALUE_SIZE = "key_size", "size"
"""Columns that hold the sizes of the bytes where key and value are columns of other types."""


def field_type(field: Field, key: pa.DataType, value: pa.DataType) -> pa.DataType:
    """Return the type of a field's array; raise IllegalArgument, with the nearest name, if a path leads nowhere."""
    fixed = FIXED.get(field.root)
    if fixed is not None:
        return _TYPES[fixed]
    found = storage_type(key if field.root == "key" else value)
    done = field.root
    passed: list[str] = []
    for name in field.path[1:]:
        if isinstance(name, Step):
            if pa.types.is_null(found):
                break
            if not is_list(found):
                raise _no_path(field, done, kind_of(found), "[0] and [*] go into lists")
            found = storage_type(found.value_type)
            done = f"{done}{name}"
            continue
        if pa.types.is_struct(found):
            names = [found.field(n).name for n in range(found.num_fields)]
            if name not in names:
                what = f"{done} has no field {name!r}" if names else f"{done} has no fields"
                raise _unknown_field(field, name, names, what, (*passed, name))
            found = found.field(names.index(name)).type
            passed.append(name)
        elif pa.types.is_map(found) and kind_of(storage_type(found.key_type)) is Kind.TEXT:
            found = found.item_type
        elif pa.types.is_null(found):
            break
        elif is_list(found):
            hint = f"write {done}[0].{name} for one of its elements, {done}[*].{name} for each"
            raise _no_path(field, done, kind_of(found), hint)
        else:
            raise _no_path(field, done, kind_of(found))
        found = storage_type(found)
        done = f"{done}.{name}"
    return found if kind_of(found) in _AS_THEY_ARE else _plain_type(found)


def _unknown_field(
    field: Field, name: str, known: list[str], what: str, names: tuple[str, ...]
) -> UnknownField:
    near = unknown_name(name, known, what, field.position, "its fields are")
    error = UnknownField(near.message, hint=near.hint)
    error.root, error.names = field.root, names
    return error


def record_path(path: tuple[str, ...], type: pa.DataType) -> tuple[str, ...]:
    """Return the names of a path as far as they lead through records, alone or in lists; `()` for a whole value."""
    names = []
    found = storage_type(type)
    for name in path:
        while is_list(found):
            found = storage_type(found.value_type)
        if isinstance(name, Step):
            continue
        at = found.get_field_index(name) if pa.types.is_struct(found) else -1
        if at < 0:
            break
        names.append(name)
        found = storage_type(found.field(at).type)
    return tuple(names)


_AS_THEY_ARE = frozenset(Kind) - {Kind.BYTES, Kind.TEXT, Kind.FLOAT}


def _no_path(field: Field, done: str, kind: Kind, given: str | None = None) -> IllegalArgument:
    hint = f"it has no parts; decode it, as with {field.root}='json' (in a command: -s {field.root}=json)"
    if kind is not Kind.BYTES or "." in done:
        hint = given or "it has no parts"
        if kind is Kind.TEXT:
            hint += "; JSON whose type the first values do not tell is text: give a schema (--schema)"
    return IllegalArgument(f"{done} is {kind.value}, at character {field.position + 1} of the expression", hint=hint)


def _plain_type(type: pa.DataType) -> pa.DataType:
    """Return the type that the kernels take: views and large strings have plain ones."""
    if type in _KERNEL_TYPES:
        return type
    kind = kind_of(type)
    if kind is Kind.TEXT:
        return pa.string() if type == pa.string_view() else type
    if kind is Kind.BYTES:
        return type if type in (pa.binary(), pa.large_binary()) else pa.binary()
    return pa.float32() if type == pa.float16() else type


def plain(array: pa.Array) -> pa.Array:
    """Return an array as the kernels take it: without dictionaries, extensions and views."""
    while True:
        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        elif isinstance(array, pa.ExtensionArray):
            array = array.storage
        else:
            break
    wanted = _plain_type(array.type)
    return array if array.type == wanted else array.cast(wanted)


class Rows:
    """Rows of a record batch, with the arrays of the fields made so far."""

    __slots__ = ("_arrays", "_batch", "_elements")

    def __init__(self, batch: pa.RecordBatch) -> None:
        self._batch = batch
        self._arrays: dict[tuple[str, ...], pa.Array] = {}
        self._elements: dict[tuple[str, ...], Elements] = {}

    def __len__(self) -> int:
        return self._batch.num_rows  # type: ignore[no-any-return]

    def selected(self, chosen: pa.BooleanArray, columns: frozenset[str]) -> Rows:
        """Return the rows where `chosen` is true, with only these columns."""
        names = [one for one in self._batch.schema.names if one in columns or one in (KEY_SIZE, VALUE_SIZE)]
        return Rows(self._batch.select(names).filter(chosen))

    def field(self, field: Field) -> pa.Array:
        """Return the array of a field."""
        found = self._arrays.get(field.path)
        if found is None:
            found = self.elements(field).gathered() if field.has_each else self._computed(field)
            self._arrays[field.path] = found
        return found

    def elements(self, field: Field) -> Elements:
        """Return the values of a field that leads to each element of a list."""
        found = self._elements.get(field.path)
        if found is None:
            column = self._column(COLUMN_OF[field.root], field)
            found = self._elements[field.path] = _reached(column, field)
        return found

    def _computed(self, field: Field) -> pa.Array:
        root = field.root
        if root in (VALUE_SIZE, KEY_SIZE):
            if root in self._batch.schema.names:
                return self._batch.column(root)
            column = plain(self._column(COLUMN_OF[root], field))
            if kind_of(column.type) not in (Kind.BYTES, Kind.TEXT):
                raise IllegalArgument(f"{field} needs the bytes of {COLUMN_OF[root]}, or a column {root!r}")
            return pc.binary_length(column)
        column = self._column(COLUMN_OF[root], field)
        if root == "header":
            return header(column, field.path[1])
        return _part(column, field)

    def _column(self, name: str, field: Field) -> pa.Array:
        at = self._batch.schema.get_field_index(name)
        if at < 0:
            raise IllegalArgument(f"{field} needs the column {name!r}, which the batch does not have")
        return self._batch.column(at)


def _part(array: pa.Array, field: Field) -> pa.Array:
    """Return the array at a path; null where a record on the way is null, or a map or list has no such entry."""
    array = plain(array)
    for name in field.path[1:]:
        array = _step(array, name)
    return array


def _step(array: pa.Array, name: str) -> pa.Array:
    if pa.types.is_struct(array.type):
        return plain(pc.struct_field(array, name))
    if pa.types.is_map(array.type):
        return plain(pc.map_lookup(array, pa.scalar(name, array.type.key_type), "first"))
    if isinstance(name, Step) and name.element is not None and is_list(array.type):
        return plain(element_of(array, name.element))
    return pa.nulls(len(array))


def _reached(array: pa.Array, field: Field) -> Elements:
    """Return what a path leads to that goes through each element of lists."""
    found = Elements.of(plain(array))
    for name in field.path[1:]:
        if isinstance(name, Step) and name.element is None:
            found = found.flattened()
            found = found._replace(values=plain(found.values))
        else:
            found = found._replace(values=_step(found.values, name))
    return found


def header(headers: pa.ListArray, name: str) -> pa.Array:
    """Return the value of the last header of that name, as Kafka's `lastHeader` does; null where there is none."""
    import numpy

    first, last = headers.offsets[0].as_py(), headers.offsets[-1].as_py()
    pairs = headers.values.slice(first, last - first)
    found = numpy.flatnonzero(pc.equal(pairs.field("key"), name).fill_null(False).to_numpy(zero_copy_only=False))
    at = numpy.full(len(headers), -1, numpy.int64)
    offsets = headers.offsets.to_numpy()[1:] - first
    at[numpy.searchsorted(offsets, found, side="right")] = found  # of several headers of a row the last one stays
    return pairs.field("value").take(pa.array(at, mask=at < 0))
