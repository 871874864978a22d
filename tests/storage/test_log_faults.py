"""UnifiedLog when the disk fails or Ctrl-C comes: what was acknowledged stays, and the log goes on or says why not."""

import errno
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog._core.batch.scan import scan
from kafkalog.errors import KafkalogError, StorageError
from kafkalog.storage.log import UnifiedLog
from tests.faults import FaultFS, each_failure
from tests.mock_time import MockClock, MockScheduler
from tests.storage.logs import NOW, append_batches, bases, files, log, offset_entries, run, sized_batch, time_entries

pytestmark = pytest.mark.in_memory

PACKAGE = str(Path(kafkalog.__file__).parent)
SETTINGS = {"internal_segment_bytes": 500, "index_interval_bytes": 150}


def check_files(a_log: UnifiedLog) -> None:
    """The state says what is in the files, and the indexes what is in the data."""
    expected = a_log.segments[0].base_offset
    for segment in a_log.segments:
        table = scan(segment.records.read(0, segment.size))
        assert table.valid_bytes == segment.size and table.first_invalid < 0
        by_last = {}
        for batch in table:
            assert batch.base_offset == expected
            expected = batch.last_offset + 1
            by_last[batch.last_offset] = batch
        for last, position in offset_entries(segment):
            assert by_last[last].position == position
        for time, last in time_entries(segment):
            assert by_last[last].max_timestamp == time
    assert a_log.log_end_offset == expected
    assert a_log.state.end_position == a_log.active_segment.size == a_log.active_segment.tail.size


def check_still_usable(a_log: UnifiedLog, path: Path) -> None:
    """The log takes appends, closes well, and opens again with the same end and no stray bytes."""
    check_files(a_log)
    end = a_log.log_end_offset
    append_batches(a_log, timestamp=NOW + 10_000)
    assert a_log.log_end_offset == end + 1
    check_files(a_log)
    a_log.close()
    for segment in a_log.segments:
        assert files(path / "topic-0")[f"{segment.base_offset:020d}.log"] == segment.size
    again = log(path, **SETTINGS)
    assert again.log_end_offset == end + 1
    assert [(s.base_offset, s.size) for s in again.segments] == [(s.base_offset, s.size) for s in a_log.segments]
    check_files(again)
    again.close_handlers()


def append(a_log: UnifiedLog) -> None:
    append_batches(a_log, timestamp=NOW + 100)


def append_group(a_log: UnifiedLog) -> None:
    a_log.append_batches(bytearray(run(0, 7, timestamp=NOW + 100)))


def follow(a_log: UnifiedLog) -> None:
    a_log.append_as_follower(run(a_log.log_end_offset, 3, timestamp=NOW + 100), 0)


def roll(a_log: UnifiedLog) -> None:
    a_log.roll()


def cut(a_log: UnifiedLog) -> None:
    a_log.truncate_to(3)


ACTIONS = [append, append_group, follow, roll]


def open_filled(path: Path, fs: FaultFS, count: int) -> UnifiedLog:
    a_log = log(path, fs=fs, **SETTINGS)
    for n in range(count):
        append_batches(a_log, timestamp=NOW + n)
    return a_log


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_full_disk_at_each_call(tmp_path: Path, action: Callable[[UnifiedLog], None], count: int) -> None:
    """LOG-26: a typed error with the file, no byte of the failed append, and the log goes on once there is room."""
    for nth in each_failure():
        path = tmp_path / str(nth)
        path.mkdir()
        fs = FaultFS()
        a_log = open_filled(path, fs, count)
        rule = fs.fail("open", "pwrite", "posix_fallocate", "rename", path="topic-0/0", nth=nth, times=1, partial=37)
        try:
            action(a_log)
        except StorageError as error:
            assert error.errno == errno.ENOSPC and str(path) in str(error.path)
        fs.heal()
        check_still_usable(a_log, path)
        if not rule.fired:
            return


@pytest.mark.parametrize("action", ACTIONS)
def test_a_write_that_cannot_be_undone_either(tmp_path: Path, action: Callable[[UnifiedLog], None]) -> None:
    """LOG-26: everything fails from the n-th call on: reading goes on; when the disk is well again writing does too,
    or every write says why not."""
    for nth in each_failure():
        path = tmp_path / str(nth)
        path.mkdir()
        fs = FaultFS()
        a_log = open_filled(path, fs, 4)
        before = a_log.log_end_offset
        rule = fs.fail(nth=nth, path="topic-0/0", code=errno.EIO, partial=37)
        try:
            action(a_log)
        except KafkalogError as error:
            assert isinstance(error, StorageError)
        assert a_log.read(0, 10_000).records.size >= 400
        assert a_log.log_end_offset >= before
        fs.heal()
        try:
            append_batches(a_log, timestamp=NOW + 10_000)
        except StorageError as error:
            assert error.hint
            a_log.close_handlers()
        else:
            check_still_usable(a_log, path)
        if not rule.fired:
            return


