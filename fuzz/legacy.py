"""Batches of every format and codec, made plain and decoded: messages of v0 and v1, wrappers, compressed batches."""

from kafkalog._core.batch.decode import DamagedField
from kafkalog._core.batch.legacy import wrapper
from kafkalog._core.batch.repack import with_payload
from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord, UnsupportedForFormat
from kafkalog.records.batch import RecordBatch
from kafkalog.records.compression import compress
from kafkalog.records.plain_runs import plain_row
from kafkalog.records.tables import record_tables

SEALS = True
LIMIT_BYTES = 1 << 16
REFUSED = (CorruptRecord, InvalidRecord, IllegalArgument, UnsupportedForFormat)
SNAPPY, LZ4 = 2, 3


def run(data: memoryview) -> None:
    """The data as they are, or as what a wrapper or a compressed v2 batch holds, by the lowest bits of the offset."""
    kind = data[7] % 8 if len(data) >= 26 else 7
    table = scan(data, check_crc=False, file_mode=True)
    if kind < 2:
        made = wrapper(compress(SNAPPY, data), magic=kind, codec=SNAPPY, offset=int(data[25]), timestamp=7)
        read(made, scan(made, check_crc=False))
    elif kind == 2 and table.count and table.magic(0) == 2 and table.size(0) >= 61:
        made = with_payload(data[: table.size(0)], compress(LZ4, data[61 : table.size(0)]), LZ4)
        read(made, scan(made, check_crc=False))
    elif kind == 3:
        for row in range(min(len(table), 3)):
            by_batch(data, table, row)
    else:
        read(data, table)


def read(data: memoryview | bytearray, table: BatchTable) -> None:
    """Every record of every batch, up to the first damage, whose error names file and position."""
    seen = 0
    try:
        for records in record_tables(data, table, path="f.log", limit_bytes=LIMIT_BYTES):
            for record in records:
                assert len(record.key or b"") + len(record.value or b"") <= max(LIMIT_BYTES, len(data))
                assert record.headers is not None
                seen += 1
                if seen > 9:
                    return
    except REFUSED as error:
        assert error.path == "f.log" and error.position is not None and 0 <= error.position <= len(data)


def by_batch(data: memoryview, table: BatchTable, row: int) -> None:
    """One batch by the class that tests and tools use, and as the dump tool makes it plain."""
    try:
        batch = RecordBatch(data, table, row)
        for record in batch.decode():
            try:
                record.key, record.value  # noqa: B018
            except DamagedField:
                continue
    except REFUSED as error:
        assert error.position is not None
    if table.attributes(row) & 7:
        try:
            plain_row(data, table, row, path="f.log", limit_bytes=LIMIT_BYTES)
        except REFUSED as error:
            assert error.path == "f.log" and error.position is not None
