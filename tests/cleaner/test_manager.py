"""The cleaner's account of the logs: which is next, what its checkpoint says, what is set aside."""

from __future__ import annotations

import errno
import signal
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest

from kafkalog.cleaner.manager import POSTPONE_MS
from kafkalog.cleaner.states import CleaningStates, State
from kafkalog.cleaner.types import ASKED, COMPACTION_LAG, DIRTY_RATIO
from kafkalog.errors import CleaningAborted, CorruptRecord, IllegalState, StorageError
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from tests.cleaner.pools import Pool, directory_of, number_of
from tests.cleaner.test_states import in_thread
from tests.storage.logs import NOW

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def test_the_dirtiest_is_grabbed_and_then_the_next(pool: Pool) -> None:
    """CLN-29: what is in progress is not grabbed again; what is clean enough never."""
    pool.log(0, dirty=3, clean=2)
    pool.log(1, dirty=5, clean=1)
    pool.log(2, dirty=1, clean=5)
    grabbed = [pool.manager.grab(NOW) for _ in range(3)]
    assert [number_of(log) for log in grabbed] == [1, 0, None]
    assert [log.reason for log in grabbed if log is not None] == [DIRTY_RATIO] * 2
    assert pool.manager.choice.dirtiest_ratio == pytest.approx(1 / 6)
    assert pool.manager.last_look_ms == NOW


def test_logs_without_compact_are_not_looked_at(pool: Pool) -> None:
    """CLN-36: nor is one whose policy has changed to delete."""
    pool.log(0, dirty=3, cleanup_policy="delete")
    log = pool.log(1, dirty=3, cleanup_policy="compact,delete")
    found = pool.manager.grab(NOW)
    assert number_of(found) == 1
    pool.manager.done_cleaning(log, None)
    log.config = log.config.replace(cleanup_policy="delete")
    assert pool.manager.grab(NOW) is None


def test_what_waited_too_long_is_grabbed_though_it_is_clean(pool: Pool) -> None:
    """CLN-31."""
    pool.log(0, dirty=1, clean=5, max_compaction_lag_ms=1000)
    assert pool.manager.grab(NOW + 1000) is None
    found = pool.manager.grab(NOW + 1001)
    assert found is not None
    assert (number_of(found), found.reason) == (0, COMPACTION_LAG)
    assert (pool.manager.choice.delayed, pool.manager.choice.longest_delay_ms) == (1, 1)


def test_the_checkpoint_follows_a_clean(pool: Pool) -> None:
    """CLN-33, CLN-35: written when it is done, and not when it was aborted or its end is unknown."""
    log = pool.log(0, dirty=3)
    assert pool.manager.grab(NOW) is not None
    pool.manager.done_cleaning(log, 3)
    assert pool.offsets.lines == {T0: 3}
    assert pool.manager.grab(NOW) is None
    pool.offsets.lines[T0] = 0
    assert pool.manager.grab(NOW) is not None
    pool.manager.done_cleaning(log, None)
    assert pool.offsets.lines == {T0: 0}
    assert pool.manager.states.of(T0) is None


def test_an_aborted_clean_leaves_the_checkpoint(pool: Pool) -> None:
    """CLN-35: and the partition paused, for who aborted it."""
    log = pool.log(0, dirty=3)
    grabbed, paused = threading.Event(), threading.Event()

    def clean() -> None:
        assert pool.manager.grab(NOW) is not None
        grabbed.set()
        with pytest.raises(CleaningAborted):
            while True:
                pool.manager.check(log)
        pool.manager.done_cleaning(log, 3)

    cleaner = in_thread(clean)
    grabbed.wait()
    with pool.manager.cleaning_paused(T0):
        paused.set()
        assert pool.offsets.lines == {}
        assert pool.manager.grab(NOW) is None
    cleaner.join()
    assert number_of(pool.manager.grab(NOW)) == 0


def test_done_needs_a_clean(pool: Pool) -> None:
    """CLN-34."""
    log = pool.log(0, dirty=3)
    with pytest.raises(IllegalState):
        pool.manager.done_cleaning(log, 3)
    assert pool.offsets.lines == {}


