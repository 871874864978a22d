"""A clean that has to split a segment first, and damage that looks as if it had to."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import CleaningAborted, CorruptRecord, StorageError
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.read import collect_aborted
from tests.builder import seal
from tests.cleaner.filtering import build_batch, build_marker, build_producer_batch
from tests.cleaner.logs import append, keys_and_offsets, open_log, read_records
from tests.cleaner.test_pass import SUFFIXES, clean_log
from tests.faults import FaultFS, each_failure
from tests.storage.logs import NOW, bases

FAR = 2**31
OLD_NS = 1_000_000_000 * 10**9


def write_overflowing(path: Path, *batches: bytes, aborted: tuple[int, ...] = (), **more: Any) -> UnifiedLog:
    """A log of a segment at 0 with these batches, and an active one at FAR + 9.

    `aborted` is an entry of the first one's transaction index: producer, first and last offset, last stable offset.
    """
    folder = path / "topic-0"
    folder.mkdir(parents=True)
    for base, data in ((0, b"".join(batches)), (FAR + 9, build_batch(FAR + 9, (b"5", b"v")))):
        (folder / f"{base:020d}.log").write_bytes(data)
        (folder / f"{base:020d}.index").touch()
        (folder / f"{base:020d}.timeindex").write_bytes(NOW.to_bytes(8, "big") + b"\0\0\0\0")
    if aborted:
        (folder / f"{0:020d}.txnindex").write_bytes(struct.pack(">hqqqq", 0, *aborted))
    os.utime(folder / f"{0:020d}.log", ns=(OLD_NS, OLD_NS))
    return open_log(path, **more)


def list_leftovers(log: UnifiedLog) -> list[str]:
    return [name for name in os.listdir(log.path) if name.endswith(SUFFIXES)]


@pytest.mark.parametrize("place", [1, FAR], ids=["first part", "second part"])
def test_an_aborted_transaction_stays_aborted_over_a_split(tmp_path: Path, place: int) -> None:
    """CLN-26, CLN-20: the marker's part has the entry; the value that was committed before it is not lost."""
    transaction = build_producer_batch(place, 7, 0, 1, txn=True) + build_marker(place + 1, 7, commits=False)
    far = () if place > 1 else (build_batch(FAR + 2, (b"8", b"v")),)
    batches = build_batch(0, (b"1", b"committed")), transaction, *far
    log = write_overflowing(tmp_path, *batches, aborted=(7, place, place + 1, place + 2))
    with pytest.raises(CleaningAborted, match="had to be split"):
        clean_log(log)
    assert len(log.segments) == 3
    (entry,) = collect_aborted(log.segments, log.segments[0], 0, FAR + 9)
    assert (entry.producer_id, entry.first_offset, entry.last_offset) == (7, place, place + 1)
    owner = log.segments.floor(place + 1)
    assert owner is not None and owner.txn_index.count == 1
    clean_log(log)
    assert read_records(log)[0] == (b"1", b"committed") and place not in read_records(log)
    log.close()


def test_the_parts_have_the_time_of_what_they_were_made_of(tmp_path: Path) -> None:
    """CLN-8, CLN-25: tombstones of old formats go by it."""
    log = write_overflowing(tmp_path, build_batch(0, (b"1", b"v")), build_batch(FAR + 1, (b"2", b"v")))
    with pytest.raises(CleaningAborted, match="had to be split"):
        clean_log(log)
    assert [one.records.last_modified_ns() for one in log.segments][:2] == [OLD_NS, OLD_NS]
    log.close()


