"""Mode "r" on files with any one fault: what it returns is right, what it cannot return is reported."""

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkalog.errors import CorruptRecord, InvalidRecord, KafkalogError
from kafkalog.reading.chunks import records
from kafkalog.storage.readonly.view import LogView
from tests.counting import Counting
from tests.raw_batches import batches, write_segment

COUNT = 240
SIZE = 40


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Offsets 0 to 239 in two segments of twelve batches, an index entry for every third."""
    with tempfile.TemporaryDirectory() as parent:
        path = Path(parent) / "t-0"
        for base in (0, 120):
            write_segment(path, base, batches(base, 12, 10, size=SIZE), interval=1200)
        yield path


def key_of(offset: int) -> bytes:
    return b"k%d" % offset


def read_and_check(view: LogView, start: int) -> tuple[list[int], KafkalogError | None]:
    """The offsets of the records given, each of them checked, and the error that ended it."""
    given_: list[int] = []
    try:
        for record in records(view, start, view.log_end_offset):
            assert record.key == key_of(record.offset)
            given_.append(record.offset)
    except (CorruptRecord, InvalidRecord) as error:
        return given_, error
    return given_, None


changes = st.one_of(
    st.tuples(st.just("flip"), st.integers(0, 10_000), st.integers(1, 255)),
    st.tuples(st.just("cut"), st.integers(0, 10_000), st.just(0)),
    st.tuples(st.just("zero"), st.integers(0, 10_000), st.integers(1, 100)),
    st.tuples(st.just("insert"), st.integers(0, 10_000), st.integers(1, 100)),
)


def apply_change(data: bytes, change: tuple[str, int, int]) -> bytes:
    kind, at, amount = change
    at = at % len(data) if data else 0
    if kind == "flip":
        return data[:at] + bytes([data[at] ^ amount]) + data[at + 1 :] if data else b"\1"
    if kind == "cut":
        return data[:at]
    if kind == "zero":
        return (data[:at] + bytes(amount) + data[at + amount :])[: len(data)]
    return data[:at] + bytes(range(amount)) + data[at:]


@given(st.sampled_from([0, 120]), st.sampled_from(["index", "timeindex"]), st.lists(changes, min_size=1, max_size=4))
def test_no_index_makes_an_answer_wrong(
    folder: Path, base: int, suffix: str, how: list[tuple[str, int, int]]
) -> None:
    path = folder / f"{base:020d}.{suffix}"
    good = path.read_bytes()
    data = good
    for change in how:
        data = apply_change(data, change)
    try:
        path.write_bytes(data)
        with LogView(folder) as view:
            assert view.log_end_offset == COUNT
            for offset in range(0, COUNT, 7):
                assert view.read(offset, 1).fetch_offset_metadata.message_offset == offset // 10 * 10
                assert view.offset_for_time(1000 + offset) == (offset, 1000 + offset, 0)
            assert read_and_check(view, 115) == (list(range(115, COUNT)), None)
    finally:
        path.write_bytes(good)


def starts_of(good: bytes) -> list[int]:
    """Return where each batch begins, and where the last one ends."""
    starts = [0]
    while starts[-1] < len(good):
        starts.append(starts[-1] + int.from_bytes(good[starts[-1] + 8 : starts[-1] + 12], "big") + 12)
    return starts


def first_changed_batch(data: bytes, good: bytes) -> tuple[int, bool]:
    """(the batch that the first change lies in, whether a change lies in what no CRC covers: offset, epoch, magic)."""
    starts = starts_of(good)
    different = [n for n, (a, b) in enumerate(zip(data, good, strict=False)) if a != b]
    if len(data) < len(good):
        different.append(len(data))
    elif len(data) > len(good):
        del different[1:]
    rows = [max(row for row, start in enumerate(starts) if start <= n) for n in different]
    places = [n - starts[row] for n, row in zip(different, rows, strict=True)]
    uncovered = any(at < 17 and not 8 <= at < 12 for at in places)
    return rows[0] if rows else len(starts), uncovered and len(data) >= len(good)


def check_time(view: LogView, offset: int, time: int, given_: list[int], whole: bool) -> None:
    """The record of that time is found, or the error says why not; a later one only where no damage hides it."""
    try:
        found = view.offset_for_time(time)
    except (CorruptRecord, InvalidRecord):
        assert not whole
        return
    if offset in given_ or not whole:
        assert found == (offset, time, 0)
    else:
        assert found is None or found.offset > offset


@given(st.sampled_from([0, 120]), changes)
@example(base=0, change=("cut", 0, 0))
@example(base=120, change=("flip", 8, 128))
def test_damaged_data_gives_what_lies_before_it_and_tells(
    folder: Path, base: int, change: tuple[str, int, int]
) -> None:
    path = folder / f"{base:020d}.log"
    good = path.read_bytes()
    data = apply_change(good, change)
    row, uncovered = first_changed_batch(data, good)
    hypothesis.assume(not uncovered)
    before = min(base + row * 10, COUNT)
    whole = data == good or (good.startswith(data) and len(data) in starts_of(good))
    try:
        path.write_bytes(data)
        with LogView(folder) as view:
            given_, error = read_and_check(view, 0)
            assert given_[:before] == list(range(before))
            assert len(given_) == COUNT or error is not None or view.damage is not None or whole
            if error is not None:
                assert (error.path, len(given_)) == (str(path), before)
                assert error.position is not None and error.hint
            for start in range(0, view.log_end_offset, 13):
                part, error = read_and_check(view, start)
                assert part == [offset for offset in range(start, COUNT) if offset in part]
                if start < before + 10 and not whole:
                    assert error is not None or part == list(range(start, view.log_end_offset))
                check_time(view, start, 1000 + start, given_, whole)
    finally:
        path.write_bytes(good)


def test_a_batch_that_claims_a_gigabyte_is_not_taken_into_memory(tmp_path: Path) -> None:
    """Its size field is believed only where its checksum is right: in an index's advice, and in a search by time."""
    path = tmp_path / "t-0"
    parts = batches(0, 12, 10, size=SIZE)
    log = write_segment(path, 0, parts, interval=1200)
    write_segment(path, 120, batches(120, 2, 10, size=SIZE))
    huge = bytearray(parts[-1])
    struct.pack_into(">i", huge, 8, (1 << 30) - 12)
    log.write_bytes(b"".join([*parts[:-1], bytes(huge)]))
    with log.open("r+b") as file:
        file.truncate(sum(map(len, parts[:-1])) + (1 << 30))
    fs = Counting()
    with LogView(path, fs=fs) as view:
        for offset in (0, 60, 109):
            assert next(iter(records(view, offset, 120))).offset == offset
        with pytest.raises(CorruptRecord):
            view.offset_for_time(1000 + 112)
        with pytest.raises(CorruptRecord):
            view.segments[0].records.search_for_timestamp(1000 + 112)
        view.segments[0].advised_end()
    assert max(fs.reads) <= 1 << 20
