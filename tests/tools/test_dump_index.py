"""Indexes in the dump tool: their lists, their comparison with the log, and their checks (DUMP-5, DUMP-6, DUMP-7)."""

import io
import os
import struct
from pathlib import Path

import pytest

from kafkalog.errors import CorruptIndex, CorruptRecord, IllegalArgument, InvalidRecord, KafkalogError
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.tools.dump.files import DumpOptions, dump_files
from tests.builder import R, batch, frame

T0 = 1000
BATCHES = [batch([R(b"v", None, T0 + 10 * i + j) for j in range(2)], base_offset=2 * i) for i in range(6)]
SIZE = len(BATCHES[0])
LOG = b"".join(BATCHES)
VERIFY = DumpOptions(verify_index_only=True)
CHECK = DumpOptions(index_sanity_check=True)

Entries = tuple[tuple[int, int], ...]


def offsets(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">ii", *entry) for entry in entries)


def times(*entries: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *entry) for entry in entries)


class Segment:
    """A segment's files in a directory."""

    def __init__(
        self, directory: Path, log: bytes = LOG, index: bytes = b"", time_index: bytes = b"", base: int = 0
    ) -> None:
        self.log, self.index, self.times = (
            directory / f"{base:020d}{suffix}" for suffix in (".log", ".index", ".timeindex")
        )
        for path, data in ((self.log, log), (self.index, index), (self.times, time_index)):
            path.write_bytes(data)


def run_dump(*paths: Path, options: DumpOptions | None = None) -> tuple[list[str], list[str]]:
    """Lines of stdout, without the first of each file, and of stderr."""
    out, err = io.BytesIO(), io.BytesIO()
    dump_files(map(str, paths), out, options, err=err)
    lines = [line for line in out.getvalue().decode().splitlines() if not line.startswith("Dumping ")]
    return lines, err.getvalue().decode().splitlines()


def dump_until_error(
    path: Path, kind: type[KafkalogError], options: DumpOptions | None = None
) -> tuple[list[str], KafkalogError]:
    """The lines before the error, and the error; there are no complaints then."""
    out, err = io.BytesIO(), io.BytesIO()
    with pytest.raises(kind) as caught:
        dump_files([str(path)], out, options, err=err)
    assert err.getvalue() == b""
    return out.getvalue().decode().splitlines()[1:], caught.value


def expected_lines(entries: Entries, *, of_times: bool = False) -> list[str]:
    if of_times:
        return [f"timestamp: {time} offset: {offset}" for time, offset in entries]
    return [f"offset: {offset} position: {position}" for offset, position in entries]


def test_an_index_that_agrees_with_its_log(tmp_path: Path) -> None:
    entries = ((3, SIZE), (7, 3 * SIZE), (11, 5 * SIZE))
    segment = Segment(tmp_path, index=offsets(*entries))
    assert run_dump(segment.index) == (expected_lines(entries), [])
    assert run_dump(segment.index, options=VERIFY) == ([], [])


def test_entries_that_point_to_other_offsets_are_told_by_falling_offset(tmp_path: Path) -> None:
    """DUMP-6, A8; the last of those with one offset counts."""
    entries = ((2, 0), (6, 3 * SIZE), (2, SIZE), (9, 4 * SIZE), (-3, SIZE))
    segment = Segment(tmp_path, index=offsets(*entries))
    complaint = [
        f"Mismatches in :{segment.index}",
        "  Index offset: 6, log offset: 7",
        "  Index offset: 2, log offset: 3",
        "  Index offset: -3, log offset: 3",
    ]
    assert run_dump(segment.index) == (expected_lines(entries), complaint)
    assert run_dump(segment.index, options=VERIFY) == ([], complaint)
    segment.index.write_bytes(offsets(*entries[:4]))
    assert run_dump(segment.index, options=CHECK)[1] == [], "the check looks at the index alone"


def test_the_list_ends_where_the_unused_tail_begins(tmp_path: Path) -> None:
    """DUMP-5, A6: an all-zero index has one entry; a second one at the base ends the list."""
    segment = Segment(tmp_path, index=offsets((1, 0), (0, SIZE), (3, SIZE)), base=4)
    segment.log.write_bytes(b"".join(batch([R(), R()], base_offset=4 + 2 * i) for i in range(3)))
    assert run_dump(segment.index) == (["offset: 5 position: 0"], [])
    segment.index.write_bytes(bytes(80))
    assert run_dump(segment.index)[0] == ["offset: 4 position: 0"]
    segment.index.write_bytes(offsets((1, 0)) + bytes(7))
    assert run_dump(segment.index)[0] == ["offset: 5 position: 0"], "a partial entry is left alone"


def test_many_entries_take_many_chunks(tmp_path: Path) -> None:
    entries = [(1 + 2 * i, 0) for i in range(20_000)]
    segment = Segment(tmp_path, index=offsets(*entries) + bytes(800))
    lines, complaints = run_dump(segment.index)
    assert lines == expected_lines(tuple(entries))
    assert (len(complaints), complaints[-1]) == (20_000, "  Index offset: 3, log offset: 1")
    assert complaints[1] == "  Index offset: 39999, log offset: 1"


