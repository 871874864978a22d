"""Ranges that the map's pass verified are not checked again, and the clean is the same (CLN-3, CLN-28)."""

from __future__ import annotations

import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner import pass_
from kafkalog.cleaner.pass_ import clean
from kafkalog.cleaner.scanned_ranges import ScannedRange, ScannedRanges
from kafkalog.cleaner.types import ASKED, CleanerStats, LogToClean
from kafkalog.errors import CorruptRecord, KafkalogError
from kafkalog.records.format import CompressionType
from kafkalog.records.legacy import LegacyBuilder
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.descriptors import INDEXES
from tests.builder import seal
from tests.cleaner.histories import random_history
from tests.cleaner.logs import append, keys_and_offsets, open_log
from tests.faults import FaultFS
from tests.mock_time import MockClock
from tests.storage.logs import NOW

COUNTERS = ("map_messages_read", "map_bytes_read", "bytes_read", "bytes_written", "messages_read", "messages_written",
            "invalid_messages_read")  # fmt: skip


def clean_log(log: UnifiedLog, first_dirty: int = 0, **more: Any) -> CleanerStats:
    to_clean = LogToClean.of(log, first_dirty, log.active_segment.base_offset, ASKED)
    return clean(to_clean, SkimpyOffsetMap(24_000), **{"now_ms": NOW, **more}).stats


def bytes_read_of(fs: FaultFS) -> int:
    calls = [call for call in fs.named("pread", "preadv") if call.path.endswith(".log")]
    return sum(call.args[0] if call.op == "pread" else sum(len(part) for part in call.args[0]) for call in calls)


def read_files(log: UnifiedLog) -> dict[str, bytes]:
    return {Path(s.path).name: Path(s.path).read_bytes() for s in log.segments if s is not log.active_segment}


