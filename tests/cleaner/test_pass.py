"""One clean of one log: what stays, what is counted, how it ends early, and what it leaves of the files."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.pass_ import clean
from kafkalog.cleaner.types import ASKED, CleanerStats, CleanResult, LogToClean
from kafkalog.errors import CleaningAborted, CorruptRecord, IllegalState, StorageError
from kafkalog.records.control import ControlType
from kafkalog.storage.log import UnifiedLog
from tests.cleaner.logs import append, keys_and_offsets, open_log, read_records
from tests.faults import FaultFS
from tests.storage.logs import NOW, append_batches, bases, make_overflowed
from tests.storage.test_log_transactions import append_marker, list_aborted, write

SLOT = 24
SUFFIXES = (".cleaned", ".swap", ".deleted")


def clean_log(log: UnifiedLog, first_dirty: int = 0, *, slots: int = 1000, until: int = -1, **more: Any) -> CleanResult:
    """A clean from an offset up to the active segment, or to another one."""
    end = log.active_segment.base_offset if until < 0 else until
    to_clean = LogToClean.of(log, first_dirty, end, ASKED)
    return clean(to_clean, SkimpyOffsetMap(SLOT * slots), **{"now_ms": NOW, **more})


def write_keys(path: Path, *keys: int, segment_every: int = 1000, **more: Any) -> UnifiedLog:
    """A log with one batch for each key, the value says which; the active segment is empty."""
    log = open_log(path, **more)
    for number, key in enumerate(keys):
        if number and number % segment_every == 0:
            log.roll()
        append(log, (b"%d" % key, b"value %d of key %d" % (number, key)))
    log.roll()
    return log


def test_the_last_record_of_each_key_stays_where_it_is(tmp_path: Path) -> None:
    """CLN-3, CLN-9: within a segment and across segments."""
    log = write_keys(tmp_path, 1, 2, 1, 3, 2, 1, 4, segment_every=3)
    found = clean_log(log)
    assert keys_and_offsets(log) == [(b"3", 3), (b"2", 4), (b"1", 5), (b"4", 6)]
    assert found.end_offset == log.log_end_offset == 7
    assert bases(log) == [0, 7]
    log.close()


def test_counters_and_sizes(tmp_path: Path) -> None:
    """CLN-40: 4 slots, keys 0,1,0,1,0, from 2: 5 read, 2 written, sizes of the log before and after."""
    log = write_keys(tmp_path, 0, 1, 0, 1, 0)
    size = log.size
    end, stats = clean_log(log, 2, slots=4)
    assert (end, stats.messages_read, stats.messages_written, stats.invalid_messages_read) == (5, 5, 2, 0)
    assert (stats.bytes_read, stats.bytes_written) == (size, log.size)
    assert stats.map_messages_read == 5 and 0 < stats.buffer_utilization <= 1
    assert stats.elapsed_s >= stats.map_s > 0
    log.close()


@pytest.mark.parametrize(
    ("first_dirty", "expected"),
    [
        (2, [(b"1", 1), (b"0", 2), (b"1", 3), (b"0", 4)]),
        (3, [(b"0", 2), (b"1", 3), (b"0", 4)]),
        (4, [(b"1", 3), (b"0", 4)]),
    ],
)
def test_a_full_map_ends_the_round_and_the_next_one_goes_on(
    tmp_path: Path, first_dirty: int, expected: list[tuple[bytes, int]]
) -> None:
    """CLN-4: two slots at a load factor of 0.75 hold one key; one round after the other up to this one."""
    log = write_keys(tmp_path, 0, 1, 0, 1, 0)
    for start in range(2, first_dirty + 1):
        assert clean_log(log, start, slots=2, load_factor=0.75).end_offset == start + 1
    assert keys_and_offsets(log) == expected
    log.close()


def test_a_full_map_of_load_factor_one(tmp_path: Path) -> None:
    """CLN-4: two keys fit two slots."""
    log = write_keys(tmp_path, 0, 1, 0, 1, 0)
    assert clean_log(log, 2, slots=2, load_factor=1.0).end_offset == 4
    assert [offset for _, offset in keys_and_offsets(log)] == [2, 3, 4]
    log.close()


def test_a_map_without_room_does_nothing(tmp_path: Path) -> None:
    """CLN-5: it is not the pass that refuses it."""
    log = write_keys(tmp_path, 0, 0)
    before = read_records(log)
    found = clean_log(log, slots=1, load_factor=0.9)
    assert (found.end_offset, found.stats.messages_read) == (0, 0)
    assert read_records(log) == before
    log.close()


def test_a_dirty_offset_inside_a_segment(tmp_path: Path) -> None:
    """CLN-46: keys count from there; records before it give way to them."""
    log = write_keys(tmp_path, 1, 2, 1, 2, 3)
    assert clean_log(log, 3).end_offset == 5
    assert keys_and_offsets(log) == [(b"1", 0), (b"1", 2), (b"2", 3), (b"3", 4)]
    log.close()


def test_records_from_the_uncleanable_segment_on_are_untouched(tmp_path: Path) -> None:
    """CLN-3: what lies above the map's end stays, whatever its keys."""
    log = write_keys(tmp_path, 1, 1, 1, 1, 1, 1, segment_every=2)
    after = Path(log.segments[2].path).read_bytes()
    clean_log(log, until=4)
    assert [offset for _, offset in keys_and_offsets(log)] == [3, 4, 5]
    assert Path(log.segments.get(4).path).read_bytes() == after
    log.close()


