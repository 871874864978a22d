"""Control records: transaction markers and the records of KRaft (format.md section 3).

A control record's key holds its type and its value the content. Consumers never see control records. Types that this
version does not know are kept unchanged.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.records.message import UNDERFLOW, MessageError, Source

if TYPE_CHECKING:
    from kafkalog.records.schema import Message

_SHORT: Final = "a control record's key or value is too short"
_KEY: Final = struct.Struct(">hh")
_MARKER: Final = struct.Struct(">hi")
_NEWEST: Final = 0
"""Version of the keys and values that are written."""


class ControlType(IntEnum):
    """Type of a control record, by the number in its key; undefined numbers are UNKNOWN."""

    UNKNOWN = -1
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6

    @property
    def is_marker(self) -> bool:
        """True for ABORT and COMMIT, which end a transaction."""
        return self in _MARKERS


_MARKERS: Final = frozenset({ControlType.ABORT, ControlType.COMMIT})


class ControlRecord(NamedTuple):
    """Content of a control record.

    `number` is the type's number in the key; it distinguishes UNKNOWN records. `coordinator_epoch` is set for markers.
    `data` holds the fields of a KRaft record, by Kafka's names.
    """

    type: ControlType
    number: int
    coordinator_epoch: int | None = None
    data: Message | None = None


def type_number(key: bytes | None) -> int:
    """Return the number of a control record's type.

    Raises InvalidRecord for a key below 4 bytes or of a negative version (REC-32). Keys of later versions are read as
    version 0; bytes after the number are ignored.
    """
    if key is None or len(key) < _KEY.size:
        raise InvalidRecord(_SHORT)
    version, number = _KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecord(f"the key of a control record has version {version}")
    return int(number)


def control_type(key: bytes | None) -> ControlType:
    """Return the type of a control record with this key; errors as for `type_number`.

    >>> control_type(bytes([0, 0, 0, 1]))
    <ControlType.COMMIT: 1>
    """
    return _type_of(type_number(key))


def _type_of(number: int) -> ControlType:
    return ControlType(number) if number in ControlType._value2member_map_ else ControlType.UNKNOWN


def control_record(key: bytes | None, value: bytes | None) -> ControlRecord:
    """Parse a control record; raise InvalidRecord for a malformed key or value (REC-32, REC-48).

    The value of an UNKNOWN record is ignored.

    >>> control_record(*marker_parts(ControlType.COMMIT, 7)).coordinator_epoch
    7
    """
    number = type_number(key)
    kind = _type_of(number)
    if kind.is_marker:
        return ControlRecord(kind, number, coordinator_epoch=_coordinator_epoch(value))
    if kind == ControlType.UNKNOWN:
        return ControlRecord(kind, number)
    return ControlRecord(kind, number, data=_data(kind, value))


def _data(kind: ControlType, value: bytes | None) -> Message:
    """Parse the fields of a KRaft record. The first is their version, yet the reference uses version 0 for all."""
    from kafkalog.records.schemas.control import VALUES

    if value is None:
        raise InvalidRecord(_SHORT)
    try:
        return VALUES[kind].read(Source(value), 0)
    except MessageError as error:
        what = "it ends inside a field" if error.message == UNDERFLOW else error.message
        raise InvalidRecord(f"the control record cannot be read: {what}") from None


def _coordinator_epoch(value: bytes | None) -> int:
    """Return the epoch in a marker's value; later versions may add bytes after it (REC-48)."""
    if value is None or len(value) < _MARKER.size:
        raise InvalidRecord(_SHORT)
    version, epoch = _MARKER.unpack_from(value)
    if version < 0:
        raise InvalidRecord(f"the value of a transaction marker has version {version}")
    return int(epoch)


def marker_parts(kind: ControlType, coordinator_epoch: int) -> tuple[bytes, bytes]:
    """Return key and value of a transaction marker; raise IllegalArgument unless `kind` is ABORT or COMMIT.

    >>> [part.hex() for part in marker_parts(ControlType.COMMIT, 7)]
    ['00000001', '000000000007']
    """
    if not ControlType(kind).is_marker:
        raise IllegalArgument(f"{ControlType(kind).name} does not end a transaction", hint="ABORT and COMMIT do")
    try:
        return _KEY.pack(_NEWEST, kind), _MARKER.pack(_NEWEST, coordinator_epoch)
    except struct.error:
        raise IllegalArgument(f"coordinator epoch {coordinator_epoch} does not fit 32 bits") from None


def control_parts(kind: ControlType, data: Mapping[str, object]) -> tuple[bytes, bytes]:
    """Return key and value of a KRaft control record with these fields, named as in `ControlRecord.data`.

    `version` defaults to 0. Raises IllegalArgument for a marker, an UNKNOWN type, or fields that do not fit.

    >>> key, value = control_parts(ControlType.KRAFT_VERSION, {"kRaftVersion": 1})
    >>> control_record(key, value).data
    {'version': 0, 'kRaftVersion': 1}
    """
    from kafkalog.records.encoder import encoded
    from kafkalog.records.schemas.control import VALUES

    kind = ControlType(kind)
    if kind not in VALUES:
        raise IllegalArgument(f"{kind.name} is not a control record of KRaft", hint="marker_parts makes markers")
    return _KEY.pack(_NEWEST, kind), encoded(VALUES[kind], {"version": _NEWEST, **data}, 0)
