"""Metadata records of a handover, packed into batches."""

from kafkalog.records.memory import MemoryRecords
from kafkalog.tools.handover.records import batches

KB = 1 << 10


def test_groups_share_batches_of_at_most_a_megabyte_and_none_is_divided() -> None:
    groups = [[b"a" * 100 * KB] * 3 for _ in range(8)] + [[b"b" * 700 * KB] * 2, [b"c"], [b"d"]]
    made = [next(iter(MemoryRecords(batch).batches())) for batch in batches(groups, 50, 7, 1234)]
    assert [len(batch.records()) for batch in made] == [9, 9, 6, 2, 2]
    assert [batch.base_offset for batch in made] == [50, 59, 68, 74, 76]
    assert all(batch.size < (1 << 20) + KB for batch in made if batch.base_offset != 74)
    assert {batch.header.leader_epoch for batch in made} == {7}
    assert {record.timestamp for batch in made for record in batch.records()} == {1234}
    assert [record.value for batch in made for record in batch.records()] == [one for group in groups for one in group]
    full = batches([[b"a" * 512 * KB], [b"b" * 512 * KB], [b"c"]], 0, 7, 1234)
    assert [next(MemoryRecords(batch).batches()).next_offset for batch in full] == [2, 3]
