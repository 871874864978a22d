"""The dump tool's findings as JSON lines: one object for each batch, record, entry and complaint.

Every object has `type` and `file`. Names are those of the reference's text. Keys, payloads and header values are text
if they are UTF-8, else base64, as given in `key_encoding`, `payload_encoding` and `headers_encoding`.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO, Final

from kafkalog._core.batch.record import Record
from kafkalog._core.batch.scan import REASON_SIZE, BatchHeader, scan
from kafkalog.errors import InvalidRecord
from kafkalog.records.format import MAGIC_V2, MAX_SEQUENCE, TimestampType, codec_name
from kafkalog.records.json_text import json_text
from kafkalog.storage.file_slice import HEADER_BYTES
from kafkalog.storage.index.aborted_txns import AbortedTxn
from kafkalog.storage.producer_snapshot import ProducerEntry
from kafkalog.tools.dump.batch_records import records_of
from kafkalog.tools.dump.complaints import Complaints, Pair
from kafkalog.tools.dump.control_text import control_value
from kafkalog.tools.dump.options import DumpOptions
from kafkalog.tools.dump.printer import TextPrinter, first_sequence
from kafkalog.tools.dump.record_readers import RecordReader
from kafkalog.tools.dump.window import FileWindow
from kafkalog.tools.render_errors import size_error

_TIMESTAMP_TYPES: Final = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
_COMPLAINTS: Final = {
    "index_mismatches": ("indexMismatch", "indexOffset", "logOffset"),
    "time_mismatches": ("timestampMismatch", "indexTimestamp", "logTimestamp"),
    "times_out_of_order": ("timestampOutOfOrder", "indexTimestamp", "previousTimestamp"),
    "offsets_not_found": ("offsetNotFound", "indexOffset", "logOffset"),
    "non_consecutive": ("nonConsecutiveOffsets", "offset", "nextOffset"),
}


class JsonPrinter:
    """Prints JSON lines; it has the methods of `TextPrinter`."""

    def __init__(self, out: BinaryIO) -> None:
        self._out = out

    def _line(self, kind: str, path: str, **fields: object) -> None:
        self._out.write(json_text({"type": kind, "file": path} | fields).encode(errors="replace") + b"\n")

    def begin(self, path: str) -> None:
        """Print nothing: a file has no separate line."""

    def title(self, path: str, title: str) -> None:
        """Print nothing: the file's name has the information."""

    def log(
        self, path: str, window: FileWindow, options: DumpOptions, reader: RecordReader | None
    ) -> list[Pair]:
        """Print a line for each batch and, if records are requested, one for each of its records after it."""
        before, jumps = -1, []
        for header, batch in batches(path, window):
            self._line("batch", path, **batch_fields(header))
            if not options.deep:
                continue
            where: dict[str, Any] = {"path": path, "offset": header.base_offset, "position": header.position}
            for record in records_of(batch, **where):
                if record.offset != before + 1:
                    jumps.append((before, record.offset))
                before = record.offset
                try:
                    self._line("record", path, **record_fields(header, record, options, reader))
                except InvalidRecord as error:
                    raise type(error)(error.message, **(where | {"offset": record.offset}), hint=error.hint) from error
        return jumps

    def left_over(self, path: str, position: int, count: int) -> None:
        """Print a line for bytes after the last complete batch."""
        self._line("invalidBytes", path, position=position, count=count)

    def entries(self, path: str, base_offset: int, data: bytes, *, times: bool, first: bool) -> None:
        """Print a line for each entry of an index."""
        if times:
            for timestamp, relative in struct.iter_unpack(">qi", data):
                self._line("timeIndexEntry", path, timestamp=timestamp, offset=base_offset + relative)
        else:
            for relative, position in struct.iter_unpack(">ii", data):
                self._line("indexEntry", path, offset=base_offset + relative, position=position)

    def empty(self, path: str) -> None:
        """Print a line for an offset index without entries."""
        self._line("emptyIndex", path)

    def passed(self, path: str) -> None:
        """Print a line for an index that passed its sanity check."""
        self._line("sanityCheck", path, passed=True)

    def aborted(self, path: str, entry: AbortedTxn) -> None:
        """Print a line for an aborted transaction."""
        self._line(
            "abortedTransaction",
            path,
            version=entry.version,
            producerId=entry.producer_id,
            firstOffset=entry.first_offset,
            lastOffset=entry.last_offset,
            lastStableOffset=entry.last_stable_offset,
        )

    def producer(self, path: str, entry: ProducerEntry) -> None:
        """Print a line for a producer of a snapshot; without batch data it has no sequence numbers and offsets."""
        first = entry.current_txn_first_offset
        fields: dict[str, object] = {
            "producerId": entry.producer_id,
            "producerEpoch": entry.producer_epoch,
            "coordinatorEpoch": entry.coordinator_epoch,
            "currentTxnFirstOffset": None if first < 0 else first,
            "lastTimestamp": entry.timestamp,
        }
        if entry.last_offset >= 0:
            fields |= {
                "firstSequence": first_sequence(entry),
                "lastSequence": entry.last_sequence,
                "lastOffset": entry.last_offset,
                "offsetDelta": entry.offset_delta,
            }
        self._line("producer", path, **fields)

    def complain(self, complaints: Complaints) -> None:
        """Print a line for each complaint."""
        for attribute, (kind, one, other) in _COMPLAINTS.items():
            for path, pairs in getattr(complaints, attribute).items():
                for pair in pairs:
                    self._line(kind, path, **{one: pair[0], other: pair[1]})


