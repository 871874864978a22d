"""Keys and values of records in the browser, decoded if a decoder is in force: one record at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog._core.batch.decode import DamagedField
from kafkalog.errors import KafkalogError
from kafkalog.tools.consume.decoded import Serdes
from kafkalog.tools.decoders.plain import Decoder, as_text, decode_value
from kafkalog.tools.dump.control_text import control_value
from kafkalog.tools.dump.record_readers import internal_reader

if TYPE_CHECKING:
    from kafkalog._core.batch.record import Record
    from kafkalog.storage.readonly.view import LogView

_KEPT: Final = 1000


class Typed(NamedTuple):
    """A decoded key or value."""

    value: object


class Failed(NamedTuple):
    """The reason why a key or value cannot be decoded, and its bytes if they are known."""

    reason: str
    data: bytes | None = None


Part = bytes | str | Typed | Failed | None
"""A key or a value: bytes as they are, the text of a control record, decoded, not decodable, or null."""


def serdes_for(view: LogView | None, given: Serdes | None) -> Serdes | None:
    """Return the decoders of a log's records: those of Kafka's own topics, else the given ones."""
    reader = None if view is None else internal_reader(view.topic_partition.topic)
    return given if reader is None else Serdes(reader=reader)


def decode_record(record: Record, serdes: Serdes | None) -> tuple[Part, Part]:
    """Return the key and the value of a record; damage and bytes that no decoder takes are a `Failed`."""
    key = _field(record, "key")
    if record.is_control:
        return key, _control(record)
    value = _field(record, "value")
    if serdes is None:
        return key, value
    if serdes.reader is None:
        return _decoded(key, serdes.key, "key"), _decoded(value, serdes.value, "value")
    if isinstance(key, Failed) or isinstance(value, Failed):
        return key, value
    try:
        found_key, found_value = serdes.reader(record.key, record.value, record.offset)
    except KafkalogError as error:
        return None, Failed(f"damaged: {error}")
    return None if found_key is None else Typed(found_key), None if found_value is None else Typed(found_value)


class DecodedRecords:
    """Keys and values of records for the cells of a table; those of the last records are kept.

    A thread decodes them before the table is drawn, since a schema may have to be fetched.
    """

    def __init__(self, serdes: Serdes | None) -> None:
        self._serdes = serdes
        self._kept: dict[int, tuple[Record, tuple[Part, Part]]] = {}

    def parts(self, record: Record) -> tuple[Part, Part]:
        """Return the key and the value of a record."""
        found = self._kept.get(id(record))
        if found is None:
            if len(self._kept) >= _KEPT:
                self._kept = {}
            found = self._kept[id(record)] = record, decode_record(record, self._serdes)
        return found[1]

    def key(self, record: Record) -> bytes | str | None:
        """Return the key for a cell."""
        return _cell(self.parts(record)[0])

    def value(self, record: Record) -> bytes | str | None:
        """Return the value for a cell."""
        return _cell(self.parts(record)[1])


def _cell(part: Part) -> bytes | str | None:
    if isinstance(part, Typed):
        return as_text(part.value)
    if isinstance(part, Failed):
        return part.reason if part.data is None else part.data
    return part


def record_key(record: Record) -> bytes | None:
    """Return the key of a record; None without one, for a control record, and for a damaged key."""
    key = None if record.is_control else _field(record, "key")
    return key if isinstance(key, bytes) else None


def value_bytes(record: Record) -> int | None:
    """Return the size of a value; None for null and for a damaged one."""
    try:
        value = record.value_view
    except DamagedField:
        return None
    return None if value is None else len(value)


def _field(record: Record, name: str) -> bytes | Failed | None:
    """Return a key or a value; in a message of an old format it may run past the end."""
    try:
        found: bytes | None = getattr(record, name)
    except DamagedField as error:
        return Failed(f"damaged: {error}")
    return found


def _control(record: Record) -> str | Failed:
    try:
        return str(control_value(record.key, record.value))
    except KafkalogError as error:
        return Failed(f"damaged: {error.message}")


def _decoded(part: bytes | Failed | None, decoder: Decoder | None, name: str) -> Part:
    if decoder is None or not isinstance(part, bytes):
        return part
    try:
        return Typed(decode_value(decoder, part, name))
    except KafkalogError as error:
        return Failed(error.message, part)
