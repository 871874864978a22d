"""The columns of a Protobuf message, and the steps of the compiled decoder that fill them.

A message within itself has no end of columns: where a type comes again below itself, the column is `binary` with the
bytes of the message.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.values.wanted import Wanted, unknown_field

if TYPE_CHECKING:
    from kafkalog._core.values.builder import Field
    from kafkalog._core.values.protobuf_rows import Message

MOST_LEVELS: Final = 30
"""Messages within each other; a list or a map counts as well in the 64 levels of columns."""
MOST_COLUMNS: Final = 1 << 14
SCALARS: Final = {  # by the number of a descriptor's type: kind, Arrow format, how a default is packed
    1: ("fixed64", "g", "<d"), 2: ("fixed32", "f", "<f"), 3: ("int64", "l", "<q"), 4: ("uint64", "L", "<Q"),
    5: ("int32", "i", "<i"), 6: ("fixed64", "L", "<Q"), 7: ("fixed32", "I", "<I"), 8: ("bool", "b", "<?"),
    9: ("string", "u", ""), 12: ("bytes", "z", ""), 13: ("uint32", "I", "<I"), 14: ("enum", "u", ""),
    15: ("fixed32", "i", "<i"), 16: ("fixed64", "l", "<q"), 17: ("sint32", "i", "<i"), 18: ("sint64", "l", "<q"),
}  # fmt: skip
GROUP: Final = 10
HIDDEN: Final = "-"
"""Before the format of a field that is checked but has no column: see builder.pxd."""
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
MOMENTS: Final = {"google.protobuf.Timestamp": "timestamp", "google.protobuf.Duration": "duration"}
UNITS: Final = {"us": {"timestamp": "tsu:UTC", "duration": "tDu"}, "ns": {"timestamp": "tsn:UTC", "duration": "tDn"}}


class _Step(NamedTuple):
    """A field for the compiled decoder; ProtobufRows says what each part is."""

    number: int
    kind: str
    absent: str = "null"
    path: str = ""
    label: str = "one"
    child: int = -1
    oneof: int = 0
    is_group: bool = False
    message: Message | None = None
    fallback: bytes = b""
    words: tuple[tuple[int, str], ...] = ()


def _steps(fields: list[_Step]) -> Message:
    return tuple(
        (f.number, f.kind, f.label, f.absent, f.child, f.oneof, f.is_group, f.message, f.fallback, f.words, f.path)
        for f in fields
    )


def message_columns(
    descriptor: Any, wanted: Wanted | None = None, unit: str = "us", *, checked: bool = False
) -> tuple[Field, Message]:
    """Return the tree of a builder, and the fields for the compiled decoder, of a message with the wanted fields.

    Where `checked`, the tree has hidden nodes for the other fields, which are then checked; else they are skipped.
    IllegalArgument for an unknown wanted field, or for messages of too many columns or levels.
    """
    return _Maker(unit, checked).message("", descriptor, wanted, (), "")


def field_numbers(tree: Field, steps: Message) -> dict[str, int]:
    """Return the number of each column's field by its path; those within maps are left out."""
    found: dict[str, int] = {}
    for number, kind, label, _, child, _, _, message, _, _, path in steps:
        column = tree[3][child] if child >= 0 else None
        if column is not None and not column[1].startswith(HIDDEN):
            found[path] = number
            if message is not None and kind == "message" and label != "map":
                found |= field_numbers(column[3][0] if label == "many" else column, message)
    return found


