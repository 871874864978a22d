"""The compiled check of a segment: the same result whatever the chunks are, and an end whatever the bytes are."""

import os
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.batch.agree import BATCH_TIME, RECORD_OFFSET, RECORD_RANGE, record_fault
from kafkalog._core.batch.decode import decode
from kafkalog._core.batch.scan import scan
from kafkalog._core.log.segment_check import BAD_CRC, BAD_SIZE, END, MORE, PARTIAL, BatchCheck, find_header
from tests import raw_batches

LEAST_CHUNK = 4160


def walk(
    data: bytes, chunk: int, base_offset: int = 0, *, check_crc: bool = True, entries: tuple[bytes, bytes] = (b"", b"")
) -> tuple[list[tuple[int, int]], BatchCheck]:
    """(status, position) of each stop, going on behind every damaged batch whose size is known."""
    check = BatchCheck(base_offset, len(data), check_crc=check_crc)
    check.expect_entries(*entries)
    stops: list[tuple[int, int]] = []
    while True:
        at = check.position
        piece = data[at : at + chunk]
        status = check.check(piece, 0, len(piece))
        if status != MORE:
            stops.append((status, check.position))
        if status in (END, PARTIAL, BAD_SIZE):
            return stops, check
        assert check.position > at or status != MORE


def as_tuple(check: BatchCheck) -> tuple[object, ...]:
    return (
        check.position, check.next_offset, check.last_good, check.batches, check.records, check.gaps, check.thinned,
        check.max_timestamp, check.epoch_runs, check.abort_markers, check.first_offset, check.gap_position,
        check.gap_from, check.gap_to, check.index_result, check.time_result,
    )  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_chunks_do_not_matter(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.sampled_from([10, 200, 3000, 5000, 20000]), min_size=1, max_size=12))
    content = bytearray()
    for n, size in enumerate(sizes):
        content += raw_batches.batch(n * 2, [b"x" * size, b"y"], epoch=n // 3)
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    whole = walk(bytes(content), len(content))
    chunked = walk(bytes(content), data.draw(st.integers(LEAST_CHUNK, 30000)))
    assert whole[0] == chunked[0] and as_tuple(whole[1]) == as_tuple(chunked[1])


def test_a_file_is_checked_as_its_bytes_are(tmp_path: Path) -> None:
    content = bytearray(b"".join(raw_batches.batch(n * 2, [b"x" * 3000, b"y"]) for n in range(20)))
    content[30_000] ^= 1
    expected, by_bytes = walk(bytes(content), 9000)
    (tmp_path / "log").write_bytes(content)
    check, room, calls = BatchCheck(0, len(content)), memoryview(bytearray(9064)), 0
    stops: list[tuple[int, int]] = []
    check.expect_entries(b"", b"")
    fd = os.open(tmp_path / "log", os.O_RDONLY)
    try:
        while not stops or stops[-1][0] != END:
            status, start, size = check.check_file(fd, room, 20_000)
            first, calls = start % 64, calls + 1
            assert room[first : first + size] == content[start : start + size]
            if status != MORE:
                stops.append((status, check.position))
    finally:
        os.close(fd)
    assert stops == expected and as_tuple(check) == as_tuple(by_bytes)
    assert calls > 3  # no call goes on for much longer than its 20,000 bytes


def test_a_chunk_that_cannot_be_read_whole_is_left_to_the_caller(tmp_path: Path) -> None:
    content = raw_batches.batch(0, [b"x" * 6000])
    (tmp_path / "log").write_bytes(content)
    check, room = BatchCheck(0, len(content) + 1), bytearray(9064)
    with open(tmp_path / "log", "rb") as file:
        assert check.check_file(file.fileno(), room, 20_000) == (MORE, 0, -1)
    assert check.check_file(-1, room, 20_000) == (MORE, 0, -1)
    assert check.position == check.batches == 0


def test_a_file_is_read_only_into_a_writable_buffer_of_a_chunk() -> None:
    for room in (bytes(9064), bytearray(4000)):
        with pytest.raises(ValueError, match="writable ones for a chunk"):
            BatchCheck(0, 100).check_file(-1, room, 20_000)


def offset_of(part: bytes) -> int:
    offset: int = struct.unpack_from(">q", part)[0]
    return offset


def time_of(part: bytes) -> int:
    time: int = struct.unpack_from(">q", part, 35)[0]
    return time


one_batch = st.fixed_dictionaries(
    {},
    optional={
        "gap": st.sampled_from([-3, 1, 50, 2**31]),
        "records": st.integers(0, 3),
        "more_offsets": st.sampled_from([-5, -1, 1, 40]),
        "attributes": st.sampled_from([1, 4, 5, 7, 0x08, 0x10, 0x20, 0x30, 0x40, 0x100]),
        "epoch": st.integers(0, 2),
        "timestamp": st.sampled_from([-1, 0, 999, 1001, 2**62]),
        "magic": st.sampled_from([2, 2, 3]),
    },
)


@settings(max_examples=200, deadline=None)
@given(
    wanted=st.lists(st.one_of(st.just({}), one_batch), max_size=25), base=st.sampled_from([0, 7, 2**63 - 90]),
    interval=st.sampled_from([-1, 150, 400]), other=st.integers(0, 3), data=st.data(),
)  # fmt: skip
def test_batches_that_are_passed_quickly_count_as_those_that_are_looked_at(
    wanted: list[dict[str, int]], base: int, interval: int, other: int, data: st.DataObject
) -> None:
    """Plain batches leave no single entries unless checksums are left out; sound ones are reported alike."""
    parts, offset = [], base
    for one in wanted:
        records = one.get("records", 1)
        last = max(records, 1) - 1 + one.get("more_offsets", 0)
        offset = min(max(offset + one.get("gap", 0), 0), 2**63 - 1)
        fields = {name: one[name] for name in ("attributes", "epoch", "timestamp", "magic") if name in one}
        parts.append(raw_batches.batch(offset, [b"v"] * records, last_delta=last, **fields))
        offset = min(offset + max(last, 0) + 1, 2**63 - 1)
    content = b"".join(parts)
    offsets, times = bytearray(), bytearray()
    if all(0 <= offset_of(part) - base < 2**30 and time_of(part) >= 0 for part in parts):
        offsets, times = (bytearray(entries) for entries in raw_batches.index_entries(base, parts, interval))
    for entries in (offsets, times):
        for _ in range(other if entries else 0):  # entries of another file
            entries[data.draw(st.integers(0, len(entries) - 1))] ^= data.draw(st.integers(1, 255))
    quick = walk(content, len(content), base, entries=(bytes(offsets), bytes(times)))
    each = walk(content, len(content), base, entries=(bytes(offsets), bytes(times)), check_crc=False)
    assert quick[0] == each[0] and as_tuple(quick[1]) == as_tuple(each[1])


@settings(max_examples=200, deadline=None)
@given(content=st.binary(max_size=600), base=st.sampled_from([0, 5, 2**62]))
def test_any_bytes_come_to_an_end(content: bytes, base: int) -> None:
    stops, check = walk(content, LEAST_CHUNK, base)
    assert stops[-1][0] in (END, PARTIAL, BAD_SIZE) and check.position <= len(content)
    assert find_header(content, 0, len(content), len(content), base) >= -1


def test_the_counts_are_those_of_the_headers() -> None:
    content = b"".join(raw_batches.batches(0, 10, 5)) + raw_batches.batch(60, [b"a"], deltas=[3], last_delta=9)
    stops, check = walk(content, len(content))
    assert stops == [(END, len(content))]
    assert (check.batches, check.records, check.next_offset) == (11, 51, 70)
    assert (check.gaps, check.gap_from, check.gap_to, check.thinned) == (1, 50, 60, 1)


@pytest.mark.parametrize("base", [2**63 - 1, 2**63 - 3])
def test_offsets_at_the_end_of_their_range(base: int) -> None:
    """The last offsets there are, and index entries that would lie behind them: sums wrap and nothing else happens."""
    content = raw_batches.batch(base, [b"a"]) + raw_batches.batch(2**63 - 1, [b"b"], last_delta=0)
    check = BatchCheck(base, len(content))
    check.expect_entries(struct.pack(">ii", 7, 0), struct.pack(">qi", 5, 7))
    at = 0
    while (status := check.check(content, at, len(content) - at)) not in (END, PARTIAL, BAD_SIZE):
        at = check.position
    assert status == END and check.index_result[0] <= 1
    assert find_header(content, 0, len(content), len(content), -(2**63)) >= -1


def test_a_chunk_outside_of_its_buffer_is_refused() -> None:
    check = BatchCheck(0, 100)
    for start, length in ((-1, 5), (0, 6), (6, 0), (2, -1)):
        with pytest.raises(ValueError, match="buffer of 5"):
            check.check(b"abcde", start, length)
    with pytest.raises(ValueError, match="negative"):
        find_header(b"", -1, 0, 0, 0)


def test_a_damaged_batch_is_passed_over_and_named() -> None:
    parts = raw_batches.batches(0, 3, 5)
    bad = bytearray(b"".join(parts))
    bad[len(parts[0]) + 70] ^= 1
    check = BatchCheck(0, len(bad))
    assert check.check(bad, 0, len(bad)) == BAD_CRC
    assert check.batch[:4] == (len(parts[0]), len(parts[1]), 5, 9)
    assert check.checksums[0] != check.checksums[1] and check.counts == (5, 4)
    assert check.check(bad, check.position, len(bad) - check.position) == END and check.batches == 2 and check.gaps == 0


@settings(max_examples=100, deadline=None)
@given(noise=st.binary(max_size=300), keep=st.integers(0, 120))
def test_a_header_is_found_behind_noise(noise: bytes, keep: int) -> None:
    """The first place that could be a header is never behind a real one; windows that overlap by 60 bytes miss none."""
    batch = raw_batches.batch(7, [b"x" * keep])
    content = noise + batch
    at, found = 0, -1
    while at < len(content):
        window = content[at : at + 100]
        place = find_header(window, 0, len(window), len(content) - at, 0)
        if place >= 0:
            found = at + place
            break
        if at + len(window) == len(content):
            break
        at += len(window) - 60
    assert 0 <= found <= len(noise)


def transactional(offset: int, producer: int, marker: bool, value: bytes = b"abcdef") -> bytes:
    """A batch of one record of a transaction, or its ABORT marker."""
    record = raw_batches.record(0, 5, struct.pack(">hh", 0, 0) if marker else None, value, 5)
    fixed = struct.pack(">hiqqqhii", 0x30 if marker else 0x10, 0, 5, 5, producer, 0, -1, 1)
    return raw_batches.framed(offset, fixed + record)


def test_many_producers_keep_their_transactions_apart() -> None:
    """Each of 500 producers begins, then each aborts: the first offset of each is its own."""
    content = b"".join(transactional(n, n * 64, False) for n in range(500))
    content += b"".join(transactional(500 + n, n * 64, True) for n in range(500))
    _, check = walk(content, LEAST_CHUNK)
    assert check.abort_markers == [(n * 64, 500 + n, n) for n in range(500)]


def test_producer_ids_that_were_chosen_to_meet_in_one_place() -> None:
    """Ids that differ in their high bits alone: with a multiplier that is known, each would be compared with all."""
    ids = [n << 45 for n in range(200_000)]
    batch = bytearray(transactional(0, 0, False))
    content = bytearray()
    for offset, producer in enumerate(ids):
        struct.pack_into(">q", batch, 0, offset)
        struct.pack_into(">q", batch, 43, producer)
        content += batch
    check = BatchCheck(0, len(content), check_crc=False)
    assert check.check(content, 0, len(content)) == END and check.batches == len(ids)


@pytest.mark.parametrize("size", [10, 5000, 60_000])
def test_a_marker_of_any_size_up_to_its_limit(size: int) -> None:
    content = transactional(0, 7, False) + transactional(1, 7, True, bytes(size))
    assert walk(content, 1 << 16)[1].abort_markers == [(7, 1, 0)]


def test_a_chunk_that_ends_inside_a_marker_brings_the_check_further() -> None:
    content = transactional(0, 7, False) + transactional(1, 7, True, bytes(60_000))
    stops, check = walk(content, LEAST_CHUNK)
    assert stops == [(END, len(content))] and check.batches == 2


def test_a_file_that_becomes_shorter() -> None:
    """Checked bytes count; a batch that is checked in pieces is found again where the file ends inside it."""
    first, second = (raw_batches.batch(n, [b"x" * 20_000]) for n in range(2))
    content = first + second
    check = BatchCheck(0, len(content))
    assert check.check(content, 0, len(first) + 5000) == MORE and check.position == len(first) + 5000
    check.set_end(len(first) + 6000)
    assert check.position == len(first)
    assert check.check(content, len(first), 6000) == PARTIAL and check.value == len(second)
    check.set_end(10)
    assert check.end == check.position == len(first) and check.check(b"", 0, 0) == END


def test_records_against_their_batch() -> None:
    parts = [
        raw_batches.batch(0, [b"a"] * 3),
        raw_batches.batch(3, [b"a"] * 3, deltas=[0, 2, 1], last_delta=2),
        raw_batches.batch(6, [b"a"] * 2, deltas=[0, 9], last_delta=1),
        raw_batches.batch(8, []),
        raw_batches.batch(9, [b"a"]),
    ]
    content = b"".join(parts)
    table = decode(content, scan(content))
    assert record_fault(table) == (RECORD_OFFSET, 5, 1)
    assert record_fault(table, 6) == (RECORD_RANGE, 7, 2)
    assert record_fault(table, 8) is None and record_fault(table, 9) is None and record_fault(table, -1) is None
    wrong = bytearray(raw_batches.batch(0, [(10, None, b"a"), (20, None, b"b")]))
    struct.pack_into(">q", wrong, 35, 99)
    assert record_fault(decode(wrong, scan(wrong, check_crc=False))) == (BATCH_TIME, 1, 0)
