"""Log lines and statistics of a cleaner: cleans, delays and retention."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cleaner.manager import POSTPONE_MS
from kafkalog.cleaner.pass_ import clean
from kafkalog.cleaner.stats import NO_CLEANER, CleanerReport, CleanerTotals, Uncleanable
from kafkalog.cleaner.types import CleanResult
from kafkalog.errors import CleaningAborted, CorruptRecord, StorageError
from kafkalog.types import TopicPartition
from tests.cleaner.logs import append
from tests.cleaner.pools import Passes, Pool
from tests.cleaner.test_states import in_thread
from tests.storage.logs import NOW

T0 = TopicPartition("t", 0)


def test_the_account_of_a_clean(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """Work in progress can be seen; finished work is logged and reported to the caller."""
    caplog.set_level("INFO")
    log = pool.log(0, dirty=3)
    begun, go_on = threading.Event(), threading.Event()
    passes = Passes()

    def slow(to_clean: object, offset_map: object, **given: object) -> CleanResult:
        begun.set()
        go_on.wait()
        return passes(to_clean, offset_map, **given)  # type: ignore[arg-type]

    cleaner = pool.cleaner(slow)
    worker = in_thread(lambda: cleaner.run(7))
    begun.wait()
    (running,) = cleaner.book.running
    assert (running.topic_partition, running.thread, running.end_offset, running.began_ms) == (T0, 7, None, NOW)
    go_on.set()
    worker.join()
    (last,) = cleaner.book.last
    assert cleaner.book.running == ()
    assert (last.start_offset, last.end_offset, last.directory) == (0, 3, str(pool.path))
    assert last.stats.bytes_read == log.size
    for part in ("cleaner thread 7", "cleaned t-0 (dirty ratio)", "[0, 3)", "50.0 % fewer records"):
        assert part in caplog.text


def test_the_log_tells_of_each_step_of_a_clean(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    """CLN-31, CLN-36: of what was late, too, and of what retention took."""
    log = pool.log(0, cleanup_policy="compact,delete", retention_ms=2000, max_compaction_lag_ms=1000)
    for pairs in (((b"a", b"1"), (b"b", b"2")), ((b"a", b"3"), (b"c", b"4"))):
        append(log, *pairs)
        log.roll()
    pool.offsets.lines[T0] = 1
    pool.clock.advance(1005)
    caplog.set_level("INFO", "kafkalog.cleaner")
    cleaner = pool.cleaner(clean)
    assert cleaner.run(7) == 1
    size = log.segments[0].size
    *steps, cleaned, late = caplog.messages
    assert steps == [
        "building the offset map of log t-0 from 1",
        f"log t-0: merging segments [0, 2] into one of {size} bytes",
    ]
    assert cleaned.startswith("cleaner thread 7 cleaned t-0 (max compaction lag), dirty range [1, 4)\n")
    assert late == "1 logs are overdue for cleaning, by up to 5 ms"
    caplog.clear()
    pool.clock.advance(2000)
    assert cleaner.run() == 0
    assert caplog.messages == ["t-0: retention deleted 1 segments up to offset 4"]


def test_the_log_says_why_a_clean_was_aborted(pool: Pool, caplog: pytest.LogCaptureFixture) -> None:
    pool.log(0, dirty=3)
    passes = Passes()
    passes.fail_once[0] = CleaningAborted("a segment had to be split", hint="clean it again")
    caplog.set_level("INFO", "kafkalog.cleaner")
    assert pool.cleaner(passes).run() == 1
    assert caplog.messages[0] == "a segment had to be split"


def test_records_without_a_key_that_a_clean_drops_are_warned_of(
    pool: Pool, caplog: pytest.LogCaptureFixture
) -> None:
    """CLN-6: a log that gets the policy compact may have some."""
    log = pool.log(0, cleanup_policy="delete")
    append(log, (None, b"1"), (b"b", b"2"), (None, b"3"))
    log.roll()
    log.config = log.config.replace(cleanup_policy="compact")
    assert pool.cleaner(clean).run() == 1
    assert caplog.messages == ["t-0: 2 records without a key were dropped"]


def test_the_report_of_a_cleaner(pool: Pool) -> None:
    """Current work, finished work, skipped logs; how dirty the dirtiest log was, and how long it slept."""
    first, bad = pool.log(0, dirty=3, clean=1), pool.log(1, dirty=1)
    pool.log(2, dirty=1, clean=3)
    cleaner = pool.cleaner(Passes(), log_cleaner_io_max_bytes_per_second=100.0)
    assert cleaner.report(2) == NO_CLEANER._replace(threads=2)
    cleaner.manager.set_aside(bad, CorruptRecord("bad bytes"))
    pool.clock.advance(300)
    cleaner.run(7)
    assert cleaner.report(3) == CleanerReport(
        threads=3, running=(), last=cleaner.book.last, totals=cleaner.book.totals,
        uncleanable=(Uncleanable(bad.topic_partition, str(pool.path), "CorruptRecord: bad bytes"),),
        dirtiest_ratio=0.25, last_look_ms=cleaner.manager.last_look_ms, throttled_ms=cleaner.throttle.slept_ms,
    )  # fmt: skip
    report = cleaner.report(3)
    assert [one.topic_partition for one in report.last] == [first.topic_partition] and report.totals.cleans == 1
    assert report.throttled_ms > 0 and report.last_look_ms == pool.clock.milliseconds()


def test_a_store_that_only_reads_has_the_report_of_no_cleaner(tmp_path: Path) -> None:
    kafkalog.open_dirs(tmp_path, "a").close()
    with kafkalog.open_dirs(tmp_path) as dirs:
        assert dirs.cleaner == CleanerReport(
            threads=0, running=(), last=(), totals=CleanerTotals(), uncleanable=(), dirtiest_ratio=0.0,
            last_look_ms=None, throttled_ms=0,
        )  # fmt: skip
        assert dirs.cleaner.totals == (0,) * 10


def test_a_clean_that_is_asked_for_shows_how_far_it_is(pool: Pool) -> None:
    log = pool.log(0, dirty=3)
    seen: list[int] = []
    done = pool.cleaner(clean).clean(log, progress=lambda stats: seen.append(stats.map_messages_read))
    assert seen[0] == 0 and seen[-1] == done.stats.map_messages_read == 3


def test_a_disk_that_fails_a_clean_that_is_asked_for_is_told_of(pool: Pool) -> None:
    """CLN-39: its owner may have to take the directory away; the log is put off."""
    log = pool.log(0, dirty=3)
    passes = Passes()
    passes.fail_once[0] = StorageError("no space", errno=errno.ENOSPC)
    cleaner = pool.cleaner(passes)
    with pytest.raises(StorageError):
        cleaner.clean(log)
    assert [str(error) for error in pool.errors] == ["no space"]
    assert cleaner.run() == 0
    pool.clock.advance(POSTPONE_MS)
    assert cleaner.run() == 1