def test_short_writes_are_finished(tmp_path: Path) -> None:
    """LOG-26, FILE-15."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, **SETTINGS)
    fs.short_writes(7)
    append_group(a_log)
    check_still_usable(a_log, tmp_path)


def test_the_error_of_a_group_names_the_first_offset_not_written(tmp_path: Path) -> None:
    """LOG-26: batches before it are in the log."""
    fs = FaultFS()
    a_log = open_filled(tmp_path, fs, 3)
    fs.fail("pwrite", path=".log", nth=2, times=1)
    with pytest.raises(StorageError) as caught:
        append_group(a_log)
    assert caught.value.offset == a_log.log_end_offset == 5
    check_still_usable(a_log, tmp_path)


def test_a_failed_sync_poisons(tmp_path: Path) -> None:
    """LOG-26: the pages may be gone: no later write succeeds, reads go on, close raises and closes all the same."""
    fs = FaultFS()
    a_log = open_filled(tmp_path, fs, 3)
    fs.fail("fdatasync", path=".log", times=1, code=errno.EIO)
    with pytest.raises(StorageError):
        a_log.flush()
    for call in (lambda: append_batches(a_log), a_log.flush, a_log.roll, lambda: a_log.truncate_to(1)):
        with pytest.raises(StorageError, match="rejects writes") as caught:
            call()
        assert caught.value.errno == errno.EIO and caught.value.hint
    assert a_log.read(0, 1000).records.size == 300
    assert a_log.recovery_point == 0
    with pytest.raises(StorageError):
        a_log.close()
    assert a_log.closed and all(segment.records.closed for segment in a_log.segments)


@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", "topic-0"])
def test_a_failed_sync_of_any_file_or_the_directory(tmp_path: Path, suffix: str) -> None:
    fs = FaultFS()
    a_log = open_filled(tmp_path, fs, 3)
    rule = fs.fail("fdatasync", "fsync", path=suffix, times=1, code=errno.EIO)
    with pytest.raises(StorageError):
        a_log.flush()
    assert rule.fired
    with pytest.raises(StorageError):
        append_batches(a_log)


def test_a_failed_background_flush_poisons(tmp_path: Path) -> None:
    """LOG-18: the append that caused the roll succeeded; the next one reports the error."""
    fs, clock = FaultFS(), MockClock(NOW)
    a_log = log(tmp_path, fs=fs, clock=clock, scheduler=MockScheduler(clock), recovery_point=0, **SETTINGS)
    fs.fail("fdatasync", path=".log", times=1, code=errno.EIO)
    append_batches(a_log, times=6)
    with pytest.raises(StorageError, match="rejects writes"):
        append_batches(a_log)


def test_a_cut_that_fails_leaves_the_front_or_takes_no_writes(tmp_path: Path) -> None:
    """LOG-53: whatever call fails."""
    for nth in each_failure():
        path = tmp_path / str(nth)
        path.mkdir()
        fs = FaultFS()
        a_log = open_filled(path, fs, 12)
        rule = fs.fail("rename", "ftruncate", "pwrite", path="topic-0/0", nth=nth, times=1, code=errno.EIO)
        try:
            cut(a_log)
        except StorageError:
            with pytest.raises(StorageError):
                append_batches(a_log)
            a_log.close_handlers()
        else:
            assert a_log.log_end_offset == 3
            fs.heal()
            check_still_usable(a_log, path)
        if not rule.fired:
            return


@pytest.mark.parametrize("partial", [False, True])
def test_an_empty_segment_that_cannot_get_its_name_back_takes_no_writes(tmp_path: Path, partial: bool) -> None:
    """LOG-17: what is appended to a file named `.deleted` would be gone with the next opening."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, **SETTINGS)
    if partial:
        fs.fail("rename", path=".index")
        fs.fail("rename", path=".log.deleted")
    else:
        fs.fail("open", path=".log")
        fs.fail("rename", path=".deleted")
    with pytest.raises(StorageError):
        a_log.roll()
    fs.heal()
    with pytest.raises(StorageError, match="rejects writes"):
        append_batches(a_log)
    a_log.close_handlers()


def test_an_empty_segment_that_cannot_be_replaced_stays(tmp_path: Path) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, **SETTINGS)
    fs.fail("open", path=".log")
    with pytest.raises(StorageError):
        a_log.roll()
    fs.heal()
    append_batches(a_log)
    a_log.close()
    assert files(tmp_path / "topic-0")[f"{0:020d}.log"] == 100


# Ctrl-C