def test_where_a_stretch_begins_and_what_lies_before_it() -> None:
    scanned_ranges = ScannedRanges(most=2)
    one, two = (ScannedRange(at, 50, at, at + 9, 10, True) for at in (100, 150))
    for each in (one, two, one._replace(position=200)):
        scanned_ranges.add(7, each)
    assert len(scanned_ranges) == 2
    assert [scanned_ranges.find(7, at) for at in (0, 100, 120)] == [(None, 100), (one, 50), (None, 30)]
    assert [scanned_ranges.find(7, at) for at in (150, 200)] == [(two, 50), (None, 0)]
    assert scanned_ranges.find(8, 100) == (None, 0)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_clean_is_what_it_is_without(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """CLN-6 to CLN-22, CLN-40: files and counters, of every format and codec, with transactions and producers."""
    found = []
    for share, most in ((1, 100_000), (1 << 40, 0)):
        rng = Random(seed)
        history = random_history(rng, close_all=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pass_, "_LIVE_SHARE", share)
            patch.setattr(pass_, "ScannedRanges", lambda most=most: ScannedRanges(most))
            with history.written(tmp_path_factory.mktemp("log") / "topic-0", MockClock(NOW)) as opened:
                log = opened._source
                dirty = rng.choice([0, rng.randint(0, log.active_segment.base_offset)])
                buffer = rng.choice([4096, 16 << 10, 256 << 10])
                stats = clean_log(log, dirty, io_buffer_bytes=buffer)
                found.append(([getattr(stats, name) for name in COUNTERS], read_files(log)))
    assert found[0] == found[1]


def test_what_is_replaced_as_a_whole_is_read_once(tmp_path: Path) -> None:
    """And a part without a key that counts is not written; its records are counted all the same (CLN-40)."""
    fs = FaultFS()
    log = open_log(tmp_path, fs=fs)
    for half in (b"old", b"new"):
        for n in range(400):
            append(log, (b"%d" % n, half * 50))
    log.roll()
    size, half_size = log.size, log.size // 2
    fs.calls.clear()
    stats = clean_log(log, io_buffer_bytes=8192)
    assert size + half_size <= bytes_read_of(fs) < size + half_size + 3 * 8192
    assert (stats.bytes_read, stats.messages_read, stats.messages_written) == (size, 800, 400)
    assert [offset for _, offset in keys_and_offsets(log)] == list(range(400, 800))
    log.close()


def test_what_is_replaced_behind_a_record_without_a_key_is_read_once(tmp_path: Path) -> None:
    """It alone is looked at record by record, with what came in one chunk with it."""
    fs = FaultFS()
    log = open_log(tmp_path, fs=fs, cleanup_policy="delete")
    append(log, (None, b"no key"))
    for half in (b"old", b"new"):
        for n in range(400):
            append(log, (b"%d" % n, half * 50))
    log.roll()
    size, half_size = log.size, log.size // 2
    fs.calls.clear()
    stats = clean_log(log, io_buffer_bytes=8192)
    assert bytes_read_of(fs) < size + half_size + 4 * 8192
    assert (stats.bytes_read, stats.messages_read, stats.invalid_messages_read) == (size, 801, 1)
    log.close()


def test_records_without_a_key_are_counted_where_nothing_is_kept(tmp_path: Path) -> None:
    """CLN-6: of formats in which they can be in a compacted log."""
    log = open_log(tmp_path, cleanup_policy="delete")
    for n in range(50):
        append(log, (None, b"no key"), (b"%d" % (n % 5), b"x" * 300))
    log.roll()
    stats = clean_log(log, io_buffer_bytes=4096)
    assert (stats.messages_read, stats.invalid_messages_read, stats.messages_written) == (100, 50, 5)
    log.close()


def test_a_batch_that_changes_behind_the_map_gets_no_new_checksum(tmp_path: Path) -> None:
    """CLN-28: compared again when it is rewritten; the log stays as it is."""
    log = open_log(tmp_path)
    append(log, (b"a", b"1"), (b"b", b"2"))
    append(log, (b"a", b"3"))
    log.roll()
    log.flush()
    first = log.segments[0]
    stats = CleanerStats(0.0)
    data = bytearray(Path(first.path).read_bytes())
    data[data.index(b"2", 61)] ^= 1

    def damage() -> None:
        if stats.map_complete_s >= 0:
            Path(first.path).write_bytes(data)

    with pytest.raises(CorruptRecord, match="no longer matches its CRC") as caught:
        clean_log(log, check_done=damage, stats=stats)
    assert (caught.value.path, caught.value.position, caught.value.offset) == (first.path, 0, 0)
    assert Path(first.path).read_bytes() == data and log.segments[0] is first
    log.close()


@pytest.mark.parametrize("deleted", [False, True], ids=["decided by its header", "record by record"])
def test_a_batch_that_changes_behind_the_map_does_not_go_for_that(tmp_path: Path, deleted: bool) -> None:
    """CLN-28: what goes matches its checksum, or the clean ends: the change may be why it seems to go."""
    log = open_log(tmp_path)
    append(log, (b"a", b"old"), *([(b"b", None)] if deleted else []))
    append(log, (b"a", b"3"), (b"b", b"4"))
    log.roll()
    log.flush()
    first = log.segments[0]
    stats = CleanerStats(0.0)
    data = bytearray(Path(first.path).read_bytes())
    data[data.index(b"old")] ^= 1

    def damage() -> None:
        if stats.map_complete_s >= 0:
            Path(first.path).write_bytes(data)

    with pytest.raises(CorruptRecord, match="no longer matches its CRC") as caught:
        clean_log(log, check_done=damage, stats=stats)
    assert (caught.value.path, caught.value.position) == (first.path, 0)
    log.close()


def overwrite_field(log: UnifiedLog, row: int, at: int, form: str, value: int) -> None:
    """Makes a field of a batch in the first segment another one, the checksum right."""
    file = Path(log.segments[0].path)
    data = bytearray(file.read_bytes())
    header = tuple(log.segments[0].records.batches())[row]
    batch = data[header.position : header.position + header.size]
    struct.pack_into(form, batch, at, value)
    data[header.position : header.position + header.size] = seal(batch)
    file.write_bytes(data)


@pytest.mark.parametrize(
    ("row", "at", "form", "value", "slots"),
    [(1, 23, ">i", -5, 100), (1, 0, ">q", 0, 100), (3, 0, ">q", 0, 4), (3, 0, ">q", 1, 5), (2, 0, ">q", 1, 5)],
    ids=["ends below all", "an offset twice", "twice, behind a full map", "back, behind a full map", "twice"],
)
def test_no_record_goes_for_one_that_has_its_offset(
    tmp_path: Path, row: int, at: int, form: str, value: int, slots: int
) -> None:
    """CLN-3: what would be kept by the map alone is kept, or ends the clean, where batches say what cannot be."""
    found: list[Any] = []
    for share, most in ((1, 1000), (1 << 40, 0)):
        (tmp_path / str(most)).mkdir()
        log = open_log(tmp_path / str(most))
        for keys in ((b"a",), (b"b",), (b"a", b"c"), (b"d",), (b"a",), (b"e",)):
            append(log, *((key, b"x" * 40) for key in keys))
        log.roll()
        log.flush()
        overwrite_field(log, row, at, form, value)
        to_clean = LogToClean.of(log, 0, log.active_segment.base_offset, ASKED)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pass_, "_LIVE_SHARE", share)
            patch.setattr(pass_, "ScannedRanges", lambda most=most: ScannedRanges(most))
            try:
                clean(to_clean, SkimpyOffsetMap(24 * slots), now_ms=NOW, io_buffer_bytes=4096)
            except KafkalogError as error:
                found.append((str(error).replace(str(tmp_path / str(most)), ""), read_files(log)))
            else:
                found.append(("", read_files(log)))
        log.close_handlers()
    assert found[0] == found[1]


