"""The checksums that a broker printed of seven batches of a job of ten million lines, built anew (REC-1)."""

from pathlib import Path
from typing import NamedTuple

import pytest

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.records.memory import MemoryRecords


class Printed(NamedTuple):
    """A batch: records before number `later` (from 0) have the largest time less 1 ms, the others that time."""

    first: int
    last: int
    largest_ms: int
    later: int
    crc: int

    @property
    def records(self) -> list[tuple[None, bytes, int]]:
        """Line n of the job, counted from 1, has offset n - 1."""
        return [
            (None, b"hello lagou %d" % (offset + 1), self.largest_ms - (offset - self.first < self.later))
            for offset in range(self.first, self.last + 1)
        ]


PRINTED = [
    Printed(3_925_423, 3_926_028, 1_596_513_434_779, 483, 4_049_330_741),
    Printed(3_926_635, 3_927_240, 1_596_513_434_787, 387, 368_995_405),
    Printed(3_927_241, 3_927_846, 1_596_513_434_788, 420, 143_415_655),
    Printed(3_927_847, 3_928_452, 1_596_513_434_789, 455, 572_340_120),
    Printed(3_928_453, 3_929_058, 1_596_513_434_790, 450, 1_029_643_347),
    Printed(3_929_059, 3_929_664, 1_596_513_434_791, 482, 2_163_818_250),
    Printed(3_929_665, 3_930_270, 1_596_513_434_792, 513, 3_747_213_735),
]


@pytest.mark.parametrize("printed", PRINTED, ids=lambda printed: str(printed.first))
def test_a_batch_that_is_built_has_the_checksum_that_was_printed(printed: Printed) -> None:
    """REC-1: so every byte from the attributes on is that of the broker's client."""
    data = encode_batch(printed.records, timestamp=0, base_offset=printed.first)
    [batch] = MemoryRecords(data).batches()
    header = batch.header
    assert (header.base_offset, header.last_offset) == (printed.first, printed.last)
    assert (header.base_timestamp, header.max_timestamp) == (printed.largest_ms - 1, printed.largest_ms)
    assert (header.producer_id, header.crc) == (-1, printed.crc)


def test_batches_of_a_log_have_the_checksums_that_were_printed(tmp_path: Path) -> None:
    """REC-1: appended as lists; offsets lie outside the checksum, so the log may begin at 0."""
    with kafkalog.open(tmp_path / "t-0", "a", segment_bytes=1 << 20) as log:
        for printed in PRINTED:
            log.append(printed.records)
        assert [batch.header.crc for batch in log.batches()] == [printed.crc for printed in PRINTED]
        assert all(batch.header.is_valid for batch in log.batches())
