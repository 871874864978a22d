"""MemoryRecords: whole batches of a buffer, by the rules of memory."""

import struct

import pytest

from kafkalog.errors import CorruptRecord
from kafkalog.records.memory import MemoryRecords
from tests.builder import R, batch

ONE = batch([R(b"a")])


def test_whole_batches_only() -> None:
    """REC-34: a partial one at the end is no error."""
    memory = MemoryRecords(ONE + ONE + ONE[:30])
    assert [b.size for b in memory.batches()] == [len(ONE)] * 2
    assert memory.valid_bytes == 2 * len(ONE)
    assert memory.size == 2 * len(ONE) + 30


@pytest.mark.parametrize(
    "bad", [ONE[:8] + struct.pack(">i", 13) + ONE[12:], ONE[:16] + b"\3" + ONE[17:], ONE[:16] + b"\xff" + ONE[17:]]
)
def test_damaged_frames(bad: bytes) -> None:
    """REC-34: size below 14, magic 3, magic -1; the batches before are given first."""
    batches = MemoryRecords(ONE + bad).batches()
    assert next(batches).size == len(ONE)
    with pytest.raises(CorruptRecord) as raised:
        next(batches)
    assert raised.value.position == len(ONE)
    with pytest.raises(CorruptRecord):
        _ = MemoryRecords(bad).valid_bytes


def test_first_batch_size() -> None:
    """REC-35."""
    assert MemoryRecords(ONE[:16]).first_batch_size() is None
    assert MemoryRecords(ONE[:17]).first_batch_size() == len(ONE)
    assert MemoryRecords(ONE + ONE).first_batch_size() == len(ONE)
    with pytest.raises(CorruptRecord):
        MemoryRecords(ONE[:8] + struct.pack(">i", 13) + ONE[12:17]).first_batch_size()
