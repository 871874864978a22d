"""Syncs, their order, and the effect of a failed one (LOG-49 to LOG-51, LOG-35, SEG-32)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import KafkalogError, StorageError
from kafkalog.log.open_writable import open_for_append
from kafkalog.storage.log import UnifiedLog
from kafkalog.util.checkpoint import CheckpointFile
from tests.builder import R, batch
from tests.faults import FaultFS, each_failure
from tests.gates import wait_until
from tests.storage.logs import NOW, append_batches, log, run
from tests.transactional import ABORT, TRANSACTIONAL, marker

pytestmark = pytest.mark.in_memory

SYNCS = ("fsync", "fdatasync")


def list_synced(fs: FaultFS) -> list[str]:
    """Names of what was synced, in order; the partition directory is "/"."""
    return [os.path.basename(call.path) if os.path.isfile(call.path) else "/" for call in fs.named(*SYNCS)]


def suffixes(fs: FaultFS) -> list[str]:
    return [os.path.splitext(name)[1] or name for name in list_synced(fs)]


def test_a_flush_syncs_records_then_indexes_then_the_directory(tmp_path: Path) -> None:
    """SEG-32, LOG-51; a second one with nothing new to do syncs nothing."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, index_interval_bytes=100)
    append_batches(a_log, times=5)
    fs.calls.clear()
    a_log.flush()
    assert suffixes(fs) == [".log", ".index", ".timeindex", "/"]
    assert a_log.recovery_point == a_log.log_end_offset
    fs.calls.clear()
    a_log.flush()
    assert suffixes(fs) == []
    a_log.close()


def test_a_commit_syncs_records_and_leaves_the_recovery_point(tmp_path: Path) -> None:
    """A crash then recovers from the old point: the indexes of committed records are rebuilt."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, index_interval_bytes=100)
    append_batches(a_log, times=5)
    fs.calls.clear()
    a_log.commit()
    assert suffixes(fs) == [".log", "/"]
    append_batches(a_log, times=5)
    fs.calls.clear()
    a_log.commit()
    assert (suffixes(fs), a_log.recovery_point) == ([".log"], 0)
    a_log.roll()
    append_batches(a_log)
    fs.calls.clear()
    a_log.commit()
    assert set(suffixes(fs)) == {".log", "/"} and a_log.recovery_point == 0
    fs.calls.clear()
    a_log.flush()
    assert suffixes(fs).count(".index") == 2, "what commits left is synced before the recovery point moves"
    assert a_log.recovery_point == a_log.log_end_offset
    a_log.close()


def test_a_snapshot_of_a_roll_is_synced_before_the_recovery_point_moves_beyond_it(tmp_path: Path) -> None:
    """KAFKA-9892; none is synced by the roll itself, which holds the lock."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log, times=3)
    fs.calls.clear()
    a_log.roll()
    assert list_synced(fs) == []
    a_log.flush()
    names = list_synced(fs)
    assert names[0] == f"{3:020d}.snapshot" and names[-1] == "/"
    append_batches(a_log)
    a_log.roll()
    fs.calls.clear()
    os.unlink(tmp_path / "topic-0" / f"{4:020d}.snapshot")
    a_log.flush()
    assert not any(name.endswith(".snapshot") for name in list_synced(fs))
    a_log.close()


def test_what_a_roll_changes_in_a_segment_that_was_flushed_is_synced(tmp_path: Path) -> None:
    """The last time entry: without it a look-up by time would miss the end of the segment."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log, times=3)
    a_log.flush()
    a_log.roll()
    fs.calls.clear()
    a_log.flush()
    assert f"{0:020d}.timeindex" in list_synced(fs)
    fs.calls.clear()
    a_log.flush()
    assert f"{0:020d}.timeindex" not in list_synced(fs)
    a_log.close()


def test_the_last_time_entry_of_a_close_is_synced(tmp_path: Path) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log, times=3)
    a_log.flush()
    fs.calls.clear()
    a_log.close()
    ops = [call.op for call in fs.calls if call.path.endswith(".timeindex") and call.op in ("pwrite", "fdatasync")]
    assert ops == ["pwrite", "fdatasync"]


def test_the_names_that_a_cut_removed_are_off_the_disk_when_it_returns(tmp_path: Path) -> None:
    """Segments behind the cut must not come back when the power goes."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, internal_segment_bytes=500)
    append_batches(a_log, times=20)
    a_log.flush()
    fs.calls.clear()
    a_log.truncate_to(2)
    ops = [(call.op, os.path.basename(call.path)) for call in fs.calls if call.op in ("rename", "fsync")]
    assert ops[-1] == ("fsync", "topic-0") and ("rename", f"{a_log.active_segment.base_offset:020d}.log") not in ops
    fs.calls.clear()
    a_log.truncate_fully_and_start_at(50)
    assert "/" in list_synced(fs)
    a_log.close()