def test_the_cleaned_segment_has_the_time_of_the_last_one_it_was_made_of(tmp_path: Path) -> None:
    """CLN-25: files and indexes; it begins where the first one did."""
    log = write_keys(tmp_path, 1, 2, 1, 3, segment_every=2)
    for number, segment in enumerate(tuple(log.segments)[:2]):
        segment.flush()
        os.utime(segment.path, ns=(5, (1_600_000_000 + number) * 10**9 + 123_456_789))
    clean_log(log)
    stem = log.segments[0].path.removesuffix(".log")
    assert bases(log) == [0, 4]
    for suffix in (".log", ".index", ".timeindex"):
        assert Path(stem + suffix).stat().st_mtime_ns == 1_600_000_001_123_456_789
    log.close()


def test_a_cleaned_segment_is_on_disk_before_it_counts(tmp_path: Path) -> None:
    """CLN-25: data and indexes are synced before the first rename, and each byte was written once."""
    fs = FaultFS()
    log = write_keys(tmp_path, *range(40), *range(40), segment_every=30, fs=fs, index_interval_bytes=100)
    fs.calls.clear()
    stats = clean_log(log).stats
    ops = [(call.op, Path(call.path).name[20:]) for call in fs.calls]
    renamed = ops.index(("rename", ".log.cleaned"))
    for suffix in (".log.cleaned", ".index.cleaned", ".timeindex.cleaned"):
        last_write = max(at for at, op in enumerate(ops) if op in (("pwrite", suffix), ("ftruncate", suffix)))
        synced = [at for at, op in enumerate(ops) if op in (("fdatasync", suffix), ("fsync", suffix))]
        assert last_write < synced[-1] < renamed, suffix
    writes = [call for call in fs.named("pwrite") if call.path.endswith(".log.cleaned")]
    assert sum(len(call.args[0]) for call in writes) == stats.bytes_written == log.size
    assert len(writes) == stats.write_calls
    log.close()


def test_each_byte_is_read_at_most_twice(tmp_path: Path) -> None:
    """Once for the map, once for the copy, except the few headers that an offset look-up reads."""
    fs = FaultFS()
    log = write_keys(tmp_path, *(n % 97 for n in range(3000)), segment_every=1500, fs=fs)
    size = log.size
    fs.calls.clear()
    clean_log(log, io_buffer_bytes=16 << 10)
    read = 0
    for call in fs.named("pread", "preadv"):
        if call.path.endswith(".log"):
            read += call.args[0] if call.op == "pread" else sum(len(part) for part in call.args[0])
    assert size < read <= 2 * size + 3 * 4608
    log.close()