class _Maker:
    def __init__(self, unit: str, checked: bool) -> None:
        if unit not in UNITS:
            raise IllegalArgument(f"unknown unit {unit!r}", hint=f"the units are {', '.join(UNITS)}")
        self._formats = UNITS[unit]
        self._checked = checked
        self._columns = 0

    def message(
        self, name: str, descriptor: Any, wanted: Wanted | None, around: tuple[str, ...], path: str
    ) -> tuple[Field, Message]:  # fmt: skip
        """Return the struct of a message's wanted fields, and their steps."""
        if len(around) >= MOST_LEVELS:
            raise IllegalArgument(f"messages are nested more than {MOST_LEVELS} levels deep, at {path}")
        by_name = {field.name: field for field in descriptor.fields}
        for want in wanted or ():
            if want not in by_name:
                raise unknown_field(f"{path}.{want}" if path else want, by_name)
        oneofs = {oneof.full_name: number for number, oneof in enumerate(descriptor.oneofs, 1)}
        chosen = [field for field in descriptor.fields if wanted is None or field.name in wanted]
        own = (*around, descriptor.full_name)
        columns: list[Field] = []
        steps: list[_Step] = []
        for field in chosen:
            below = None if wanted is None else wanted[field.name]
            assert not isinstance(below, str)
            oneof = 0 if field.containing_oneof is None else oneofs[field.containing_oneof.full_name]
            column, step = self._field(field, below, own, f"{path}.{field.name}" if path else field.name)
            steps.append(step._replace(child=len(columns), oneof=oneof))
            columns.append(column)
        for field in descriptor.fields:
            if field in chosen:
                continue
            oneof = 0 if field.containing_oneof is None else oneofs[field.containing_oneof.full_name]
            if self._checked:
                column, step = self._field(field, None, own, f"{path}.{field.name}" if path else field.name)
                steps.append(step._replace(child=len(columns), oneof=oneof))
                columns.append((column[0], HIDDEN + column[1], *column[2:]))
            elif oneof:  # it clears a wanted member of its oneof
                steps.append(_Step(field.number, "nowhere", oneof=oneof))
        self._columns += len(columns)
        if self._columns > MOST_COLUMNS:
            raise IllegalArgument(
                f"the message has more than {MOST_COLUMNS} columns", hint="give the wanted ones with fields="
            )
        return (name, "+s", True, tuple(columns), ()), _steps(steps)

    def _field(self, field: Any, wanted: Wanted | None, around: tuple[str, ...], path: str) -> tuple[Field, _Step]:
        """Return the column and the step of a field; its place and oneof are the caller's."""
        if is_map(field):
            if wanted is not None:
                raise IllegalArgument(f"{path} is a map, which is wanted whole", hint=f"give {path!r}")
            return self._map(field, around, path)
        many = is_repeated(field)
        column, step = self._value("item" if many else field.name, field, wanted, around, path)
        if many:
            return (field.name, "+l", True, (column,), ()), step._replace(label="many", absent="null")
        return column, step

    def _map(self, field: Any, around: tuple[str, ...], path: str) -> tuple[Field, _Step]:
        """Return the column of a map: its entries are messages whose fields always have a value."""
        key_field, value_field = field.message_type.fields_by_number[1], field.message_type.fields_by_number[2]
        key, key_step = self._value("key", key_field, None, around, f"{path}{{key}}")
        value, value_step = self._value("value", value_field, None, around, f"{path}{{value}}")
        value_step = value_step._replace(child=1, absent="empty" if value_step.kind == "message" else "default")
        if value_step.kind in MOMENTS.values():
            value_step = value_step._replace(fallback=bytes(8))
        entry = _steps([key_step._replace(child=0, absent="default"), value_step])
        pair: Field = ("entries", "+s", False, (("key", key[1], False, (), ()), value), ())
        column: Field = (field.name, "+m", True, (pair,), ())
        return column, _Step(field.number, "message", path=path, label="map", message=entry)

    def _value(
        self, name: str, field: Any, wanted: Wanted | None, around: tuple[str, ...], path: str
    ) -> tuple[Field, _Step]:  # fmt: skip
        """Return the column and the step of one value of a field."""
        absent = "error" if is_required(field) else "null"
        if field.type in SCALARS:
            if wanted is not None:
                raise unknown_field(f"{path}.{next(iter(wanted))}", ())
            kind, format, _ = SCALARS[field.type]
            if absent == "null" and (not field.has_presence or field.has_default_value):
                absent = "default"
            words = tuple((one.number, one.name) for one in field.enum_type.values) if kind == "enum" else ()
            step = _Step(field.number, kind, absent, path, fallback=_default(field), words=words)
            return (name, format, True, (), ()), step
        return self._message_value(name, field, wanted, around, path, absent)

    def _message_value(
        self, name: str, field: Any, wanted: Wanted | None, around: tuple[str, ...], path: str, absent: str
    ) -> tuple[Field, _Step]:  # fmt: skip
        type, is_group = field.message_type, field.type == GROUP
        full = type.full_name
        step = _Step(field.number, "message", absent, path, is_group=is_group)
        column: Field
        if full in around:
            step, column = step._replace(kind="cut"), (name, "z", True, (), ())
        elif full in MOMENTS:
            step, column = step._replace(kind=MOMENTS[full]), (name, self._formats[MOMENTS[full]], True, (), ())
        elif full in WRAPPERS:
            column, value = self._value(name, type.fields_by_number[1], None, around, path)
            message = _steps([value._replace(child=0, absent="default")])
            step = step._replace(kind="wrapper", message=message, fallback=value.fallback)
        else:
            column, message = self.message(name, type, wanted, around, path)
            step = step._replace(message=message)
        if step.kind != "message" and wanted is not None:
            raise unknown_field(f"{path}.{next(iter(wanted))}", ())
        return column, step


def _default(field: Any) -> bytes:
    """Return the default of a field as its column has it."""
    kind, _, packed = SCALARS[field.type]
    if is_repeated(field):
        return b""
    value = field.default_value
    if kind == "enum":
        known = field.enum_type.values_by_number.get(value)
        return str(value if known is None else known.name).encode()
    if packed:
        return struct.pack(packed, value)
    return value.encode() if isinstance(value, str) else bytes(value)


def is_repeated(field: Any) -> bool:
    """Return True for a repeated field, and for a map."""
    found = getattr(field, "is_repeated", None)  # older versions of the package have only the label
    return bool(field.label == 3 if found is None else found)


def is_required(field: Any) -> bool:
    """Return True for a field that a message must have."""
    found = getattr(field, "is_required", None)
    return bool(field.label == 2 if found is None else found)


def is_map(field: Any) -> bool:
    """Return True for a map."""
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)