def test_a_cut_below_what_was_committed_makes_the_next_commit_sync_from_there(tmp_path: Path) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log, times=8)
    a_log.commit()
    a_log.truncate_to(5)
    append_batches(a_log)
    a_log.roll()
    append_batches(a_log, times=4)
    fs.calls.clear()
    a_log.commit()
    assert {f"{0:020d}.log", f"{6:020d}.log"} <= set(list_synced(fs))
    a_log.close()


def test_the_first_aborted_transaction_of_a_segment_has_the_directory_synced(tmp_path: Path) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
    data = batch([R(None, b"v", timestamp=NOW)], attributes=TRANSACTIONAL, **producer)
    a_log.append_as_leader(bytearray(data))
    a_log.flush()
    fs.calls.clear()
    a_log.append_as_leader(bytearray(marker(1, 7, ABORT)), origin="coordinator")
    a_log.flush()
    assert ".txnindex" in suffixes(fs) and suffixes(fs)[-1] == "/"
    a_log.close()


# flush.messages and flush.ms


@pytest.mark.parametrize("count", [1, 3])
def test_flush_messages_flushes_at_the_append_that_makes_so_many(tmp_path: Path, count: int) -> None:
    """LOG-50: as a leader, as a follower, and of several batches at once."""
    a_log = log(tmp_path, flush_messages=count)
    for number in range(1, 10):
        append_batches(a_log)
        assert a_log.recovery_point == number - number % count
    a_log.append_batches(bytearray(run(0, 7)))
    assert a_log.log_end_offset - a_log.recovery_point < count or count == 1
    a_log.close()


def test_without_flush_messages_an_append_syncs_nothing(tmp_path: Path) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log)  # writes the epoch
    fs.calls.clear()
    append_batches(a_log, times=50)
    assert list_synced(fs) == []
    a_log.close()


def test_a_flush_messages_that_cannot_sync_fails_the_append(tmp_path: Path) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, flush_messages=2)
    append_batches(a_log)
    fs.fail("fdatasync", path=".log", code=errno.EIO, times=1)
    with pytest.raises(StorageError):
        append_batches(a_log)
    with pytest.raises(StorageError, match="rejects writes"):
        append_batches(a_log)
    a_log.close_handlers()


def test_flush_ms_flushes_in_the_background(tmp_path: Path) -> None:
    """Appends to the log, and through a writer."""
    with kafkalog.open(tmp_path / "t-0", "a", flush_ms=1) as a_log:
        inner = a_log._opened.log  # type: ignore[union-attr]
        a_log.append(b"v")
        wait_until(lambda: inner.recovery_point == 1)
        with a_log.writer() as writer:
            writer.append(b"v").result()
            wait_until(lambda: inner.recovery_point == 2)
    with kafkalog.open(tmp_path / "u-0", "a", flush_ms=2**63 - 2) as a_log:
        a_log.append(b"v")


# A sync that fails