@pytest.mark.parametrize("buffer", [4096, 10_000, 1 << 20])
def test_a_batch_longer_than_the_buffer(tmp_path: Path, buffer: int) -> None:
    """CLN-27: with records that stay, and with some that go."""
    log = open_log(tmp_path)
    append(log, (b"a", b"1"), (b"long", b"x" * 70_000), (b"b", b"2"))
    append(log, (b"a", b"3"))
    append(log, (b"alone", b"y" * 60_000))
    log.roll()
    clean_log(log, io_buffer_bytes=buffer)
    assert keys_and_offsets(log) == [(b"long", 1), (b"b", 2), (b"a", 3), (b"alone", 4)]
    assert read_records(log)[1] == (b"long", b"x" * 70_000)
    log.close()


def test_offsets_too_far_apart_split_the_segment_first(tmp_path: Path) -> None:
    """CLN-26, CLN-45: the round ends; the next one cleans, and no segment spans more than 2^31 - 1 offsets."""
    far = make_overflowed(tmp_path / "topic-0")
    log = open_log(tmp_path)
    assert bases(log) == [0, far + 9]
    with pytest.raises(CleaningAborted, match="had to be split"):
        clean_log(log)
    assert bases(log) == [0, far + 1, far + 9]
    assert [offset for _, offset in keys_and_offsets(log)] == [0, 5, far + 1, far + 3, far + 9]
    clean_log(log)
    assert [offset for _, offset in keys_and_offsets(log)] == [far + 3, far + 9]
    assert all(one.last_known_offset - one.base_offset < far for one in log.segments)
    log.close()


@pytest.mark.parametrize("hit", [11, 30, 70], ids=["size below 14", "header", "record"])
def test_a_damaged_batch_stops_the_clean_and_changes_nothing(tmp_path: Path, hit: int) -> None:
    """CLN-28: with file and position, in the part for the map and in the part before it."""
    log = write_keys(tmp_path, *(n % 3 for n in range(9)), segment_every=3)
    log.flush()
    victim = log.segments[1]
    second = tuple(victim.records.batches())[1].position
    data = bytearray(Path(victim.path).read_bytes())
    if hit == 11:
        data[second + 8 : second + 12] = (3).to_bytes(4, "big")
    else:
        data[second + hit] ^= 0x40
    Path(victim.path).write_bytes(data)
    before = {path.name: path.read_bytes() for path in sorted((tmp_path / "topic-0").iterdir())}
    for first_dirty in (0, 6):
        with pytest.raises(CorruptRecord) as caught:
            clean_log(log, first_dirty)
        assert (caught.value.path, caught.value.position) == (victim.path, second)
    assert {path.name: path.read_bytes() for path in sorted((tmp_path / "topic-0").iterdir())} == before
    append(log, (b"0", b"goes on"))
    log.close()


@pytest.mark.parametrize("error", [CleaningAborted("enough"), KeyboardInterrupt("enough")], ids=["told", "Ctrl-C"])
def test_a_clean_that_is_told_to_end_leaves_the_log_as_it_was(tmp_path: Path, error: BaseException) -> None:
    """CLN-34: asked between chunks and before the swap; nothing of it stays, and the next one is whole."""
    log = write_keys(tmp_path, *(n % 5 for n in range(40)), segment_every=20)
    asked = 0

    def count() -> None:
        nonlocal asked
        asked += 1

    def stop_at(at: int) -> Any:
        calls = iter(range(1000))

        def check() -> None:
            if next(calls) == at:
                raise error

        return check

    before = read_records(log)
    clean_log(log, check_done=count, dry_run=True)
    for at in range(asked + 1):
        with pytest.raises(type(error), match="enough"):
            clean_log(log, check_done=stop_at(at))
        assert read_records(log) == before
        assert not [name for name in os.listdir(log.path) if name.endswith(SUFFIXES)]
    clean_log(log)
    assert [offset for _, offset in keys_and_offsets(log)] == [35, 36, 37, 38, 39]
    log.close()