class CtrlC:
    """Sends SIGINT at the n-th place in kafkalog where the interpreter looks for signals; `fired` says if it came.

    Those places are the beginning of a function and the return of a built-in one.
    """

    def __init__(self, nth: int) -> None:
        self.left = nth
        self.fired = False

    def look(self, frame: Any, event: str, arg: object) -> None:
        if event not in ("call", "c_return") or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        if "interrupts" in frame.f_code.co_filename or self.fired:
            return
        self.left -= 1
        if self.left == 0:
            self.fired = True
            signal.raise_signal(signal.SIGINT)

    def __enter__(self) -> "CtrlC":
        sys.setprofile(self.look)
        return self

    def __exit__(self, *exc: object) -> bool:
        sys.setprofile(None)
        return exc[0] is KeyboardInterrupt


@pytest.mark.slow
@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("action", [*ACTIONS, cut])
def test_ctrl_c_at_each_place(tmp_path: Path, action: Callable[[UnifiedLog], None], count: int) -> None:
    """LOG-26: the append is in the log or it is not; the log goes on, its files say what its state says."""
    for nth in range(1, 2000):
        path = tmp_path / str(nth)
        path.mkdir()
        a_log = log(path, **SETTINGS)
        for n in range(count):
            append_batches(a_log, timestamp=NOW + n)
        with CtrlC(nth) as ctrl_c:
            action(a_log)
        check_still_usable(a_log, path)
        if not ctrl_c.fired:
            return
    raise AssertionError("never came to an end")


@pytest.mark.parametrize("action", ACTIONS)
def test_an_interrupt_out_of_each_file_call(tmp_path: Path, action: Callable[[UnifiedLog], None]) -> None:
    """LOG-26: as if the signal's handler raised while the call was under way; a part may be written."""
    for nth in each_failure():
        path = tmp_path / str(nth)
        path.mkdir()
        fs = FaultFS()
        a_log = open_filled(path, fs, 4)
        stop = KeyboardInterrupt()
        rule = fs.fail("pwrite", "posix_fallocate", nth=nth, path="topic-0/0", times=1, partial=37, error=stop)
        try:
            action(a_log)
        except KeyboardInterrupt:
            pass
        fs.heal()
        check_still_usable(a_log, path)
        if not rule.fired:
            return


def test_close_is_not_interrupted_half_way(tmp_path: Path) -> None:
    """LOG-26: Ctrl-C waits until all files are closed."""
    for nth in range(1, 2000):
        path = tmp_path / str(nth)
        path.mkdir()
        a_log = log(path, **SETTINGS)
        a_log.append_as_leader(bytearray(sized_batch(100)))
        with CtrlC(nth) as ctrl_c:
            a_log.close()
        if ctrl_c.fired and not a_log.closed:
            a_log.close()
        assert log(path, **SETTINGS).log_end_offset == 1
        if not ctrl_c.fired:
            return
    raise AssertionError("never came to an end")


def test_offsets_stay_in_order_after_faults(tmp_path: Path) -> None:
    """LOG-26: no offset is given twice, whatever failed before (KAFKA-7866)."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, **SETTINGS)
    for turn in range(40):
        fs.fail("pwrite", path=".log" if turn % 3 else "index", nth=1 + turn % 4, times=1, partial=turn * 5 % 90)
        for _ in range(3):
            try:
                append_batches(a_log, timestamp=NOW + turn)
            except StorageError:
                pass
        fs.heal()
    assert len(bases(a_log)) > 10
    check_still_usable(a_log, tmp_path)


@pytest.mark.parametrize("refused", [".snapshot", ".log"])
def test_retention_makes_room_on_a_full_disk_that_takes_no_new_segment(tmp_path: Path, refused: str) -> None:
    """LOG-43: all segments are due, and the last one stays until there is room for the next."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, retention_ms=1000, **SETTINGS)
    append_batches(a_log, times=17)
    assert len(a_log.segments) == 4
    last, end = bases(a_log)[-1], a_log.log_end_offset
    rule = fs.fail("open", path=refused, code=errno.ENOSPC)
    assert a_log.delete_old_segments(NOW + 10**6) == 3
    assert rule.fired and bases(a_log) == [last] and (a_log.log_start_offset, a_log.log_end_offset) == (last, end)
    with pytest.raises(StorageError, match="No space left"):
        a_log.delete_old_segments(NOW + 10**6)
    fs.heal()
    assert a_log.delete_old_segments(NOW + 10**6) == 1 and bases(a_log) == [end]
    append_batches(a_log)
    a_log.close()
    reopened = log(tmp_path, **SETTINGS)
    assert (reopened.log_start_offset, reopened.log_end_offset) == (end, end + 1)
    reopened.close()


def test_retention_deletes_nothing_if_the_disk_itself_fails(tmp_path: Path) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, retention_ms=1000, **SETTINGS)
    append_batches(a_log, times=17)
    fs.fail("open", path=".log", code=errno.EIO)
    with pytest.raises(StorageError):
        a_log.delete_old_segments(NOW + 10**6)
    assert len(a_log.segments) == 4
