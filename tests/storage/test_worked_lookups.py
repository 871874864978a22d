"""Worked look-ups, rebuilt: from an offset or a time through the index entries to the batch that holds it.

Each has a `.log` of real batches of which one begins at the position that the index entry names.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from kafkalog._core.log.values import OffsetPosition, TimestampOffset
from kafkalog.storage.file_records import FileRecords
from kafkalog.storage.index.offset_index import OffsetIndex
from kafkalog.storage.index.time_index import TimeIndex
from tests.raw_batches import batch


@dataclass(frozen=True)
class Worked:
    """An index of base `base` whose entries, as they stand in the file, are (relative offset, position)."""

    base: int
    entries: tuple[tuple[int, int], ...]
    target: int
    relative: int
    found: tuple[int, int]


WORKED = [
    Worked(217, ((4, 120), (12, 456), (19, 900)), 230, 13, (12, 456)),
    Worked(0, ((9, 230), (22, 656), (31, 1100)), 23, 23, (22, 656)),
    Worked(251, ((6, 150), (14, 480), (21, 830)), 268, 17, (14, 480)),
    Worked(0, ((14, 140), (20, 320), (28, 700)), 23, 23, (20, 320)),
]


def padded_batch(base_offset: int, last_offset: int, size: int, timestamp: int) -> bytes:
    """A batch of exactly `size` bytes with these offsets: two records (or one), the last one long enough."""
    deltas = sorted({0, last_offset - base_offset})
    for length in range(size):
        rows = [(timestamp, None, b"v")] * (len(deltas) - 1) + [(timestamp, None, bytes(length))]
        made = bytes(batch(base_offset, rows, deltas=deltas))
        if len(made) == size:
            return made
    raise AssertionError(f"no batch of {size} bytes")


def build(directory: Path, base: int, entries: tuple[tuple[int, int], ...], times: dict[int, int]) -> FileRecords:
    """A `.log` and its indexes: each entry's batch begins at its position and ends with its offset."""
    index = OffsetIndex(directory / f"{base:020d}.index", base, 800)
    log = FileRecords.open(directory / f"{base:020d}.log")
    starts = [*(position for _, position in entries), entries[-1][1] + 200]
    ends = [base + entries[0][0] - 2, *(base + relative for relative, _ in entries)]
    position, first = 0, base
    for i, last in enumerate(ends):
        # the first batch gets no entry; each following one begins where its entry says
        following = starts[i] if i < len(starts) else position + 200
        log.append(padded_batch(first, last, following - position, times.get(last - base, 1)))
        if i:
            index.append(last, position)
        position, first = following, last + 1
    index.close()
    return log


@pytest.mark.parametrize("case", WORKED, ids=lambda case: f"{case.base}-{case.target}")
def test_from_an_offset_to_its_batch(case: Worked, tmp_path: Path) -> None:
    """IDX-2: largest entry at or below, then forward over the batches from a real batch's position."""
    log = build(tmp_path, case.base, case.entries, {})
    index = OffsetIndex(tmp_path / f"{case.base:020d}.index", case.base)
    assert index.relative_offset(case.target) == case.relative
    entry = index.lookup(case.target)
    assert (entry.offset - case.base, entry.position) == case.found
    assert entry.position in [header.position for header in log.batches()]
    found = log.search_for_offset(case.target, entry.position)
    assert found is not None
    assert found == log.search_for_offset(case.target, 0)
    header = next(header for header in log.batches() if header.position == found[1])
    assert header.base_offset <= case.target <= header.last_offset
    assert header.position > entry.position, "the entry's own batch ends before the target"
    log.close()


@pytest.mark.parametrize(
    ("base", "times", "offsets", "target", "time_entry", "position"),
    [
        (217, ((1500, 4), (1530, 12), (1580, 19)), ((4, 120), (12, 456), (19, 900)), 1540, (1530, 12), 456),
        (
            0,
            ((1526384718281, 16), (1526384718283, 28), (1526384718291, 40)),
            ((16, 300), (26, 838), (40, 1200)),
            1526384718288,
            (1526384718283, 28),
            838,
        ),
        (
            0,
            ((1557554753390, 14), (1557554753430, 20), (1557554753470, 28)),
            ((14, 140), (20, 320), (28, 700)),
            1557554753430,
            (1557554753430, 20),
            320,
        ),
    ],
)
def test_from_a_time_to_its_batch(
    base: int,
    times: tuple[tuple[int, int], ...],
    offsets: tuple[tuple[int, int], ...],
    target: int,
    time_entry: tuple[int, int],
    position: int,
    tmp_path: Path,
) -> None:
    """TIDX-1, IDX-2: time -> [time, relative offset] -> [relative offset, position] -> a real batch."""
    log = build(tmp_path, base, offsets, {relative: time for time, relative in times})
    time_index = TimeIndex(tmp_path / "x.timeindex", base, 800)
    for time, relative in times:
        time_index.maybe_append(time, base + relative)
    index = OffsetIndex(tmp_path / f"{base:020d}.index", base)
    found = time_index.lookup(target)
    assert found == TimestampOffset(time_entry[0], base + time_entry[1])
    entry = index.lookup(found.offset)
    assert entry.position == position
    assert entry.offset <= found.offset
    assert position in [header.position for header in log.batches()]
    log.close()


def test_relative_offsets(tmp_path: Path) -> None:
    """IDX-6: base 50: 55 is stored as 5, 56 as 6."""
    index = OffsetIndex(tmp_path / "x.index", 50, 80)
    assert (index.relative_offset(55), index.relative_offset(56)) == (5, 6)
    index.append(55, 100)
    index.append(56, 200)
    assert (tmp_path / "x.index").read_bytes()[:16].hex() == "0000000500000064" + "00000006000000c8"
    index.close()


def test_the_entry_before_a_gap(tmp_path: Path) -> None:
    """IDX-2: entries 0, 5, 8 asked for 6 give 5."""
    index = OffsetIndex(tmp_path / "x.index", 0, 80)
    for offset in (0, 5, 8):
        index.append(offset, 10 * offset)
    assert index.lookup(6) == OffsetPosition(5, 50)
    index.close()