def workload(directory: Path, fs: FaultFS, reported: list[bytes]) -> None:
    """Commits, a roll, a new epoch, a cut, a flush, a close; `reported` gets what was reported as on disk."""
    opened = open_for_append(directory / "t-0", {"index_interval_bytes": 100}, sync=True, fs=fs)
    a_log = kafkalog.Log(opened.log, opened)
    failed = None
    try:
        for turn in range(12):
            value = b"%d" % turn * 30
            a_log.append(value)
            reported.append(value)
            if turn == 3:
                a_log.roll()
            if turn == 5:
                opened.log.leader_epoch = 1
            if turn == 7:
                del reported[6:]  # a cut that fails may have cut
                a_log.truncate_to(6)
            if turn == 9:
                a_log.flush()
    except StorageError as error:
        failed = error
    if failed is not None and opened.log._core.health.cause is not None:
        fs.calls.clear()
        for again in (lambda: a_log.append(b"late"), a_log.flush, a_log.roll):
            with pytest.raises(StorageError, match="rejects writes after an earlier failure"):
                again()
        assert fs.named(*SYNCS) == [], "a sync after one that failed"
    try:
        a_log.close()
    except KafkalogError:
        assert failed is None or not (directory / ".kafka_cleanshutdown").exists()
        raise


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
def test_each_sync_in_turn_fails_once(tmp_path: Path, code: int) -> None:
    """Data, indexes, snapshot, directory, epochs, checkpoints, marker: no reported record is lost, and none is reported
    after the failure until the log is reopened; recovery then decides what is there."""
    for nth in each_failure():
        directory = tmp_path / str(nth)
        directory.mkdir()
        fs, reported = FaultFS(), []  # type: ignore[var-annotated]
        rule = fs.fail(*SYNCS, nth=nth, times=1, code=code)
        with suppress(StorageError):
            workload(directory, fs, reported)
        if not rule.fired:
            assert nth > 25 and len(reported) == 10
            break
        with kafkalog.open(directory / "t-0", "a") as again:
            values = [record.value for record in again]
            assert values[: len(reported)] == reported
            assert again.append(b"goes on").first_offset == len(values)


def test_an_epoch_file_that_could_not_be_synced_is_written_anew(tmp_path: Path) -> None:
    """The only sync that is retried: of a new file, with the whole content from memory."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log)
    fs.fail("fsync", path="leader-epoch", times=1, code=errno.EIO)
    a_log.leader_epoch = 3
    append_batches(a_log)
    fs.calls.clear()
    a_log.flush()
    ops = [call.op for call in fs.named("open", "pwrite", "fsync", "rename") if "leader-epoch" in call.path]
    assert ops == ["open", "pwrite", "fsync", "rename"]
    a_log.close()


@pytest.mark.parametrize("op", ["open", "pwrite", "fsync", "rename"])
def test_a_checkpoint_that_fails_leaves_the_old_one(tmp_path: Path, op: str) -> None:
    path = tmp_path / "recovery-point-offset-checkpoint"
    fs = FaultFS()
    file: CheckpointFile[list[str]] = CheckpointFile(path, lambda fields: fields, " ".join, fs=fs)
    file.write([["old", "0", "1"]])
    fs.fail(op, path="checkpoint", times=1, code=errno.EIO)
    with pytest.raises(StorageError):
        file.write([["new", "0", "2"]])
    assert file.read() == [["old", "0", "1"]]
    assert os.listdir(tmp_path) == [path.name]
    fs.heal()
    fs.calls.clear()
    file.write([["new", "0", "2"]])
    assert [c.op for c in fs.named("pwrite", "fsync", "rename")] == ["pwrite", "fsync", "rename", "fsync"]


ENDS: dict[str, Callable[[UnifiedLog], object]] = {
    "flush": lambda a_log: a_log.flush(),
    "commit": lambda a_log: a_log.commit(),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_directory_sync_after_a_roll_poisons_as_any_other(tmp_path: Path, end: str) -> None:
    """LOG-35."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    append_batches(a_log)
    ENDS[end](a_log)
    a_log.roll()
    append_batches(a_log)
    fs.fail("fsync", path=a_log.name, times=1, code=errno.EIO)
    with pytest.raises(StorageError) as failure:
        ENDS[end](a_log)
    assert (failure.value.errno, failure.value.path) == (errno.EIO, a_log.path)
    with pytest.raises(StorageError, match="open it again"):
        append_batches(a_log)
    a_log.close_handlers()