def test_a_useless_checkpoint_is_written_anew_at_once(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """CLN-32: though the log is not chosen; a log that retention takes from, too, has no warning for it."""
    pool.log(0, dirty=3, min_cleanable_dirty_ratio=1.0)
    pool.offsets.lines[T0] = 99
    assert pool.manager.grab(NOW) is None
    assert pool.offsets.written == [(T0, 0)]
    assert "checkpoint 99" in caplog.text
    caplog.clear()
    log = pool.log(1, dirty=3, cleanup_policy="compact,delete", min_cleanable_dirty_ratio=1.0)
    pool.offsets.lines[T1] = 1
    log.maybe_increment_log_start_offset(2)
    assert pool.manager.grab(NOW) is None
    assert pool.offsets.written[1:] == [(T1, 2)]
    assert "checkpoint" not in caplog.text


def test_a_log_start_above_the_active_segment(pool: Pool) -> None:
    """CLN-32: nothing to clean, nothing raised."""
    log = pool.log(0, dirty=2)
    log.append_as_leader(bytearray(log.read(0, 1000).records.read()))
    log.maybe_increment_log_start_offset(3)
    assert pool.manager.grab(NOW) is None
    assert pool.offsets.written == []


def test_an_empty_log_is_passed_over(pool: Pool) -> None:
    pool.log(0)
    assert pool.manager.grab(NOW) is None


def test_a_log_that_cannot_be_looked_at_is_set_aside(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """CLN-39: KAFKA-8725: the others are cleaned."""
    bad = pool.log(0, dirty=9, max_compaction_lag_ms=1)
    pool.log(1, dirty=3)

    class Broken(dict):  # type: ignore[type-arg]
        def get(self, key: object, default: object = None) -> object:
            if key == T0:
                raise ValueError("the file says nonsense")
            return super().get(key, default)

    pool.offsets.read = lambda: {str(pool.path): Broken()}  # type: ignore[method-assign]
    assert number_of(pool.manager.grab(NOW)) == 1
    assert [one.reason for one in pool.manager.uncleanable] == ["ValueError: the file says nonsense"]
    assert bad.path in caplog.text


def test_a_log_that_cannot_be_looked_at_for_want_of_memory_is_put_off(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CLN-39: it is no fault of the log."""
    pool.log(0, dirty=3)
    monkeypatch.setattr("kafkalog.cleaner.manager.candidate", Mock(side_effect=MemoryError))
    assert pool.manager.grab(NOW) is None
    monkeypatch.undo()
    assert pool.manager.uncleanable == []
    pool.clock.advance(POSTPONE_MS)
    assert number_of(pool.manager.grab(NOW)) == 0


def test_a_log_whose_disk_failed_is_put_off_and_told_of(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """CLN-39: its directory is its owner's business; a full disk is tried again."""
    log = pool.log(0, dirty=3)
    pool.manager.note_error(log, StorageError("no space", errno=errno.ENOSPC), 1000)
    assert pool.manager.uncleanable == []
    assert len(pool.errors) == 1
    assert caplog.messages == [f"cannot clean {log.path}: no space"]
    assert pool.manager.grab(NOW) is None
    pool.clock.advance(1000)
    assert number_of(pool.manager.grab(NOW)) == 0


def test_a_log_that_lost_a_segment_is_set_aside(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """CLN-39: not where another file is missing, which the log does not count on."""
    log = pool.log(0, dirty=3)
    pool.manager.note_error(log, StorageError("no such file", errno=errno.ENOENT, path=f"{log.path}/gone"))
    assert pool.manager.uncleanable_reason(log) is None
    pool.manager.note_error(log, StorageError("no such file", errno=errno.ENOENT, path=log.segments[1].path))
    assert str(pool.manager.uncleanable_reason(log)).startswith("StorageError: no such file")
    assert caplog.messages[1].startswith(f"{log.path} is no longer cleaned: no such file")


def test_a_log_that_is_taken_back_has_its_turn_at_once(pool: Pool) -> None:
    """CLN-39: be it set aside, or put off."""
    log = pool.log(0, dirty=3)
    pool.manager.set_aside(log, CorruptRecord("bad bytes"))
    pool.manager.postpone(log, 1000)
    assert pool.manager.grab(NOW) is None
    pool.manager.reinstate(log)
    assert number_of(pool.manager.grab(NOW)) == 0


def test_uncleanable_partitions_are_counted_with_their_bytes(pool: Pool) -> None:
    """CLN-39: for each directory, until the partition is gone or was moved."""
    log = pool.log(0, dirty=3, clean=1)
    other = pool.log(1, dirty=2)
    size = log.segments[0].size
    directory = directory_of(log)
    pool.manager.set_aside(log, CorruptRecord("bad bytes"))
    assert pool.manager.uncleanable_bytes(directory, NOW) == 3 * size
    assert pool.manager.uncleanable_bytes("/elsewhere", NOW) == 0
    assert [(one.topic_partition, one.directory) for one in pool.manager.uncleanable] == [(T0, directory)]
    assert number_of(pool.manager.grab(NOW)) == 1
    pool.manager.done_cleaning(other, 2)
    pool.manager.moved(T0, directory, "/elsewhere")
    assert pool.manager.uncleanable_reason(log) is None
    assert pool.manager.uncleanable == []  # none of it lies there
    pool.manager.forget_removed()
    assert pool.manager.uncleanable == []
    pool.manager.set_aside(log, CorruptRecord("bad bytes"))
    assert len(pool.manager.uncleanable) == 1
    del pool.current_logs[T0]
    assert pool.manager.uncleanable == []
    assert number_of(pool.manager.grab(NOW)) is None
    pool.current_logs[T0] = log
    assert number_of(pool.manager.grab(NOW)) == 0  # a look forgets what is gone
    log.close()


def test_bytes_of_a_damaged_log_are_counted(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """CLN-39: nothing is read of it, and a useless checkpoint is not reported each time."""
    log = pool.log(0, dirty=3, max_compaction_lag_ms=1000)
    size = log.segments[0].size
    path = Path(log.segments[0].path)
    log.close()
    content = bytearray(path.read_bytes())
    content[8:12] = bytes((0, 0, 0, 1))  # a batch of one byte
    path.write_bytes(content)
    log = pool.current_logs[T0] = UnifiedLog.open(log.path, log.config, clock=pool.clock)
    pool.offsets.lines[T0] = 99
    pool.manager.set_aside(log, CorruptRecord("bad bytes"))
    caplog.clear()
    assert pool.manager.uncleanable_bytes(directory_of(log), NOW + 100_000) == 3 * size
    assert not caplog.records
    log.close()


def test_a_directory_without_a_readable_checkpoint_is_left_alone(pool: Pool) -> None:
    """Else its logs would be cleaned from their start again and again."""
    log = pool.log(0, dirty=3)
    pool.offsets.readable = False
    assert pool.manager.grab(NOW) is None
    with pytest.raises(StorageError, match="checkpoint"):
        pool.manager.grab_one(log, NOW)


def test_a_log_that_moves_or_is_deleted_is_not_grabbed(pool: Pool) -> None:
    """Out of the pool is out of the cleaner's sight, even where it was looked at before."""
    log = pool.log(0, dirty=3)
    pool.moving_logs[T0] = log
    assert pool.manager.grab(NOW) is None
    pool.moving_logs.clear()
    read = pool.offsets.read

    def reads_while_it_is_deleted() -> object:
        pool.current_logs.pop(T0, None)
        return read()

    pool.offsets.read = reads_while_it_is_deleted  # type: ignore[assignment, method-assign]
    assert pool.manager.grab(NOW) is None
    with pytest.raises(IllegalState, match="cannot be cleaned now"):
        pool.manager.grab_one(log, NOW)
    log.close()


def test_what_was_cut_while_it_was_looked_at_is_not_grabbed(pool: Pool) -> None:
    """Findings about it may be wrong."""
    pool.log(0, dirty=3)
    pool.log(1, dirty=2)
    read = pool.offsets.read

    def reads_while_it_is_cut() -> object:
        pool.manager.states.abort(T0)
        return read()

    pool.offsets.read = reads_while_it_is_cut  # type: ignore[assignment, method-assign]
    assert number_of(pool.manager.grab(NOW)) == 1
    pool.offsets.read = read  # type: ignore[method-assign]
    assert number_of(pool.manager.grab(NOW)) == 0


def test_retention_by_another_thread_hides_no_log(pool: Pool) -> None:
    """CLN-36: it touches each of them, and lets go: there is another look, not a back-off."""
    pool.log(0, dirty=3)
    read = pool.offsets.read

    def reads_while_another_works_on_each() -> object:
        pool.offsets.read = read  # type: ignore[method-assign]
        in_thread(lambda: pool.manager.for_each_idle(lambda log: None)).join()
        return read()

    pool.offsets.read = reads_while_another_works_on_each  # type: ignore[assignment, method-assign]
    assert number_of(pool.manager.grab(NOW)) == 0


@pytest.mark.parametrize("how", ["worked on", "deleted", "stopped"])
def test_a_log_that_is_not_idle_is_not_looked_at_again(pool: Pool, how: str) -> None:
    """CLN-29: each look reads the checkpoints of all directories."""
    log = pool.log(0, dirty=3)
    read, looks = pool.offsets.read, []

    def reads_while_it_is_taken() -> object:
        looks.append(how)
        if how == "worked on":
            pool.manager.states.begin(T0)
        elif how == "deleted":
            pool.current_logs.pop(T0, None)
        else:
            pool.manager.states.stop()
        return read()

    pool.offsets.read = reads_while_it_is_taken  # type: ignore[assignment, method-assign]
    assert pool.manager.grab(NOW) is None
    assert looks == [how]
    log.close()


def test_a_log_that_is_idle_again_is_grabbed_beside_one_that_is_not(pool: Pool) -> None:
    """CLN-36: one of the two that others touched is worth another look."""
    pool.log(0, dirty=3)
    busy = pool.log(1, dirty=3)
    read = pool.offsets.read

    def reads_while_another_works_on_both() -> object:
        pool.offsets.read = read  # type: ignore[method-assign]
        pool.manager.states.abort(T0)
        pool.manager.states.abort_and_pause(busy.topic_partition)
        return read()

    pool.offsets.read = reads_while_another_works_on_both  # type: ignore[assignment, method-assign]
    assert number_of(pool.manager.grab(NOW)) == 0


def test_a_clean_ends_where_its_log_takes_no_writes(pool: Pool) -> None:
    """CLN-34: closed, or failed."""
    closed, failed = pool.log(0, dirty=3), pool.log(1, dirty=3)
    for _ in range(2):
        assert pool.manager.grab(NOW) is not None
    pool.manager.check(closed)
    pool.manager.check(failed)
    closed.close()
    failed.stop_writes(StorageError("a broken disk"))
    for log in (closed, failed):
        with pytest.raises(StorageError, match=f"log {log.name} no longer accepts writes") as caught:
            pool.manager.check(log)
        assert caught.value.path == log.path
    with pytest.raises(StorageError, match="a broken disk"):
        failed.close()


def test_what_was_cut_while_it_was_looked_at_for_a_clean_that_is_asked_for(pool: Pool) -> None:
    """CLN-35: the clean is of what is there after the cut."""
    log = pool.log(0, dirty=1, clean=2)
    read = pool.offsets.read

    def reads_before_it_is_cut() -> object:
        pool.offsets.read = read  # type: ignore[method-assign]
        before = read()
        with pool.manager.cleaning_paused(T0):
            pool.offsets.lines[T0] = 1
        return before

    pool.offsets.read = reads_before_it_is_cut  # type: ignore[assignment, method-assign]
    assert pool.manager.grab_one(log, NOW).first_dirty_offset == 1


@pytest.mark.parametrize("block", ["left alone", "retention"])
def test_a_ctrl_c_at_a_pause_takes_it_back(pool: Pool, monkeypatch: pytest.MonkeyPatch, block: str) -> None:
    """CLN-34, CLN-38: else the partition would never be cleaned again, nor have its retention."""
    log = pool.log(0, dirty=1, cleanup_policy="delete")
    real = CleaningStates._set_locked

    def interrupted(states: CleaningStates, partition: TopicPartition, to: State | None) -> None:
        real(states, partition, to)
        if to is not None:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(CleaningStates, "_set_locked", interrupted)
    paused = pool.manager.cleaning_paused(T0) if block == "left alone" else pool.manager.retention_of([log])
    with pytest.raises(KeyboardInterrupt), paused:
        pass
    assert pool.manager.states.of(T0) is None


def test_asked_for_a_log_is_cleaned_however_clean_it_is(pool: Pool) -> None:
    log = pool.log(0, dirty=1, clean=9)
    found = pool.manager.grab_one(log, NOW)
    assert (found.reason, found.first_dirty_offset, found.first_uncleanable_offset) == (ASKED, 9, 10)
    pool.manager.done_cleaning(log, 10)
    with pool.manager.cleaning_paused(T0), pytest.raises(IllegalState, match="cannot be cleaned now"):
        pool.manager.grab_one(log, NOW)


def test_asked_for_a_log_that_is_being_cleaned_waits(pool: Pool) -> None:
    log = pool.log(0, dirty=3)
    grabbed, go_on = threading.Event(), threading.Event()

    def clean() -> None:
        pool.manager.grab(NOW)
        grabbed.set()
        go_on.wait()
        pool.manager.done_cleaning(log, 3)

    in_thread(clean)
    grabbed.wait()
    found: list[int] = []
    waiter = in_thread(lambda: found.append(pool.manager.grab_one(log, NOW).first_dirty_offset))
    go_on.set()
    waiter.join()
    assert found == [3]


def test_retention_of_logs_that_are_not_compacted(pool: Pool) -> None:
    """CLN-38: those that no thread works on; the state is undone whatever happens (KAFKA-7322, KAFKA-6568)."""
    plain = pool.log(0, dirty=1, cleanup_policy="delete")
    busy = pool.log(1, dirty=1, cleanup_policy="delete")
    pool.log(2, dirty=1)
    pool.manager.states.abort_and_pause(T1)
    with pytest.raises(ZeroDivisionError), pool.manager.retention_of(pool.current_logs.values()) as logs:
        assert logs == [plain]
        plain.config = plain.config.replace(cleanup_policy="compact")  # meanwhile it becomes the cleaner's
        assert number_of(pool.manager.grab(NOW)) == 2
        assert pool.manager.grab(NOW) is None
        raise ZeroDivisionError
    assert number_of(pool.manager.grab(NOW)) == 0
    assert str(pool.manager.states.of(T1)) == "paused(1)"
    assert busy.config.delete


def test_retention_of_compacted_logs(pool: Pool) -> None:
    """CLN-36, CLN-37: those with compact in their policy, one by one, and none that is set aside or worked on."""
    both = pool.log(0, dirty=1, cleanup_policy="compact,delete")
    only = pool.log(1, dirty=1)
    pool.log(2, dirty=1, cleanup_policy="delete")
    pool.manager.set_aside(pool.log(3, dirty=1), CorruptRecord("bad bytes"))
    paused = pool.log(4, dirty=1)
    pool.manager.states.abort_and_pause(paused.topic_partition)
    seen = []
    pool.manager.for_each_idle(lambda log: seen.append((log, str(pool.manager.states.of(log.topic_partition)))))
    assert seen == [(both, "in progress"), (only, "in progress")]
    assert pool.manager.states.of(T0) is None
    with pytest.raises(ZeroDivisionError):
        pool.manager.for_each_idle(lambda log: 1 // 0)
    assert pool.manager.states.of(T0) is None


def test_two_threads_never_have_the_same_log(pool: Pool) -> None:
    """CLN-34: however they go at it."""
    for number in range(6):
        pool.log(number, dirty=1)
    taken: list[int | None] = []
    together = threading.Barrier(3)

    def work() -> None:
        together.wait()
        while (found := pool.manager.grab(NOW)) is not None:
            taken.append(number_of(found))

    threads = [in_thread(work) for _ in range(3)]
    for thread in threads:
        thread.join()
    assert sorted(one for one in taken if one is not None) == list(range(6))
