"""The Protobuf message of a table's columns, for values that are written without a schema from the caller."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import IllegalArgument
from kafkalog.values.protobuf_schemas import DescriptorFiles, import_protobuf
from kafkalog.values.row_plan import is_bytes, is_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_STRING, _INT32, _MESSAGE = 9, 5, 11
_KEYS: Final = frozenset((3, 4, 5, 8, _STRING, 13))
_OPTIONAL, _REPEATED = 1, 3
_RESERVED: Final = range(19_000, 20_000)
"""Numbers that no field may have."""
_GOOGLE: Final = {  # messages of google.type by their fields, whose files are not in the package protobuf
    "Date": ("year", "month", "day"), "TimeOfDay": ("hours", "minutes", "seconds", "nanos"), "Decimal": ("value",),
}  # fmt: skip
_FILES: Final = {"Date": "date", "TimeOfDay": "timeofday", "Decimal": "decimal"}


def protobuf_schema(fields: Sequence[pyarrow.Field], name: str) -> Any:
    """Return the descriptor of a message with these columns; IllegalArgument for names or types Protobuf does not have.

    `name` is that of the message; characters that Protobuf does not allow become `_`. The fields have the numbers of
    their columns, from 1 on. A column that may be null is an optional field.

    >>> import pyarrow
    >>> found = protobuf_schema([pyarrow.field("id", pyarrow.int64(), False), pyarrow.field("at", pyarrow.date32())],
    ...                         "new-orders")
    >>> found.name, [(field.name, field.number, field.has_presence) for field in found.fields]
    ('new_orders', [('id', 1, False), ('at', 2, True)])
    >>> found.fields_by_name["at"].message_type.full_name
    'google.type.Date'
    """
    return _Deriver().schema(fields, re.sub(r"\A(?=[0-9])|[^A-Za-z0-9_]", "_", name))


class _Deriver:
    """Derivation of one schema, in which each message has a unique name."""

    def __init__(self) -> None:
        self._pb = import_protobuf("descriptor_pb2")
        self._file = self._pb.FileDescriptorProto(name="schema.proto", syntax="proto3")
        self._others: dict[str, Any] = {}
        self._names: set[str] = set()

    def schema(self, fields: Sequence[pyarrow.Field], name: str) -> Any:
        self._message(fields, name, "")
        return DescriptorFiles([*self._others.values(), self._file]).message(name)

    def _message(self, fields: Sequence[pyarrow.Field], name: str, place: str) -> str:
        """Add a message to the file; return its name."""
        while name in self._names:
            name += "_"
        self._names.add(name)
        message = self._file.message_type.add(name=name)
        for number, column in enumerate(fields, 1):
            inner = f"{place}.{column.name}" if place else column.name
            if not _NAME.match(column.name):
                raise IllegalArgument(
                    f"column {inner!r} has a name that Protobuf does not allow",
                    hint="give a schema (--schema) whose field has the column's name as its json_name",
                )
            if number >= _RESERVED.start:
                raise IllegalArgument(
                    f"the table has more than {_RESERVED.start - 1} columns", hint="give a schema (--schema)"
                )
            field = message.field.add(name=column.name, json_name=column.name, number=number, label=_OPTIONAL)
            self._set_column(message, field, column, f"{name}_{column.name}", inner)
        taken = {field.name for field in message.field}
        for number, field in enumerate(one for one in message.field if one.proto3_optional):
            choice = f"_{field.name}"
            while choice in taken:
                choice = f"_{choice}"
            taken.add(choice)
            field.oneof_index = number
            message.oneof_decl.add(name=choice)
        return name

    def _set_column(self, message: Any, field: Any, column: pyarrow.Field, name: str, place: str) -> None:
        import pyarrow as pa

        types, kind = pa.types, column.type
        if types.is_map(kind):
            self._set_map(message, field, kind, name, place)
        elif types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
            field.label = _REPEATED
            self._set_type(field, kind.value_type, f"{name}_item", f"{place}[]")
        else:
            self._set_type(field, kind, name, place)
            field.proto3_optional = column.nullable and field.type != _MESSAGE

    def _set_map(self, message: Any, field: Any, kind: pyarrow.MapType, name: str, place: str) -> None:
        entry = message.nested_type.add(name=f"{_camel(field.name)}Entry")
        entry.options.map_entry = True
        key, value = (entry.field.add(name=one, number=n, label=_OPTIONAL) for n, one in ((1, "key"), (2, "value")))
        self._set_type(key, kind.key_type, name, f"{place}{{}}")
        if key.type not in _KEYS:
            raise _unknown(f"{place}{{}}", kind.key_type)
        self._set_type(value, kind.item_type, f"{name}_value", f"{place}{{}}")
        field.label, field.type, field.type_name = _REPEATED, _MESSAGE, f".{message.name}.{entry.name}"

    def _set_type(self, field: Any, kind: pyarrow.DataType, name: str, place: str) -> None:
        import pyarrow as pa

        types = pa.types
        if types.is_dictionary(kind):
            self._set_type(field, kind.value_type, name, place)
        elif types.is_struct(kind):
            field.type, field.type_name = _MESSAGE, f".{self._message([*kind], name, place)}"
        elif (full := _message_of(kind)) is not None:
            field.type, field.type_name = _MESSAGE, f".{full}"
            self._import(full)
        else:
            number = _plain(kind)
            if number is None:
                raise _unknown(place, kind)
            field.type = number

    def _import(self, full: str) -> None:
        """Make the file of a message a dependency."""
        package, _, name = full.rpartition(".")
        path = f"{package.replace('.', '/')}/{_FILES.get(name, name.lower())}.proto"
        if path in self._file.dependency:
            return
        self._file.dependency.append(path)
        if name not in _GOOGLE:
            return  # of the package protobuf
        other = self._others[path] = self._pb.FileDescriptorProto(name=path, package=package, syntax="proto3")
        message = other.message_type.add(name=name)
        for number, part in enumerate(_GOOGLE[name], 1):
            kind = _STRING if name == "Decimal" else _INT32
            message.field.add(name=part, number=number, label=_OPTIONAL, type=kind)


def _unknown(place: str, kind: pyarrow.DataType) -> IllegalArgument:
    return IllegalArgument(f"column {place!r} of type {kind} has no type of Protobuf", hint="load rows as JSON")


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _message_of(kind: pyarrow.DataType) -> str | None:
    """Return the message that stands for a time, a date or a decimal."""
    import pyarrow as pa

    types = pa.types
    if types.is_timestamp(kind) or types.is_duration(kind):
        return f"google.protobuf.{'Timestamp' if types.is_timestamp(kind) else 'Duration'}"
    if types.is_date(kind) or types.is_time(kind):
        return f"google.type.{'Date' if types.is_date(kind) else 'TimeOfDay'}"
    return "google.type.Decimal" if types.is_decimal(kind) else None


def _plain(kind: pyarrow.DataType) -> int | None:
    """Return the number of a type without parts; None if there is none."""
    import pyarrow as pa

    types = pa.types
    if types.is_integer(kind):
        is_wide = kind.bit_width == 64
        return (4 if is_wide else 13) if types.is_unsigned_integer(kind) else (3 if is_wide else _INT32)
    if types.is_floating(kind):
        return 1 if types.is_float64(kind) else 2
    if types.is_boolean(kind):
        return 8
    if is_text(kind) or isinstance(kind, pa.UuidType):
        return _STRING
    return 12 if is_bytes(kind) else None