def test_a_log_that_is_cut_while_it_is_cleaned(tmp_path: Path) -> None:
    """KAFKA-7278: an end of the clean, no damage; what was cut does not come back."""
    log = write_keys(tmp_path, *(n % 5 for n in range(40)), segment_every=20)

    def cut() -> None:
        if log.log_end_offset == 40:
            log.truncate_to(15)

    with pytest.raises(CleaningAborted):
        clean_log(log, check_done=cut)
    assert sorted(read_records(log)) == list(range(15))
    log.close()


@pytest.mark.parametrize("when", ["before the clean", "map", "copy"])
def test_a_log_that_loses_segments_to_retention_while_it_is_cleaned(tmp_path: Path, when: str) -> None:
    """KAFKA-7278: an end of the clean too, with the files gone that it was reading."""
    log = write_keys(tmp_path, *(n % 5 for n in range(40)), segment_every=10)
    calls = {"before the clean": 0, "map": 1, "copy": 6}[when]

    def delete() -> None:
        nonlocal calls
        calls -= 1
        if calls == 0:
            log.delete_before(20)

    if not calls:
        to_clean = LogToClean.of(log, 0, 40, ASKED)
        log.truncate_to(25)
        with pytest.raises(CleaningAborted, match="decided only up to 20"):
            clean(to_clean, SkimpyOffsetMap(SLOT * 1000), now_ms=NOW)
        return
    with pytest.raises(CleaningAborted, match="while it was being cleaned"):
        clean_log(log, check_done=delete)
    assert sorted(read_records(log)) == list(range(20, 40))
    assert not [name for name in os.listdir(log.path) if name.endswith(SUFFIXES)]
    log.close()


@pytest.mark.parametrize("at", [1, 3, 8, 9, 12])
def test_a_log_start_that_passes_into_what_is_being_cleaned(tmp_path: Path, at: int) -> None:
    """As DeleteRecords ends no clean of the reference: nothing below it comes back, and no record above it goes.

    Where it takes whole segments away that does end the clean: see above.
    """
    log = write_keys(tmp_path, *(n % 120 for n in range(200)), segment_every=200)
    calls = 0

    def delete() -> None:
        nonlocal calls
        calls += 1
        if calls == at:
            assert log.delete_before(117) == 117

    end = clean_log(log, check_done=delete, io_buffer_bytes=4096).end_offset
    assert end == 200 and calls >= at
    assert [offset for _, offset in keys_and_offsets(log)] == list(range(117, 200))
    assert log.log_start_offset == 117
    clean_log(log)
    assert [offset for _, offset in keys_and_offsets(log)] == list(range(117, 200))
    log.close()


@pytest.mark.parametrize("where", [0, 1, 2])
def test_what_was_aborted_goes_in_each_segment_of_a_group(tmp_path: Path, where: int) -> None:
    """CLN-14, CLN-21: with an entry of the index that the new segment has for it."""
    log = open_log(tmp_path)
    for number in range(3):
        append(log, (b"%d" % number, b"v"))
        if number == where:
            write(log, 7, 0, txn=True)
            append_marker(log, ControlType.ABORT, 7)
        log.roll()
    clean_log(log)
    assert bases(log) == [0, 5]
    assert [key for key, _ in keys_and_offsets(log)] == [b"0", b"1", b"2"]
    assert list_aborted(log) == [(7, where + 1)]
    log.close()