@pytest.mark.parametrize(
    ("entry", "options", "kind", "words"),
    [
        ((3, SIZE), DumpOptions(max_message_size=SIZE - 1), CorruptIndex, "--max-message-size"),
        ((3, SIZE), DumpOptions(max_message_size=0), CorruptIndex, "no complete batch"),
        ((3, SIZE), DumpOptions(max_message_size=-1), IllegalArgument, "--max-message-size"),
        ((3, len(LOG)), None, CorruptIndex, "no complete batch"),
        ((3, len(LOG) + 1), None, CorruptIndex, f"position {len(LOG) + 1}, but the log has {len(LOG)} bytes"),
        ((3, -5), None, CorruptIndex, "position -5"),
        ((3, SIZE + 5), None, CorruptRecord, "Found record size -254 smaller"),
    ],
)
def test_an_entry_without_a_batch_ends_the_list(
    tmp_path: Path, entry: tuple[int, int], options: DumpOptions | None, kind: type[KafkalogError], words: str
) -> None:
    """DUMP-9: --max-message-size bounds what is looked at behind an entry."""
    segment = Segment(tmp_path, index=offsets((1, 0), entry))
    lines, error = dump_until_error(segment.index, kind, options)
    small = options is not None and options.max_message_size < SIZE
    assert lines == ([] if small else ["offset: 1 position: 0"])
    assert words in str(error)


def test_the_smallest_message_at_the_end_of_a_log(tmp_path: Path) -> None:
    """26 bytes of format v0: less than is looked at of a batch of v2, which dies where its header is not whole."""
    messages = LegacyBuilder(magic=0)
    for _ in range(3):
        messages.append(-1, None, None)
    data = bytes(messages.build())
    assert len(data) == 78
    segment = Segment(tmp_path, log=data, index=offsets((1, 26), (2, 52)))
    assert run_dump(segment.index) == (expected_lines(((1, 26), (2, 52))), [])
    segment.log.write_bytes(data[:52 + 16] + b"\2" + data[52 + 17 :])
    lines, error = dump_until_error(segment.index, CorruptRecord)
    assert (lines, error.position) == (["offset: 1 position: 26"], 52)


def test_the_largest_batch_an_entry_may_point_to(tmp_path: Path) -> None:
    segment = Segment(tmp_path, index=offsets((3, SIZE)))
    assert run_dump(segment.index, options=DumpOptions(max_message_size=SIZE))[0] == [f"offset: 3 position: {SIZE}"]


def test_a_time_index_that_agrees_with_its_log(tmp_path: Path) -> None:
    entries = ((1011, 3), (1031, 7), (1051, 11))
    segment = Segment(tmp_path, index=offsets((3, SIZE), (7, 3 * SIZE)), time_index=times(*entries))
    assert run_dump(segment.times) == (expected_lines(entries, of_times=True), [])
    assert run_dump(segment.times, options=VERIFY) == ([], [])
    segment.index.write_bytes(b"")
    assert run_dump(segment.times)[1] == [], "without entries the log is walked from its start"


def test_complaints_about_a_time_index(tmp_path: Path) -> None:
    """DUMP-7, A8: by kind, each in the order of the entries."""
    entries = ((1012, 3), (1010, 5), (1010, 7), (1031, 6), (1030, 12), (1051, 11))
    segment = Segment(tmp_path, index=offsets((3, SIZE), (7, 3 * SIZE)), time_index=times(*entries))
    complaint = [
        f"Found timestamp mismatch in :{segment.times}",
        "  Index timestamp: 1012, log timestamp: 1011",
        "  Index timestamp: 1010, log timestamp: 1021",
        "  Index timestamp: 1010, log timestamp: 1031",
        f"Found out of order timestamp in :{segment.times}",
        "  Index timestamp: 1010, Previously indexed timestamp: 1012",
        "  Index timestamp: 1010, Previously indexed timestamp: 1010",
        f"The following indexed offsets are not found in :{segment.times}",
        "Indexed offset: 6, found log offset: 7",
        "Indexed offset: 12, found log offset: -1",
    ]
    assert run_dump(segment.times) == (expected_lines(entries, of_times=True), complaint)
    assert run_dump(segment.times, options=VERIFY) == ([], complaint)


def test_timestamps_of_records_count(tmp_path: Path) -> None:
    """Not the batch's largest one: an emptied batch has none, LogAppendTime gives its own to every record."""
    empty = frame(b"", count=0, last_delta=1, base_offset=2, max_timestamp=77)
    stamped = batch([R(b"v", None, 5), R(b"v", None, 6)], attributes=8, max_timestamp=99, base_offset=4)
    segment = Segment(tmp_path, log=BATCHES[0] + empty + stamped, time_index=times((77, 3), (99, 5)))
    assert run_dump(segment.times)[1] == [
        f"Found timestamp mismatch in :{segment.times}",
        "  Index timestamp: 77, log timestamp: -1",
    ]


