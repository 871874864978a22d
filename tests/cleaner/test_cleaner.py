"""A cleaner thread, round by round, over a pass that cleans nothing; its memory, rate and statistics."""

from __future__ import annotations

import errno
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.cleaner import REQUESTED_THREAD, MemoryShare
from kafkalog.cleaner.pass_ import clean
from kafkalog.cleaner.states import CleaningStates, State
from kafkalog.cleaner.types import ASKED, CleanResult, LogToClean
from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import CleaningAborted, ConfigError, CorruptRecord, IllegalArgument, IllegalState, StorageError
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition
from kafkalog.util.guards import run_finalizer
from tests.cleaner.pools import Passes, Pool
from tests.cleaner.test_states import in_thread
from tests.storage.logs import NOW

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MIB = 1 << 20


def test_one_log_after_the_other_until_none_is_dirty(pool: Pool) -> None:
    """CLN-29, CLN-33: the dirtiest first; the checkpoint says how far."""
    pool.log(0, dirty=3, clean=1)
    pool.log(1, dirty=3)
    passes = Passes()
    cleaner = pool.cleaner(passes)
    assert cleaner.run() == 2
    assert passes.cleaned == [1, 0] and [one.thread for one in cleaner.book.last] == [0]
    assert pool.offsets.lines == {T0: 4, T1: 3}
    assert cleaner.run() == 0
    totals = cleaner.book.totals
    assert (totals.cleans, totals.messages_read, totals.messages_written, totals.seconds) == (2, 8, 4, 6.0)
    assert totals.bytes_read == sum(log.size for log in pool.current_logs.values())