@pytest.mark.parametrize("index_bytes", [1 << 10, 10 << 20])
def test_an_overflow_behind_the_first_chunk(tmp_path: Path, index_bytes: int) -> None:
    """CLN-26: when some of the segment was written already, the parts hold each batch once."""
    near = [build_batch(offset, (b"k%d" % offset, b"v" * 900)) for offset in range(20)]
    log = write_overflowing(tmp_path, *near, build_batch(FAR + 1, (b"8", b"v")), segment_index_bytes=index_bytes)
    with pytest.raises(CleaningAborted, match="had to be split") as caught:
        clean_log(log, io_buffer_bytes=4096)
    assert caught.value.path == log.segments[0].path
    every = [*range(20), FAR + 1, FAR + 9]
    assert bases(log) == [0, FAR + 1, FAR + 9]
    assert log.segments[0].size == sum(map(len, near)) == os.path.getsize(log.segments[0].path)
    assert [offset for _, offset in keys_and_offsets(log)] == every
    clean_log(log, io_buffer_bytes=4096)
    assert [offset for _, offset in keys_and_offsets(log)] == every
    assert not list_leftovers(log)
    log.close()


def write_damaged(path: Path, at: int, form: str, value: int) -> UnifiedLog:
    """A log with two batches in its first segment, the CRC of the second right although a field of it is not."""
    log = open_log(path)
    append(log, (b"a", b"1"))
    append(log, (b"b", b"2"))
    log.roll()
    file = Path(log.segments[0].path)
    data = bytearray(file.read_bytes())
    second = tuple(log.segments[0].records.batches())[1].position
    batch = data[second:]
    struct.pack_into(form, batch, at, value)
    data[second:] = seal(batch)
    file.write_bytes(data)
    return log


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [(23, ">i", -5), (0, ">q", 2**40), (0, ">q", 1000)],
    ids=["ends before it begins", "past the next segment, too far", "past the next segment"],
)
def test_offsets_that_no_split_can_place_end_the_clean(tmp_path: Path, at: int, form: str, value: int) -> None:
    """CLN-26: it ends, each time, with an error that says where; the order of segments stays."""
    log = write_damaged(tmp_path, at, form, value)
    before = bases(log)
    for _ in range(2):
        with pytest.raises(CorruptRecord) as caught:
            clean_log(log)
        assert caught.value.path == log.segments[0].path and caught.value.offset is not None
    assert bases(log) == before and log.active_segment is log.state.segments.active
    assert not list_leftovers(log)
    assert append(log, (b"c", b"3")) == 2
    log.close_handlers()


def test_a_segment_that_would_be_split_into_itself(tmp_path: Path) -> None:
    """CLN-26: offsets past the next segment are damage: no split helps."""
    log = open_log(tmp_path)
    append(log, (b"a", b"1"))
    log.roll()
    append(log, (b"b", b"2"))
    log.roll()
    victim = log.segments[1]
    file = Path(victim.path)
    data = bytearray(file.read_bytes())
    struct.pack_into(">i", data, 23, FAR - 1)
    file.write_bytes(seal(data))
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="but the segment must end below 2"):
            clean_log(log)
    assert bases(log) == [0, 1, 2] and not list_leftovers(log)
    log.close_handlers()


@pytest.mark.parametrize("splits", [False, True])
def test_an_error_of_the_disk_is_told_as_such_at_every_step(tmp_path: Path, splits: bool) -> None:
    """CLN-28, LOG-79: also behind the point where the new segments count: then the log takes no writes."""
    after_swap = 0
    for nth in each_failure():
        fs = FaultFS()
        folder = tmp_path / str(nth)
        if splits:
            log = write_overflowing(folder, build_batch(0, (b"1", b"v")), build_batch(FAR + 1, (b"2", b"v")), fs=fs)
        else:
            folder.mkdir()
            log = open_log(folder, fs=fs)
            for number in range(2):
                append(log, (b"a", b"%d" % number))
                log.roll()
        old = log.segments[0]
        rule = fs.fail("rename", "fsync", "unlink", nth=nth, times=1)
        try:
            clean_log(log)
        except CleaningAborted as error:  # a file that could not be removed is no reason to stop
            assert splits and "had to be split" in str(error) and not log.failed
        except StorageError:
            assert rule.fired
            after_swap += log.failed and log.segments[0] is not old
        log.close_handlers()
        if not rule.fired:
            break
    assert after_swap
