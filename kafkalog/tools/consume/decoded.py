"""Writer of records as text with decoded keys and values: `kafkalog consume -s`.

The templates are those of `tools.templates`, filled here piece by piece: a decoder is Python, one call for each value.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, BinaryIO, Final, NamedTuple

from kafkalog._core.batch.record import Record
from kafkalog._core.text import template as kind
from kafkalog.errors import IllegalArgument, InvalidRecord
from kafkalog.records.json_text import json_text
from kafkalog.tools.consume.templates import Pieces
from kafkalog.tools.consume.text import MAX_OFFSET, Written
from kafkalog.tools.decoders.named import decoder
from kafkalog.tools.decoders.plain import Decoder, as_text, decode_value
from kafkalog.tools.dump.record_readers import INTERNAL_READERS, RecordReader

if TYPE_CHECKING:
    from kafkalog.storage.segment_reader import Chunk

CONTROL_BIT: Final = 0x20
FLUSH_BYTES: Final = 1 << 18
WITH_SCHEMA: Final = ("avro", "json", "protobuf")
_TIMESTAMP_TYPES: Final = {-1: b"unknown", 0: b"create", 1: b"logappend"}
_KEYS: Final = {kind.KEY, kind.KEY_BASE64, kind.KEY_HEX}
_VALUES: Final = {kind.VALUE, kind.VALUE_BASE64, kind.VALUE_HEX}


class Serdes(NamedTuple):
    """The decoders of keys and of values; None leaves the bytes as they are.

    `reader` decodes whole records, and its `parts` are taken instead.
    """

    key: Decoder | None = None
    value: Decoder | None = None
    reader: RecordReader | None = None
    parts: tuple[str, ...] = ("key", "value")

    def of(self, record: Record) -> Serdes:
        """Return the decoders of one record: with a `reader`, what it made of the record."""
        if self.reader is None:
            return self
        key, value = self.reader(record.key, record.value, record.offset)
        return Serdes(
            (lambda _: key) if "key" in self.parts else self.key,
            (lambda _: value) if "value" in self.parts else self.value,
        )


def parse_serdes(
    given: Iterable[str], schemas: str | None = None, schema: str | int | None = None, message: str | None = None
) -> Serdes | None:
    """Parse kcat's -s flags: `key=NAME`, `value=NAME`, or NAME for both; None if there is no flag.

    NAME is that of a decoder, or one of INTERNAL_READERS. `schema` and `message` are those of the value, or of the key
    if it alone is decoded. IllegalArgument for an unknown name, for names of two internal topics, and for a schema
    without a decoder that takes one.
    """
    names: dict[str, str] = {}
    for text in given:
        part, equals, name = text.partition("=")
        if equals and part not in ("key", "value"):
            raise IllegalArgument(f"-s {text}: {part!r} is neither key nor value")
        names |= dict.fromkeys([part] if equals else ["key", "value"], name if equals else text)
    has_schema = schema is not None or message is not None
    described = "value" if "value" in names else "key"
    if has_schema and names.get(described) not in WITH_SCHEMA:
        raise IllegalArgument(
            "a schema is given, and no decoder takes it", hint=f"give -s {described}=avro, protobuf or json"
        )
    if not names:
        return None
    internal = {name for name in names.values() if name in INTERNAL_READERS}
    if len(internal) > 1:
        raise IllegalArgument(
            f"-s {' and '.join(sorted(internal))}: records are of one internal topic",
            hint="give the same name for both",
        )
    parts = {which: decoder(name, schemas=schemas) for which, name in names.items()
             if name not in internal and not (has_schema and which == described)}
    if has_schema:
        parts[described] = decoder(names[described], schemas=schemas, schema=schema, message=message)
    return Serdes(
        parts.get("key"),
        parts.get("value"),
        INTERNAL_READERS[internal.pop()]() if internal else None,
        tuple(names.keys() - parts.keys()),
    )


def write_decoded(
    chunks: Iterable[Chunk],
    out: BinaryIO,
    pieces: Pieces,
    serdes: Serdes,
    *,
    first_offset: int = 0,
    end_offset: int = MAX_OFFSET,
    max_records: int = -1,
) -> Written:
    """Write records like `tools.consume.write_records`, with decoded keys and values, of every format and codec.

    DecodeError names file and offset of the first record whose key or value a decoder rejects.
    """
    written, next_offset = 0, first_offset
    buffer = bytearray()
    try:
        for chunk in chunks if max_records != 0 and first_offset < end_offset else ():
            for record in _records(chunk):
                if record.offset < next_offset:
                    continue
                if record.offset >= end_offset:
                    return Written(written, next_offset)
                buffer += render(record, pieces, serdes, chunk.path)
                written, next_offset = written + 1, record.offset + 1
                if written == max_records:
                    return Written(written, next_offset)
                if len(buffer) >= FLUSH_BYTES:
                    out.write(buffer)
                    buffer.clear()
        return Written(written, next_offset)
    finally:
        out.write(buffer)


def _records(chunk: Chunk) -> Iterable[Record]:
    """Yield the records of a chunk without those of control batches."""
    for table in chunk.record_tables():
        batches = table.batches
        for row in range(len(table)):
            if not batches.attributes(table.batch_of(row)) & CONTROL_BIT:
                yield table[row]


def render(record: Record, pieces: Pieces, serdes: Serdes, path: str) -> bytes:
    """Return the text of one record; raise DecodeError, with file and offset, for what a decoder rejects."""
    try:
        values = serdes.of(record)
        return b"".join(_piece(piece, text, record, values) for piece, text in pieces)
    except InvalidRecord as error:
        raise type(error)(error.message, path=path, offset=record.offset, hint=error.hint) from error


def _piece(piece: int, text: bytes, record: Record, serdes: Serdes) -> bytes:
    """Return one piece of a template for one record.

    `text` is that of a literal or of null, or an encoding for JSON.
    """
    if piece == kind.LITERAL:
        return text
    if piece in _KEYS:
        return _render_data(piece, record.key, serdes.key, "key", text)
    if piece in _VALUES:
        return _render_data(piece, record.value, serdes.value, "value", text)
    if piece == kind.JSON_KEY:
        return _render_json("key", record.key, serdes.key, "key", text)
    if piece == kind.JSON_VALUE:
        return _render_json("payload", record.value, serdes.value, "value", text)
    return _FIELDS[piece](record)


def _render_data(piece: int, data: bytes | None, decode: Decoder | None, what: str, null: bytes) -> bytes:
    if data is None:
        return null
    if decode is not None:
        return as_text(decode_value(decode, data, what)).encode(errors="replace")
    if piece in (kind.KEY_BASE64, kind.VALUE_BASE64):
        return base64.b64encode(data)
    return data.hex().encode() if piece in (kind.KEY_HEX, kind.VALUE_HEX) else data


def _render_json(name: str, data: bytes | None, decode: Decoder | None, what: str, encoding: bytes) -> bytes:
    """Return `"key":...`; decoded values are JSON values, others text or encoded, as without a decoder."""
    if data is None:
        return f'"{name}":null'.encode()
    if decode is not None:
        return f'"{name}":{json_text(decode_value(decode, data, what))}'.encode(errors="replace")
    text, used = _json_bytes(data, encoding.decode())
    extra = f',"{name}_encoding":"{used}"' if used else ""
    return f'"{name}":{json.dumps(text, ensure_ascii=False)}{extra}'.encode()


def _json_bytes(data: bytes, encoding: str) -> tuple[str, str]:
    """Return the bytes as a string, and the encoding used, "" for UTF-8."""
    if not encoding:
        try:
            return data.decode(), ""
        except UnicodeDecodeError:
            encoding = "base64"
    return (data.hex() if encoding == "hex" else base64.b64encode(data).decode()), encoding


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _headers(record: Record) -> bytes:
    """Return `name=value` pairs separated by commas; NULL for a null value."""
    return b",".join(
        name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers
    )


def _json_headers(record: Record) -> bytes:
    """Return `,"headers":[...]`, or nothing without headers."""
    pairs = record.headers
    if not pairs:
        return b""
    parts: list[bytes | None] = [part for name, value in pairs for part in (name.encode(), value)]
    try:
        flat = [None if part is None else part.decode() for part in parts]
        extra = ""
    except UnicodeDecodeError:
        flat = [None if part is None else base64.b64encode(part).decode() for part in parts]
        extra = ',"headers_encoding":"base64"'
    return f',"headers":{json.dumps(flat, ensure_ascii=False, separators=(",", ":"))}{extra}'.encode()


_FIELDS: Final[dict[int, Callable[[Record], bytes]]] = {
    kind.OFFSET: lambda record: b"%d" % record.offset,
    kind.TIMESTAMP: lambda record: b"%d" % record.timestamp,
    kind.TIMESTAMP_TYPE: lambda record: _TIMESTAMP_TYPES[record.timestamp_type],
    kind.VALUE_SIZE: lambda record: b"%d" % _size(record.value),
    kind.KEY_SIZE: lambda record: b"%d" % _size(record.key),
    kind.VALUE_SIZE_32: lambda record: struct.pack(">i", _size(record.value)),
    kind.HEADERS: _headers,
    kind.JSON_HEADERS: _json_headers,
}
