"""Batch headers: the scan of memory and of files, the walks that look for one batch, and the checks of a header."""

from kafkalog._core.batch import pick
from kafkalog._core.batch.scan import BatchTable, find_max_timestamp, find_offset, scan
from kafkalog._core.log import plan, roll

SEALS = True
RULES = roll.RollRules(0, 1 << 30, 1 << 40, 0, 100)
EMPTY = roll.SegmentTail()


def run(data: memoryview) -> None:
    """Rows lie end to end inside the data, and every walk ends inside it."""
    size = len(data)
    memory = scan(data)
    check_rows(memory, size, 0)
    part = scan(data, size // 3, base_position=100, file_mode=True, max_batches=3)
    check_rows(part, size - size // 3, 100 + size // 3)
    in_file = scan(data, check_crc=False, file_mode=True)
    check_rows(in_file, size, 0)
    assert in_file.valid_bytes >= memory.valid_bytes
    for row in range(min(len(memory), 3)):
        header = memory[row]
        assert memory.header_fault(row) in range(6)
        assert header.next_offset is not None and repr(header)
        assert header.last_sequence < 1 << 31 and header.timestamp_type in (-1, 0, 1)
    plan.offsets_rise(memory, 3)
    plan.first_without_epoch(memory, 0)
    if len(memory):
        plan.plan_append(memory, 0, EMPTY, RULES, 0, True, True)
    check_walks(data, memory, size)


def check_rows(table: BatchTable, size: int, start: int) -> None:
    """The sizes of all rows add up to what the table says it covers."""
    assert sum(table.sizes) == table.valid_bytes <= size
    assert table.stop_position == start + table.valid_bytes
    assert list(table.positions)[:1] in ([], [start])


def check_walks(data: memoryview, table: BatchTable, size: int) -> None:
    """A walk finds what the table has, and nothing outside the data."""
    largest = table.max_timestamp
    for target in (-1, table.last_offset, 1 << 62):
        found = find_offset(data, target)
        assert -1 <= found.position < max(size, 1)
    for target, start in ((largest, 0), (5, size // 2)):
        found = find_max_timestamp(data, target, start)
        assert -1 <= found.position < max(size, 1)
    pick.find_record_by_time(data, 0, largest, -1)
