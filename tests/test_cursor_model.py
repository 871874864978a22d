"""Whatever happens to reader and log, a cursor hands out every record at least once, in order, and loses no place."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import kafkalog
from tests.memory import memory


class Reading(RuleBasedStateMachine):
    """A log, one cursor that comes and goes, and what a program has processed so far."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="kafkalog-cursor-", dir=memory()))
        self.log = kafkalog.open(self.folder / "data" / "t-0", "a", internal_segment_bytes=500)
        self.cursor: Any = None
        self.processed: set[int] = set()
        self.in_hand: list[int] = []
        self.stored = 0
        self.start = 0
        self.open()

    def open(self, **options: Any) -> None:
        self.cursor = self.log.cursor("c", store=self.folder / "cursors", sync=False, **options)
        assert self.stored <= self.cursor.position, "a commit was lost"
        missing = set(range(self.start, self.cursor.position)) - self.processed
        assert not missing, f"{missing} were passed over"
        self.in_hand = []

    def taken(self, offsets: list[int]) -> None:
        self.processed |= set(self.in_hand)
        assert offsets == sorted(set(offsets))
        self.in_hand = offsets

    @rule(count=st.integers(1, 9), compressed=st.booleans())
    def append(self, count: int, compressed: bool) -> None:
        values = [b"%d" % (self.log.end_offset + n) for n in range(count)]
        self.log.append(values, compression="gzip" if compressed else None)

    @rule(count=st.integers(1, 20))
    def poll(self, count: int) -> None:
        self.taken([record.offset for record in self.cursor.poll(count)])

    @rule(count=st.integers(1, 20))
    def iterate(self, count: int) -> None:
        for record in self.cursor:
            assert record.value == b"%d" % record.offset
            self.taken([record.offset])
            count -= 1
            if not count:
                return
        self.taken([])  # the next one was asked for, though there was none

    @rule()
    def commit(self) -> None:
        self.stored = self.cursor.commit()
        self.processed |= set(self.in_hand)

    @rule(manual=st.booleans(), period=st.sampled_from([0, 5000]))
    def close_well(self, manual: bool, period: int) -> None:
        with self.cursor:
            pass
        self.processed |= set(self.in_hand)
        self.stored = max(self.stored, self.cursor.committed)
        self.open(auto_commit_ms=None if manual else period)

    @rule()
    def fail(self) -> None:
        """Lose the records in hand: they were not processed."""
        try:
            with self.cursor:
                raise ZeroDivisionError
        except ZeroDivisionError:
            pass
        self.open()

    @rule()
    def crash(self) -> None:
        """The process ends without a word: the lock goes, nothing is written."""
        self.cursor._closed = True
        self.cursor._file.release()
        self.open()

    @rule(period=st.sampled_from([None, 0]))
    def reopen_log(self, period: int | None) -> None:
        self.fail()
        self.cursor.close()
        self.log.close()
        self.log = kafkalog.open(self.folder / "data" / "t-0", "a", internal_segment_bytes=500)
        self.open(auto_commit_ms=period)

    @precondition(lambda self: self.cursor.position > self.start)
    @rule()
    def delete_what_was_read(self) -> None:
        self.commit()
        self.start = self.log.delete_before(self.stored)

    @invariant()
    def position_is_in_the_log(self) -> None:
        assert self.start <= self.cursor.committed <= self.cursor.position <= self.log.end_offset

    def teardown(self) -> None:
        self.cursor.close()
        self.log.close()
        shutil.rmtree(self.folder)


TestReading = Reading.TestCase
TestReading.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