def test_what_lies_in_a_wrapper_below_its_own_offset_stays(tmp_path: Path) -> None:
    """CLN-7: a compressed message of format v1 has the offset of its last record."""
    log = open_log(tmp_path)
    wrapper = LegacyBuilder(0, magic=1, compression=CompressionType.GZIP)
    wrapper.append(NOW, b"stays", b"1")
    wrapper.append(NOW, b"goes", b"2")
    log.append_as_follower(bytearray(wrapper.build()), 0)
    log.roll()
    append(log, (b"goes", b"3"))
    log.roll()
    clean_log(log)
    assert keys_and_offsets(log) == [(b"stays", 0), (b"goes", 2)]
    log.close()


@pytest.mark.parametrize("number", [0, 1], ids=["in the first segment", "in a later one"])
def test_no_record_goes_since_an_index_led_the_map_past_it(tmp_path: Path, number: int) -> None:
    """CLN-7: a record missing from the map has no later record, whatever position an entry of an index claims."""
    log = open_log(tmp_path, index_interval_bytes=100)
    for n in range(40):
        append(log, (b"%d" % n, b"x" * 60))
        if n in (19, 39):
            log.roll()
    log.flush()
    index = log.segments[number].offset_index
    entries = [index.entry(n) for n in range(index.entries)]
    found = next(n for n, entry in enumerate(entries) if entry.offset == 20 * number + 9)
    with open(index.path, "r+b") as file:
        for n in range(found + 1):  # entries rise: those before it go further down
            file.seek(8 * n)
            file.write(struct.pack(">i", n - found + 1 - 20 * number))
    INDEXES.close_some(len(INDEXES))  # it is read from the file again
    assert log.segments[number].offset_index.lookup(2).position == entries[found].position
    clean_log(log, 2)
    assert [offset for _, offset in keys_and_offsets(log)] == list(range(40))
    log.close()