def test_a_log_with_damage_is_set_aside_and_the_others_are_cleaned(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """CLN-28, CLN-39."""
    pool.log(0, dirty=3, clean=1)
    pool.log(1, dirty=3)
    passes = Passes()
    passes.fail[1] = CorruptRecord("a batch of 3 bytes", path="x.log", position=77)
    cleaner = pool.cleaner(passes)
    assert cleaner.run() == 2
    assert passes.cleaned == [0]
    assert [one.topic_partition for one in cleaner.manager.uncleanable] == [T1]
    assert "position 77" in cleaner.manager.uncleanable[0].reason
    assert "no longer cleaned" in caplog.text
    assert (cleaner.book.totals.cleans, cleaner.book.totals.failures, cleaner.book.running) == (1, 1, ())
    assert pool.offsets.lines == {T0: 4}
    assert cleaner.run() == 0


def test_a_log_that_was_set_aside_has_another_chance_when_it_is_asked_for(pool: Pool) -> None:
    log = pool.log(1, dirty=3)
    passes = Passes()
    passes.fail[1] = CorruptRecord("bad bytes")
    cleaner = pool.cleaner(passes)
    assert cleaner.run() == 1
    with pytest.raises(CorruptRecord):
        cleaner.clean(log)
    passes.fail.clear()
    clean = cleaner.clean(log)
    assert (clean.reason, clean.thread, clean.start_offset, clean.end_offset) == (ASKED, REQUESTED_THREAD, 0, 3)
    assert cleaner.manager.uncleanable == []


def test_a_log_that_somebody_took_a_segment_of_is_set_aside(pool: Pool) -> None:
    """CLN-39: it would fail after each back-off; once the file is back it is cleaned when it is asked for."""
    first, other = pool.log(0, dirty=3), pool.log(1, dirty=2)
    lost = Path(first.segments[1].path)
    first.close()
    log = pool.current_logs[T0] = UnifiedLog.open(first.path, first.config, clock=pool.clock)
    content = lost.read_bytes()
    lost.unlink()
    cleaner = pool.cleaner(clean)
    cleaner.run()
    assert [(one.topic_partition, lost.name in one.reason) for one in cleaner.manager.uncleanable] == [(T0, True)]
    assert pool.offsets.lines == {other.topic_partition: 2}
    lost.write_bytes(content)
    assert cleaner.clean(log).end_offset == 3
    assert cleaner.manager.uncleanable == []
    log.close()


def test_a_full_disk_is_tried_again_after_the_back_off(pool: Pool) -> None:
    """CLN-39: the log is put off, so that others have their turn; the error is reported."""
    pool.log(0, dirty=3)
    pool.log(1, dirty=2, clean=1)
    passes = Passes()
    passes.fail[0] = StorageError("no space", errno=errno.ENOSPC)
    cleaner = pool.cleaner(passes, log_cleaner_backoff_ms=5000)
    assert cleaner.run() == 2
    assert passes.cleaned == [1]
    assert len(pool.errors) == 1
    passes.fail.clear()
    pool.clock.advance(4999)
    assert cleaner.run() == 0
    pool.clock.advance(1)
    assert cleaner.run() == 1
    assert passes.cleaned == [1, 0]


def test_a_clean_that_comes_to_nothing_is_not_begun_again_at_once(pool: Pool) -> None:
    """KAFKA-8764: the cleaner does not spin."""
    pool.log(0, dirty=3)
    calls = []

    def nothing(to_clean: object, offset_map: object, **given: object) -> CleanResult:
        calls.append(1)
        return CleanResult(0, given["stats"])  # type: ignore[arg-type]

    cleaner = pool.cleaner(nothing, log_cleaner_backoff_ms=1000)
    assert (cleaner.run(), cleaner.run(), len(calls)) == (0, 0, 1)
    pool.clock.advance(999)
    assert (cleaner.run(), len(calls)) == (0, 1)
    pool.clock.advance(1)
    cleaner.run()
    assert len(calls) == 2


def test_without_a_back_off_a_log_is_tried_again_after_a_millisecond(pool: Pool) -> None:
    """KAFKA-8764: be it that the clean failed, or came to nothing."""
    pool.log(0, dirty=3)
    passes = Passes()
    passes.fail_once[0] = StorageError("no space", errno=errno.ENOSPC)
    cleaner = pool.cleaner(lambda *log, **given: passes(*log, **given)._replace(**ends), log_cleaner_backoff_ms=0)
    ends: dict[str, Any] = {"end_offset": 0}
    for cleaned, passes_made in ((1, 1), (0, 2)):
        assert (cleaner.run(), cleaner.run(), len(passes.given)) == (cleaned, 0, passes_made)
        pool.clock.advance(1)
    ends.clear()
    assert cleaner.run() == 1


def test_an_aborted_clean_is_no_failure(pool: Pool) -> None:
    """CLN-35: the log is let go and left without a checkpoint."""
    log = pool.log(0, dirty=3)
    passes = Passes()
    passes.fail[0] = CleaningAborted("somebody needs the log")
    cleaner = pool.cleaner(passes)
    with pytest.raises(CleaningAborted):
        cleaner.clean(log)
    assert (cleaner.book.totals.aborted, cleaner.book.totals.failures) == (1, 0)
    assert pool.offsets.lines == {}
    assert cleaner.manager.states.of(T0) is None


def test_after_an_aborted_clean_the_thread_goes_on_at_once(pool: Pool) -> None:
    """CLN-26, CLN-35: with this log, and the others: none of them waits for a back-off."""
    pool.log(0, dirty=3)
    pool.log(1, dirty=3, clean=1)
    passes = Passes()
    passes.fail_once[0] = CleaningAborted("an overflowing segment was split")
    cleaner = pool.cleaner(passes)
    assert cleaner.run() == 2
    assert passes.cleaned == [0, 1]
    assert (cleaner.book.totals.aborted, cleaner.book.totals.failures) == (1, 0)


def test_a_clean_that_comes_to_nothing_keeps_no_other_waiting(pool: Pool) -> None:
    """KAFKA-8764: also where the back-off ends with the time for which the log is put off."""
    pool.log(0, dirty=3)
    pool.log(1, dirty=3, clean=1)
    passes = Passes()

    def nothing_of_the_first(to_clean: LogToClean, offset_map: SkimpyOffsetMap, **given: Any) -> CleanResult:
        found = passes(to_clean, offset_map, **given)
        return found if to_clean.topic_partition == T1 else found._replace(end_offset=0)

    assert pool.cleaner(nothing_of_the_first).run() == 1
    assert passes.cleaned == [0, 1]
    assert pool.offsets.lines == {T0: 0, T1: 4}


def test_a_thread_that_runs_out_of_memory_is_reported_and_goes_on(pool: Pool) -> None:
    """No log is set aside for it."""
    pool.log(0, dirty=3)
    passes = Passes()
    passes.fail[0] = MemoryError()
    cleaner = pool.cleaner(passes)
    with pytest.raises(MemoryError):
        cleaner.run()
    assert (cleaner.book.totals.thread_failures, cleaner.manager.uncleanable) == (1, [])
    assert cleaner.manager.states.of(T0) is None
    passes.fail.clear()
    pool.clock.advance(2 * 15_000)
    assert cleaner.run() == 1


def test_a_log_that_takes_too_much_memory_starves_no_other(pool: Pool) -> None:
    """KAFKA-8725: the thread backs off, and another log has its turn then, though this one is dirtier."""
    pool.log(0, dirty=3)
    pool.log(1, dirty=3, clean=1)
    passes = Passes()
    passes.fail[0] = MemoryError()
    cleaner = pool.cleaner(passes)
    with pytest.raises(MemoryError):
        cleaner.run()
    assert passes.cleaned == []
    pool.clock.advance(15_000)
    assert cleaner.run() == 1
    assert passes.cleaned == [1]
    pool.clock.advance(15_000)
    with pytest.raises(MemoryError):
        cleaner.run()


def test_a_thread_that_is_not_wanted_lets_go(pool: Pool) -> None:
    """CLN-43: also in the middle of a clean."""
    pool.log(0, dirty=3)
    passes = Passes()
    cleaner = pool.cleaner(passes)
    answers = iter([True, False])
    assert cleaner.run(0, lambda: next(answers, False)) == 0
    assert (passes.cleaned, cleaner.book.totals.aborted) == ([], 1)
    assert cleaner.run() == 1


def test_a_pass_gets_its_share(pool: Pool) -> None:
    """CLN-43: memory is divided by the threads, buffers are two."""
    pool.log(0, dirty=3)
    passes = Passes()
    cleaner = pool.cleaner(
        passes, log_cleaner_threads=2, log_cleaner_dedupe_buffer_size=6 * MIB, log_cleaner_io_buffer_size=4000,
        log_cleaner_io_buffer_load_factor=0.5,
    )  # fmt: skip
    cleaner.run()
    given = passes.given[0]
    assert passes.maps[0].slots == 3 * MIB // 24
    assert (given["io_buffer_bytes"], given["load_factor"], given["now_ms"]) == (1000, 0.5, NOW)


def test_a_share_is_at_most_two_gibibytes(caplog: pytest.LogCaptureFixture) -> None:
    """CLN-43: the rest is not used, with a warning."""
    config = BrokerConfig(log_cleaner_dedupe_buffer_size=8 << 30, log_cleaner_threads=2)
    assert MemoryShare.of(config).map_bytes == 2**31 - 1
    assert "2 GiB" in caplog.text
    assert MemoryShare.of(BrokerConfig(log_cleaner_io_buffer_load_factor=7.0)).load_factor == 1.0


def test_a_log_that_is_not_compacted_is_cleaned_for_nobody(pool: Pool) -> None:
    """CLN-36: not even where it is asked for; the hint says what to do first."""
    log = pool.log(0, dirty=1, cleanup_policy="delete")
    refused = "^t-0 is not compacted: its cleanup.policy does not include compact"
    with pytest.raises(IllegalState, match=refused) as caught:
        pool.cleaner(clean).clean(log)
    assert caught.value.path == log.path and "alter_topic" in str(caught.value.hint)


def test_a_map_for_one_key_is_refused() -> None:
    """CLN-5: by a cleaner thread, which names the setting."""
    for factor in (0.00001, 0.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match=r"log\.cleaner\.io\.buffer\.load\.factor"):
            BrokerConfig(log_cleaner_io_buffer_load_factor=factor, log_cleaner_dedupe_buffer_size=2 * MIB)


@pytest.mark.parametrize("size", [-1, 0, 24, 47])
def test_a_map_for_no_key_is_refused_where_it_is_asked_for(pool: Pool, size: int) -> None:
    """CLN-5: nothing is in progress then."""
    log = pool.log(0, dirty=3)
    cleaner = pool.cleaner(Passes())
    with pytest.raises(IllegalArgument, match="no room for a key"):
        cleaner.clean(log, map_bytes=size)
    assert cleaner.manager.states.of(T0) is None
    assert cleaner.clean(log, map_bytes=72).end_offset == 3


def test_a_dry_run_writes_no_checkpoint_and_takes_no_log_back(pool: Pool) -> None:
    """CLN-32, CLN-39: though the checkpoint says more than there is."""
    log = pool.log(0, dirty=3)
    pool.offsets.lines[T0] = 99
    cleaner = pool.cleaner(Passes())
    cleaner.manager.set_aside(log, CorruptRecord("bad bytes"))
    assert cleaner.clean(log, dry_run=True).start_offset == 0
    assert pool.offsets.written == [] and cleaner.manager.uncleanable_reason(log) is not None
    cleaner.clean(log)
    assert pool.offsets.written == [(T0, 0), (T0, 3)] and cleaner.manager.uncleanable_reason(log) is None


def test_other_settings_count_with_the_next_clean(pool: Pool) -> None:
    """CLN-42, CLN-43."""
    pool.log(0, dirty=3)
    passes = Passes()
    cleaner = pool.cleaner(passes)
    cleaner.reconfigure(BrokerConfig(log_cleaner_io_max_bytes_per_second=5.0, log_cleaner_dedupe_buffer_size=3 * MIB))
    assert cleaner.throttle.bytes_per_s == 5.0
    cleaner.run()
    assert passes.maps[0].slots == 3 * MIB // 24


def test_bytes_of_a_pass_go_through_the_throttle(pool: Pool) -> None:
    """CLN-42: which an abort wakes."""
    log = pool.log(0, dirty=3)
    passes = Passes()
    cleaner = pool.cleaner(passes, log_cleaner_io_max_bytes_per_second=100.0)
    pool.clock.advance(300)
    before = pool.clock.monotonic_ms()
    cleaner.clean(log)
    assert cleaner.throttle.total_bytes == log.size
    assert pool.clock.monotonic_ms() - before == log.size * 10 - 300


def test_after_stop_nothing_is_cleaned(pool: Pool) -> None:
    log = pool.log(0, dirty=3)
    passes = Passes()
    cleaner = pool.cleaner(passes)
    cleaner.stop()
    assert cleaner.run() == 0
    with pytest.raises(IllegalState):
        cleaner.clean(log)
    assert passes.cleaned == []


def test_stop_ends_a_clean_that_goes_on(pool: Pool) -> None:
    log = pool.log(0, dirty=3)
    begun = threading.Event()

    def endless(to_clean: object, offset_map: object, **given: object) -> CleanResult:
        begun.set()
        while True:
            given["check_done"]()  # type: ignore[operator]

    cleaner = pool.cleaner(endless)
    worker = in_thread(cleaner.run)
    begun.wait()
    cleaner.stop()
    worker.join()
    assert cleaner.book.totals.aborted == 1
    assert pool.offsets.lines == {}
    assert not log.closed


def test_a_ctrl_c_ends_a_clean_that_is_asked_for(pool: Pool) -> None:
    """At its next check; no log stays in progress."""
    log = pool.log(0, dirty=3)
    passes = Passes()

    def interrupted(to_clean: object, offset_map: object, **given: object) -> CleanResult:
        signal.raise_signal(signal.SIGINT)
        return passes(to_clean, offset_map, **given)  # type: ignore[arg-type]

    cleaner = pool.cleaner(interrupted)
    with pytest.raises(KeyboardInterrupt):
        cleaner.clean(log)
    assert (passes.cleaned, cleaner.manager.states.of(T0), cleaner.book.running) == ([], None, ())
    assert (cleaner.book.totals.aborted, cleaner.book.totals.failures) == (1, 0)
    assert pool.offsets.lines == {}


@pytest.mark.parametrize("state", ["in progress", "retention"])
def test_a_ctrl_c_in_a_job_run_by_hand_leaves_no_log_in_progress(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """CLN-34: at any point: else no one could delete, truncate or close the log."""
    pool.log(0, dirty=3)
    passes = Passes()
    cleaner = pool.cleaner(passes)
    if state == "retention":
        cleaner.run()
    real, begun = CleaningStates._set_locked, []

    def interrupted(states: CleaningStates, partition: TopicPartition, to: State | None) -> None:
        real(states, partition, to)
        if to is not None and to.kind == "in progress":
            begun.append(partition)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(CleaningStates, "_set_locked", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cleaner.run()
    assert (begun, cleaner.manager.states.of(T0), cleaner.book.running) == ([T0], None, ())
    assert passes.cleaned == ([0] if state == "retention" else [])


def test_a_store_that_is_dropped_in_a_clean_is_closed_by_another_thread(pool: Pool) -> None:
    """Finalizers must not wait for the locks of the very thread that they run in."""
    log = pool.log(0, dirty=3)
    ended: list[str] = []
    over = threading.Event()

    def dropping(to_clean: LogToClean, offset_map: SkimpyOffsetMap, **given: Any) -> CleanResult:
        run_finalizer(lambda: (ended.append(threading.current_thread().name), over.set()))
        return Passes()(to_clean, offset_map, **given)

    cleaner = pool.cleaner(dropping)
    read = pool.offsets.read

    def reads() -> Any:
        run_finalizer(lambda: ended.append(threading.current_thread().name))
        return read()

    pool.offsets.read = reads  # type: ignore[method-assign]
    cleaner.clean(log, from_start=True)
    over.wait()
    assert ended == ["kafkalog-finalizer"] * 2
    run_finalizer(lambda: ended.append("here"))
    assert ended[2:] == ["here"]


def test_a_ctrl_c_ends_the_wait_for_another_clean(pool: Pool) -> None:
    log = pool.log(0, dirty=3)
    begun, go_on = threading.Event(), threading.Event()

    def clean() -> None:
        pool.manager.grab(NOW)
        begun.set()
        go_on.wait()
        pool.manager.done_cleaning(log, 3)

    worker = in_thread(clean)
    begun.wait()

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pool.manager.grab_one(log, NOW, interrupt)
    go_on.set()
    worker.join()
    assert pool.offsets.lines == {T0: 3}


def test_a_log_that_its_disk_took_away_is_let_go(pool: Pool) -> None:
    """CLN-39: a fenced log is neither cleaned nor set aside."""
    log = pool.log(0, dirty=3)
    passes = Passes()
    cleaner = pool.cleaner(passes)
    log.fence(StorageError("the disk is gone"))
    assert cleaner.run() == 0
    assert cleaner.manager.uncleanable == []
    del pool.current_logs[T0]
    log.close_handlers()