Printer = TextPrinter | JsonPrinter


def batches(path: str, window: FileWindow) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield header and bytes of each complete batch of the window's file; the window ends after the last one.

    CorruptRecord if a size field is below the smallest legal one.
    """
    more = window.advance(0, 1)
    while more:
        table = scan(
            window.buffer, window.start, window.stop, file_mode=True, base_position=window.base_position
        )
        base = window.base_position
        for header in table:
            at = header.position - base
            with memoryview(window.buffer) as view:
                batch = bytes(view[at : at + header.size])
            yield header, batch
        if table.stop_reason == REASON_SIZE and window.end - table.stop_position > HEADER_BYTES:
            raise size_error(table.stop_value, path, table.stop_position)
        end = table.stop_position - base
        needed = HEADER_BYTES + 1
        if window.stop - end >= needed:
            needed = int.from_bytes(window.buffer[end + 8 : end + 12], "big", signed=True) + 12
        more = window.advance(end, needed)


def batch_fields(header: BatchHeader) -> dict[str, object]:
    """Return the fields of a batch line; formats v0 and v1 have fewer."""
    kind = TimestampType.NO_TIMESTAMP_TYPE if header.magic <= 0 else TimestampType(header.timestamp_type)
    fields: dict[str, object] = {"position": header.position, "size": header.size, "magic": header.magic}
    if header.magic >= MAGIC_V2:
        fields |= {
            "baseOffset": header.base_offset,
            "lastOffset": header.last_offset,
            "count": header.count,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "partitionLeaderEpoch": header.leader_epoch,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "deleteHorizonMs": header.delete_horizon_ms,
        }
    else:
        fields["offset"] = header.last_offset
    return fields | {
        "timestampType": _TIMESTAMP_TYPES[kind],
        "maxTimestamp": header.max_timestamp,
        "compression": codec_name(header.compression),
        "crc": header.crc,
        "isValid": header.is_valid,
    }


def record_fields(
    header: BatchHeader, record: Record, options: DumpOptions, reader: RecordReader | None
) -> dict[str, object]:
    """Return the fields of a record line; InvalidRecord for a control record or a value that cannot be read."""
    fields: dict[str, object] = {}
    key, value = record.key, record.value
    if not options.skip_record_metadata:
        fields = {
            "offset": record.offset,
            "timestampType": _TIMESTAMP_TYPES[TimestampType(record.timestamp_type)],
            "timestamp": record.timestamp,
            "keySize": -1 if key is None else len(key),
            "valueSize": -1 if value is None else len(value),
        }
        if header.magic >= MAGIC_V2:
            delta = record.offset - header.base_offset
            fields["sequence"] = -1 if header.base_sequence < 0 else (header.base_sequence + delta) & MAX_SEQUENCE
            fields |= _headers(record)
    if header.is_control:
        return fields | {"control": control_value(key, value)}
    return fields | _parts(key, value, record.offset, reader) if options.data else fields


def _headers(record: Record) -> dict[str, object]:
    """Return names and values in turn, as kcat prints them; all values are base64 if one of them is not UTF-8."""
    pairs = record.headers
    texts = [None if value is None else _text(value) for _, value in pairs]
    encoded = any(text is None and value is not None for text, (_, value) in zip(texts, pairs, strict=True))
    if encoded:
        texts = [None if value is None else base64.b64encode(value).decode() for _, value in pairs]
    parts = [part for (name, _), text in zip(pairs, texts, strict=True) for part in (name, text)]
    fields: dict[str, object] = {"headers": parts}
    return fields | ({"headers_encoding": "base64"} if encoded else {})


def _parts(key: bytes | None, value: bytes | None, offset: int, reader: RecordReader | None) -> dict[str, object]:
    if reader is not None:
        key_value, payload = reader(key, value, offset)
        return {"key": key_value, "payload": payload}
    fields: dict[str, object] = {}
    for name, data in (("key", key), ("payload", value)):
        text = None if data is None else _text(data)
        fields[name] = text
        if data is not None and text is None:
            fields[name] = base64.b64encode(data).decode()
            fields[f"{name}_encoding"] = "base64"
    return fields


def _text(data: bytes) -> str | None:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return None
