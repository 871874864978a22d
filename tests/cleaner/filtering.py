"""A clean of bytes in memory: generated batches, the map built the slow way, the result checked record by record."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kafkalog._core.batch.scan import BatchHeader, scan
from kafkalog._core.clean.last_records import LastRecords
from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.retain import Retainer
from kafkalog.cleaner.transactions import CleanedTransactions
from kafkalog.records.batch import RecordBatch
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import marker_batch
from kafkalog.records.filter import FilterResult
from kafkalog.records.memory import MemoryRecords
from kafkalog.storage.index.aborted_txns import AbortedTxn

NOW = 1_700_000_000_000
RETENTION_MS = 1000
Pair = tuple[bytes | None, bytes | None]


def build_batch(base_offset: int, *pairs: Pair, **fields: Any) -> bytes:
    """One v2 batch, a ms from record to record."""
    builder = RecordsBuilder(base_offset, **fields)
    for number, (key, value) in enumerate(pairs):
        builder.append(NOW + number, key, value)
    return bytes(builder.build())


def build_producer_batch(base_offset: int, producer: int, sequence: int, *keys: int, txn: bool = False) -> bytes:
    """One batch of a producer, a record for each key."""
    pairs = [(b"%d" % key, b"%d@%d" % (key, base_offset + i)) for i, key in enumerate(keys)]
    return build_batch(
        base_offset,
        *pairs,
        producer_id=producer,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=txn,
    )


def build_marker(base_offset: int, producer: int, *, commits: bool) -> bytes:
    kind = ControlType.COMMIT if commits else ControlType.ABORT
    return bytes(marker_batch(kind, producer, 0, 0, timestamp=NOW, base_offset=base_offset))


def list_batches(data: Any) -> list[RecordBatch]:
    return list(MemoryRecords(bytes(data)).batches())


def list_offsets(data: Any) -> list[int]:
    """Offsets of all records, markers too."""
    return [record.offset for batch in list_batches(data) for record in batch.records()]


def list_pairs(data: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(r.offset, r.key, r.value) for batch in list_batches(data) for r in batch.records()]


def list_last_offsets(data: Any) -> list[int]:
    return [batch.last_offset for batch in list_batches(data)]


def header_fields(header: BatchHeader) -> tuple[Any, ...]:
    """Return what a table says of a batch, except checksums, which a clean need not compare."""
    times = header.base_timestamp, header.max_timestamp, header.delete_horizon_ms
    return header.position, header.size, header.base_offset, header.last_offset, header.attributes, times


class Cleaned(NamedTuple):
    """Result of a clean, and the aborted transactions of the new index."""

    result: FilterResult
    data: bytes
    retained: list[AbortedTxn]


@dataclass
class Cleaner:
    """The rules of a log's cleans; `last` is producer id -> (last data offset or -1, epoch)."""

    last: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    retain_legacy_deletes: bool = True
    delete_retention_ms: int = RETENTION_MS
    map_bytes: int = 24 * 1000
    most_keys: int = 1 << 30

    def clean(
        self,
        data: bytes,
        *,
        dirty: int = 0,
        end: int | None = None,
        now: int = NOW,
        aborted: Iterable[AbortedTxn] = (),
        map_end: int = 0,
        chunk_bytes: int = 1 << 30,
    ) -> Cleaned:
        """One round over `data`, keys from `dirty` on, up to `end` (all of it), in pieces of `chunk_bytes`.

        `map_end` is where the map ends at the least, past a gap.
        """
        aborted = list(aborted)
        batches = list_batches(data)
        upper = batches[-1].last_offset + 1 if end is None else end
        offset_map = self.mapped(data, dirty, upper, aborted)
        if map_end:
            offset_map.update_latest_offset(map_end - 1)
        transactions = CleanedTransactions()
        transactions.add_aborted(aborted)
        retainer = Retainer(
            offset_map,
            transactions,
            now_ms=now,
            delete_retention_ms=self.delete_retention_ms,
            upper_bound_offset=upper,
        )
        last = LastRecords((producer, *fields) for producer, fields in self.last.items())
        retainer.begin_segment("a.log", retain_legacy_deletes=self.retain_legacy_deletes, last_records=last)
        out, at = b"", 0
        while at < len(data):
            result = retainer.filter(data[at : at + chunk_bytes], at)
            assert result.bytes_read, "a chunk has to hold a batch"
            assert [header_fields(one) for one in result.table] == [header_fields(one) for one in scan(result.data)]
            out += bytes(result.data)
            at += result.bytes_read
        return Cleaned(result, out, transactions.take_retained())

    def mapped(self, data: bytes, dirty: int, end: int, aborted: Iterable[AbortedTxn]) -> SkimpyOffsetMap:
        """The offset map, record by record."""
        offset_map = SkimpyOffsetMap(self.map_bytes)
        transactions = CleanedTransactions()
        transactions.add_aborted(aborted)
        records = MemoryRecords(data)
        for row, batch in enumerate(records.batches()):
            gone = transactions.core.feed(data, records.table, row)
            if batch.base_offset >= end:
                break
            for record in batch.records():
                if record.key is None or record.offset < dirty or gone or batch.header.is_control:
                    continue
                if offset_map.size >= self.most_keys:
                    return offset_map
                offset_map.put(record.key, record.offset)
            offset_map.update_latest_offset(batch.last_offset)
        return offset_map
