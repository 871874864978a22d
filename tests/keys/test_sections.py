"""Look-ups by key that read sections of batches: the records, damage after a batch was verified, and other changes."""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog._core.keys.key_reader import UNDECIDED, KeyReader
from kafkalog.errors import CorruptRecord, StorageError
from kafkalog.keys import parts
from kafkalog.storage.readable_records import ReadableRecords

COUNT = 200
VALUE_BYTES = 120


def value(number: int) -> bytes:
    return b"%06d" % number * (VALUE_BYTES // 6)


def key(number: int) -> bytes:
    return b"key-%d" % number


@pytest.fixture
def log(tmp_path: Path) -> Iterator[kafkalog.Log]:
    """A closed segment of two batches with an index, each of about 14 KB."""
    with kafkalog.open(tmp_path / "t-0", "a", file_delete_delay_ms=0, cleanup_policy="compact") as made:
        for first in range(0, COUNT, COUNT // 2):
            made.append([(key(n), value(n)) for n in range(first, first + COUNT // 2)])
        made.roll()
        made.flush()  # not later, in the background: that is a change of the log, after which look-ups begin anew
        made.build_key_index()
        yield made


def reader_of(log: kafkalog.Log) -> KeyReader:
    reader = log._keys.parts.place_of_reader.reader  # type: ignore[union-attr]
    assert reader is not None
    return reader


def same(one: kafkalog.Record | None, other: kafkalog.Record) -> bool:
    """All that a record has."""
    assert isinstance(one, kafkalog.Record)
    return (one, one.timestamp_type, one.leader_epoch, one.is_control) == (
        other, other.timestamp_type, other.leader_epoch, other.is_control
    )  # fmt: skip


def test_a_second_look_up_reads_a_section(log: kafkalog.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a batch that was verified only a section is read, however it is reached."""
    for n in (0, 150, 0):
        assert log.get(key(n)) == log[n]
    read: list[int] = []
    original = ReadableRecords.read

    def noted(self: ReadableRecords, position: int, size: int) -> bytes:
        read.append(size)
        return original(self, position, size)

    monkeypatch.setattr(ReadableRecords, "read", noted)
    for n in range(COUNT):
        found = reader_of(log).get(key(n))
        assert isinstance(found, kafkalog.Record) and found.value == value(n)
    assert read == []  # by the descriptor alone
    assert all(same(log.get(key(n)), log[n]) for n in range(COUNT))


def test_sections_of_batches_with_different_numbers_of_records(tmp_path: Path) -> None:
    """The place of a batch is guessed as of equally large ones: a wrong guess names another batch, no wrong record."""
    sizes = (30, 200, 25, 400, 40, 31, 32, 120)
    with kafkalog.open(tmp_path / "t-0", "a") as made:
        first = 0
        for size in sizes:
            made.append([(key(n), value(n)) for n in range(first, first + size)])
            first += size
        made.roll()
        made.build_key_index()
        for _ in range(3):
            assert all(same(made.get(key(n)), made[n]) for n in range(first))


def test_a_look_up_with_other_arguments_than_a_key(log: kafkalog.Log) -> None:
    """The compiled answer is for a key alone: everything else has the errors and the answers of the method."""
    assert log.get(key(3)) == log.get(key=key(3)) == log.get(bytearray(key(3))) == log[3]  # type: ignore[call-arg]
    assert log.get(key(3), isolation="read_committed") == log[3]
    with pytest.raises(TypeError, match="encode it first"):
        log.get("key-3")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="positional argument"):
        log.get()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="positional argument"):
        log.get(key(3), key(4))  # type: ignore[misc]


def test_sections_of_batches_behind_gaps(log: kafkalog.Log) -> None:
    """A cleaned segment is read in sections as well: here the first batch is gone, and each second record."""
    log.append([(key(n), b"newer") for n in range(COUNT) if n < 100 or n % 2])
    log.compact(roll=True)
    log.flush()
    log.build_key_index(rebuild=True)
    records = {record.key: record for record in log}
    for _ in range(3):
        assert {wanted: log.get(wanted) for wanted in records} == records
    assert all(reader_of(log).get(wanted) == record for wanted, record in records.items())


def test_without_descriptors_sections_are_read_too(log: kafkalog.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "OS", None)
    for _ in range(3):
        assert [log.get(key(n)) for n in range(COUNT)] == list(log)


def test_damage_in_a_verified_batch(log: kafkalog.Log) -> None:
    """A changed byte of a record is noticed by its section; what other sections hold is as it was verified."""
    assert [log.get(key(1)) for _ in range(3)] == [log[1]] * 3
    path = Path(log.path, f"{0:020d}.log")
    data = path.read_bytes()
    for n in (0, 7, 50, 99):
        at = data.index(value(n)) + 3
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"\xff")
        with pytest.raises(CorruptRecord):
            log.get(key(n))
        other = log.get(key((n + 30) % 100))
        assert other is not None and other.value == value((n + 30) % 100)
        with path.open("r+b") as file:
            file.seek(at)
            file.write(data[at : at + 1])
        assert log.get(key(n)) == log[n]


def test_a_file_that_was_cut(log: kafkalog.Log) -> None:
    """Another process cuts the segment: an error, no crash and no record of nothing."""
    everything = list(log)
    assert [log.get(key(n)) for n in range(COUNT)] == everything
    path = Path(log.path, f"{0:020d}.log")
    kept = path.read_bytes()
    with path.open("r+b") as file:
        file.truncate(20_000)
    for n in range(COUNT):
        try:
            assert log.get(key(n)) == everything[n]
        except kafkalog.KafkalogError:
            assert n >= 100
    path.write_bytes(kept)


def test_the_log_changes_below(log: kafkalog.Log) -> None:
    """Truncated, written again, deleted from the start and closed: the answer is of now."""
    assert log.get(key(150)).value == value(150)  # type: ignore[union-attr]
    log.truncate_to(100)
    assert log.get(key(150)) is None and log.get(key(99)) == log[99]
    log.append([(key(n), b"again" * 60) for n in range(100, 160)])
    for _ in range(2):
        assert [log.get(key(n)) for n in range(160)] == list(log)
    log.delete_before(50)
    assert log.get(key(20)) is None and log.get(key(60)) == log[60] and log.get(key(60)) == log[60]
    reader = reader_of(log)
    assert reader.get(key(60)) == log[60]
    log.close()
    assert reader.get(key(60)) is UNDECIDED
    with pytest.raises(kafkalog.LogClosed):
        log.get(key(60))


def test_a_closed_log_is_closed_for_the_copy_too(log: kafkalog.Log, tmp_path: Path) -> None:
    assert log.get(key(3)) == log[3]
    shutil.copytree(log.path, tmp_path / "copy" / "t-0")
    with kafkalog.open(tmp_path / "copy" / "t-0", "a") as copy:
        assert [copy.get(key(n)) for n in range(COUNT)] == list(log)


def test_copies_belong_to_their_own_batches(tmp_path: Path) -> None:
    """Also of records whose value ends them: tombstones and empty values."""
    path = tmp_path / "t-0"
    rows = [[(b"a", None)], [(b"b", b"")], [(b"c", b"x")], [(b"d", None)]]
    for number, row in enumerate(rows):
        kind = ("CreateTime", "LogAppendTime")[number % 2]
        with kafkalog.open(path, "a", message_timestamp_type=kind) as made:
            made.append(row)
    with kafkalog.open(path) as log:
        records = list(log)
        assert [record.timestamp_type for record in records] == [0, 1, 0, 1]
        found = log.get_many([b"a", b"b", b"c", b"d"])
        assert all(same(one, other) for one, other in zip(found, records, strict=True))


def test_memory_is_given_back(log: kafkalog.Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sections count as the pages do, and go with them."""
    assert [log.get(key(n)) for n in range(COUNT)] == list(log)
    index = log._keys.parts._parts[0].index  # type: ignore[union-attr]
    most = index.held_bytes  # type: ignore[union-attr]
    monkeypatch.setattr(parts, "PAGES_BYTES", 1)
    assert [log.get(key(1)) for _ in range(300)] == [log[1]] * 300
    assert 0 < index.held_bytes < most  # type: ignore[union-attr]


Batch = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 900), st.booleans()), min_size=1, max_size=40)


@given(batches=st.lists(Batch, min_size=1, max_size=5), seed=st.integers(0, 2**32), append_time=st.booleans())
@settings(max_examples=60, deadline=None)
def test_each_record_is_the_one_of_a_scan(
    new_path: Callable[[str], Path], batches: list[list[tuple[int, int, bool]]], seed: int, append_time: bool
) -> None:
    """For records of any size, with headers, after a cleaning that leaves gaps, in any order of look-ups."""
    rng = random.Random(seed)
    path = new_path("sections") / "t-0"
    settings_of = {"cleanup_policy": "compact", "segment_bytes": 1 << 20}
    if append_time:
        settings_of["message_timestamp_type"] = "LogAppendTime"
    with kafkalog.open(path, "a", **settings_of) as made:  # type: ignore[arg-type]
        for rows in batches:
            made.append([
                kafkalog.Record(rng.randbytes(size), key(number), headers=[("h", b"x" * (size % 9))] if has else ())
                for number, size, has in rows
            ])  # fmt: skip
        made.roll()
        if seed % 2:
            made.compact()
        made.build_key_index()
        last = {record.key: record for record in made}
        asked = [key(number) for number in range(32)] * 3
        rng.shuffle(asked)
        for wanted in asked:
            found = made.get(wanted)
            assert found is None if wanted not in last else same(found, last[wanted])


def test_a_file_that_cannot_be_opened_again_is_named(log: kafkalog.Log) -> None:
    """The error of a section's read is the one of any other read: with the file, the offset and a type of its own."""
    assert all(log.get(key(n)) is not None for n in (0, 0, 1))
    opened = log._opened
    assert opened is not None
    records = opened.log.segments[0].records
    assert records._file.try_close()
    path = Path(records.path)
    path.rename(path.with_suffix(".away"))
    try:
        with pytest.raises(StorageError) as caught:
            log.get(key(2))
        assert caught.value.path == str(path)
    finally:
        path.with_suffix(".away").rename(path)
    assert log.get(key(2)) == log[2]
