"""Records of plain v2 batches: tables, records, the check before an append, edits in place, and the pickers."""

from kafkalog._core.batch import pick
from kafkalog._core.batch.agree import record_fault
from kafkalog._core.batch.decode import RecordTable, decode
from kafkalog._core.batch.record import RecordIterator
from kafkalog._core.batch.scan import BatchTable, scan
from kafkalog._core.log import admit, assign

SEALS = True


def run(data: memoryview) -> None:
    """Everything that reads the records agrees on how many are sound; nothing reads outside the data."""
    table = scan(data, file_mode=True)
    if not table.count:
        return
    records = decode(data, table)
    check_records(records)
    check_each(data, table)
    for header in (table[0], table[-1]):
        at = header.position
        found = pick.pick(data[at:], header.base_offset)
        assert found is None or found.offset == header.base_offset
        pick.pick_by_time(data[at:], header.last_offset, header.max_timestamp, header.base_timestamp, -1)
        pick.find_record_by_time(data, at, header.max_timestamp, header.base_offset)
    copy = bytearray(data)
    try:
        after = assign.assign(copy, table, 1000, 3, 77)
    except ValueError:
        return
    assert after == scan(copy).last_offset + 1


def check_records(records: RecordTable) -> None:
    """Places lie in the data, and every way to a field gives the same."""
    total = len(records)
    assert len(records.offsets) == len(records.timestamps) == len(records.value_sizes) == total
    for row in range(min(total, 5)):
        record = records[row]
        value, view = record.value, record.value_view
        assert (view is None) == (value is None) and (view is None or bytes(view) == value)
        assert records.key(row) == record.key and len(record.headers) >= 0
        assert records.batch_of(row) < len(records.batches)
        assert record.timestamp_type in (-1, 0, 1)
    for record in RecordIterator([records], 3, 1 << 62):
        assert 3 <= record.offset < 1 << 62
    assert records.find(1 << 61) <= total and records.find_timestamp(5, 0) < max(total, 1)


def check_each(data: memoryview, table: BatchTable) -> None:
    """A batch that decodes whole is one that the check before an append takes."""
    for row in range(min(len(table), 2)):
        one = decode(data, table, row, row + 1)
        check = admit.check_rows(data, table, row, row + 1, oldest=0, newest=1 << 50)
        if table.magic(row) == 2:
            assert (check.status == 0) == (one.status == 0)
        record_fault(one)
    assert 0 <= admit.first_to_change(data, table) <= len(table)