def test_a_batch_is_found_as_the_reference_finds_it(tmp_path: Path) -> None:
    """Its search takes the zeros of a preallocated index for entries, and may end at one of them."""
    segment = Segment(tmp_path, index=offsets((3, SIZE), (7, 3 * SIZE)) + bytes(8 * 40), time_index=times((1031, 7)))
    assert run_dump(segment.times)[1] == []
    segment.index.write_bytes(offsets((3, SIZE), (11, 5 * SIZE), (5, 2 * SIZE)))
    lines, complaints = run_dump(segment.times)
    assert lines == ["timestamp: 1031 offset: 7"]
    assert complaints == []


def test_damage_anywhere_behind_the_position_counts(tmp_path: Path) -> None:
    """The reference walks to the end of the log for each entry of a time index."""
    segment = Segment(tmp_path, log=LOG + bytes(40), time_index=times((1011, 3), (1031, 7)))
    assert dump_until_error(segment.times, CorruptRecord)[0] == []
    for tail in (LOG[:30], struct.pack(">qiib", 3, -5, 0, 2)):
        segment.log.write_bytes(LOG + tail)
        assert run_dump(segment.times)[1] == [], "a batch that is cut off ends the walk, so do 17 bytes of any kind"
    segment.index.write_bytes(offsets((7, 3 * SIZE + 5)))
    lines, error = dump_until_error(segment.times, CorruptRecord)
    assert lines == ["timestamp: 1011 offset: 3"]
    assert error.position == 3 * SIZE + 5
    segment.index.write_bytes(offsets((7, len(LOG) + 18)))
    assert "an entry points to position" in str(dump_until_error(segment.times, CorruptIndex)[1])


def test_records_that_cannot_be_read(tmp_path: Path) -> None:
    bad = frame(b"zz", count=3, last_delta=1, base_offset=2)
    segment = Segment(tmp_path, log=BATCHES[0] + bad, time_index=times((1001, 1), (1021, 3)))
    lines, error = dump_until_error(segment.times, InvalidRecord)
    assert lines == ["timestamp: 1001 offset: 1"]
    assert (error.path, error.position) == (str(segment.log), SIZE + 61)


@pytest.mark.parametrize("options", [None, VERIFY, CHECK])
def test_empty_indexes(tmp_path: Path, options: DumpOptions | None) -> None:
    """A5: an offset index without entries is called empty in every mode, a time index never is."""
    segment = Segment(tmp_path)
    for data in (b"", bytes(7)):
        segment.index.write_bytes(data)
        assert run_dump(segment.index, options=options) == ([f"{segment.index} is empty."], [])
    passed = [f"{segment.times} passed sanity check."] if options is CHECK else []
    assert run_dump(segment.times, options=options) == (passed, [])


def test_sanity_checks(tmp_path: Path) -> None:
    """A7."""
    segment = Segment(tmp_path, base=9)
    for data in (offsets((4, 7)), bytes(80), offsets((4, 7)) + bytes(80)):
        segment.index.write_bytes(data)
        assert run_dump(segment.index, options=CHECK)[0] == [f"{segment.index} passed sanity check."]
    for data in (times((4, 7)), bytes(120), times((4, 7), (4, 9))):
        segment.times.write_bytes(data)
        assert run_dump(segment.times, options=CHECK)[0] == [f"{segment.times} passed sanity check."]
    bad = [
        (segment.index, offsets((-4, 7)), "last offset is 5 which is less than the base offset 9"),
        (segment.index, bytes(13), "found 13 bytes which is neither positive nor a multiple of 8"),
        (segment.times, times((4, 7)) + bytes(12), "last timestamp is 0 which is less than the first timestamp 4"),
        (segment.times, times((4, -7)), "last offset is 2 which is less than the first offset 9"),
        (segment.times, bytes(11), "found 11 bytes which is neither positive nor a multiple of 12"),
    ]
    for path, data, words in bad:
        path.write_bytes(data)
        lines, error = dump_until_error(path, CorruptIndex, CHECK)
        assert (lines, words in str(error)) == ([], True)


def test_complaints_come_by_kind_after_the_last_file(tmp_path: Path) -> None:
    segment = Segment(tmp_path, log=LOG[SIZE:], index=offsets((2, 0)), time_index=times((1012, 3)))
    lines, complaints = run_dump(segment.index, segment.times, segment.log, options=DumpOptions(deep_iteration=True))
    assert lines[:2] == ["offset: 2 position: 0", "timestamp: 1012 offset: 3"]
    assert [line.split(" in ")[0] for line in complaints] == [
        "Mismatches",
        "  Index offset: 2, log offset: 3",
        "Found timestamp mismatch",
        "  Index timestamp: 1012, log timestamp: 1011",
        "Non-consecutive offsets",
        "  -1 is followed by 2",
    ]


def test_an_offset_index_that_is_longer_than_any_is_not_read(tmp_path: Path) -> None:
    """Of a sparse file, which says any length, nothing is taken into memory."""
    segment = Segment(tmp_path, log=LOG, index=offsets((2, 0)), time_index=times((1002, 2)))
    os.truncate(segment.index, 1 << 40)
    lines, error = dump_until_error(segment.times, CorruptIndex)
    assert lines == [] and "and the maximum is" in str(error) and error.path == str(segment.index)