def test_a_dry_run_counts_what_a_clean_does_and_changes_nothing(tmp_path: Path) -> None:
    log = write_keys(tmp_path, *(n % 5 for n in range(40)), segment_every=20)
    log.flush()
    before = {path.name: path.read_bytes() for path in sorted((tmp_path / "topic-0").iterdir())}
    dry = clean_log(log, dry_run=True)
    assert {path.name: path.read_bytes() for path in sorted((tmp_path / "topic-0").iterdir())} == before
    real = clean_log(log)
    for name in CleanerStats.__slots__:
        if not name.endswith("_s") and name != "write_calls":
            assert getattr(dry.stats, name) == getattr(real.stats, name), name
    assert dry.end_offset == real.end_offset and dry.stats.write_calls == 0
    log.close()


def test_bytes_read_and_written_are_throttled(tmp_path: Path) -> None:
    """Once for the map, once for the copy, and what is written."""
    log = write_keys(tmp_path, *(n % 5 for n in range(40)))
    size, throttled_bytes = log.size, []
    stats = clean_log(log, throttled=throttled_bytes.append).stats
    assert sum(throttled_bytes) == 2 * size + stats.bytes_written
    log.close()


def test_two_cleans_of_one_log(tmp_path: Path) -> None:
    log = write_keys(tmp_path, 1, 1)

    def second() -> None:
        with pytest.raises(IllegalState, match="already being cleaned"):
            clean_log(log)

    clean_log(log, check_done=second)
    assert [offset for _, offset in keys_and_offsets(log)] == [1]
    log.close()


def test_a_full_disk_ends_the_clean_and_the_log_goes_on(tmp_path: Path) -> None:
    fs = FaultFS()
    log = write_keys(tmp_path, 1, 2, 1, fs=fs)
    before = read_records(log)
    fs.fail("pwrite", path=".cleaned")
    with pytest.raises(StorageError):
        clean_log(log)
    fs.heal()
    assert read_records(log) == before and not [name for name in os.listdir(log.path) if name.endswith(SUFFIXES)]
    append(log, (b"2", b"more"))
    log.roll()
    clean_log(log)
    assert keys_and_offsets(log) == [(b"1", 2), (b"2", 3)]
    log.close()


def test_appends_and_reads_go_on_while_a_log_is_cleaned(tmp_path: Path) -> None:
    """CLN-41: folded by key, the log says the same as all that was appended."""
    log = open_log(tmp_path, internal_segment_bytes=3000)
    expected: dict[bytes, bytes] = {}
    stop, is_cleaned = threading.Event(), threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        number = 0
        try:
            while number < 3000 or not is_cleaned.is_set():
                key, value = b"%d" % (number * 7919 % 101), b"%d" % number
                append(log, (key, value))
                expected[key] = value
                number += 1
                if number > 3000:  # else a log grows faster than a busy machine cleans it
                    is_cleaned.wait(0.01)
        except BaseException as error:
            failures.append(error)
        finally:
            stop.set()

    def read() -> None:
        try:
            while not stop.is_set():
                offset = log.log_start_offset
                while offset < log.log_end_offset:
                    found = log.read(offset, 1 << 16)
                    rows = list(found.records.batches(check_crc=True))
                    if not rows:
                        break
                    assert rows[0].last_offset >= offset
                    offset = rows[-1].last_offset + 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=write), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    first_dirty, rounds = 0, 0
    try:
        while not stop.is_set():
            first_dirty = clean_log(log, first_dirty if rounds % 4 else 0).end_offset
            rounds += 1
            if rounds > 2:  # the writer goes on until then, however busy the machine is
                is_cleaned.set()
    finally:
        is_cleaned.set()
        for thread in threads:
            thread.join()
    assert not failures and rounds > 2
    append_batches(log)
    log.roll()
    clean_log(log)
    folded = {key: value for _, (key, value) in sorted(read_records(log).items())}
    assert folded == {**expected, b"k": folded[b"k"]}
    assert len(read_records(log)) == 102
    log.close()
