"""The last record of an exported range, by which a later run finds that its log was cut and written again."""

from __future__ import annotations

from dataclasses import dataclass

from kafkalog._core.batch.scan import scan
from kafkalog._core.bytes.crc import crc32c
from kafkalog.errors import KafkalogError
from kafkalog.records.tables import batch_table
from kafkalog.storage.readonly.view import LogView


@dataclass(frozen=True, slots=True)
class LastRecord:
    """A record's offset, and the CRC-32C of its timestamp, key, value and headers."""

    offset: int
    crc32c: int


def last_record(view: LogView, start: int, stop: int) -> LastRecord | None:
    """Return the last record with an offset in [start, stop), None if the batch at `stop` - 1 cannot give one.

    It is gone from there after a compaction, and markers of transactions are no records. Damage is not looked for: to
    read the range reports it.
    """
    try:
        segment = view.segment_of(stop - 1)
        found = None if segment is None else segment.translate_offset(stop - 1)
        if segment is None or found is None or found[0] >= stop:
            return None
        batch = segment.batch_with(found[0])
        table = scan(batch)
        if not batch or table[0].is_control:
            return None
        for record in reversed(list(batch_table(batch, table, 0))):
            if start <= record.offset < stop:
                content = (record.timestamp, record.key, record.value, tuple(map(tuple, record.headers)))
                return LastRecord(record.offset, crc32c(repr(content).encode()))
    except KafkalogError:
        pass
    return None
