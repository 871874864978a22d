"""Many readers and writers on one log: no record torn, none out of order, no log end that goes back.

KAFKALOG_THREADS_S: how many seconds (default 2; `ci/asan.sh` runs a minute of it under the sanitizers).
"""

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.errors import OffsetOutOfRange
from kafkalog.log.log import Log

SECONDS = float(os.environ.get("KAFKALOG_THREADS_S", "2"))
WRITERS, READERS = 3, 4
KEEP = 4000


def make_value(writer: int, number: int) -> bytes:
    """Return the value of a writer's record number: a torn or a mixed one would differ."""
    return b"%d:%d:" % (writer, number) + bytes([writer + 65]) * (number % 300)


class Crowd:
    """The threads, the log between them, and the first thing that went wrong."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.stop = threading.Event()
        self.failure: BaseException | None = None
        self.reads = 0
        self.acknowledged = 0  # no reader that begins now may see an end below it

    def run(self, steps: list[Callable[[], None]]) -> None:
        """Repeat each step in its own thread, until the time is up or one fails."""
        threads = [threading.Thread(target=self._repeat, args=(step,)) for step in steps]
        for thread in threads:
            thread.start()
        self.stop.wait(SECONDS)
        self.stop.set()
        for thread in threads:
            thread.join()
        if self.failure is not None:
            raise self.failure

    def _repeat(self, step: Callable[[], None]) -> None:
        try:
            while not self.stop.is_set():
                step()
        except BaseException as error:
            self.failure = self.failure or error
            self.stop.set()

    def writer(self, writer: int) -> Callable[[], None]:
        """One batch, group or record at a time; what the log answers is where it lies."""
        number = 0

        def step() -> None:
            nonlocal number
            count = number % 5 + 1
            values = [make_value(writer, number + i) for i in range(count)]
            if number % 3:
                info = self.log.append([(b"%d" % writer, one) for one in values])
            else:
                rows = [[(b"%d" % writer, one)] for one in values]
                info = self.log.append_bytes(b"".join(encode_batch(row, timestamp=1) for row in rows))
            assert info.last_offset - info.first_offset >= count - 1
            assert self.log.end_offset > info.last_offset, "an end that does not know what was acknowledged"
            self.acknowledged = max(self.acknowledged, info.last_offset + 1)
            number += count

        return step

    def reader(self) -> Callable[[], None]:
        """Some records from somewhere, each whole and in its writer's order, up to an end that never goes back."""
        last_end = 0

        def step() -> None:
            nonlocal last_end
            known = self.acknowledged
            end = self.log.end_offset
            assert end >= known and end >= last_end, f"the end is {end}, and was {max(known, last_end)}"
            last_end = end
            start = max(self.log.start_offset, end - 300)
            try:
                expected, newest = start, dict.fromkeys(range(WRITERS), -1)
                for record in self.log.records(start, end):
                    assert record.offset == expected
                    expected += 1
                    writer, number = int(record.key or b""), int((record.value or b"").split(b":")[1])
                    assert record.value == make_value(writer, number) and number > newest[writer]
                    newest[writer] = number
                assert expected == end
            except OffsetOutOfRange:
                assert start < self.log.start_offset
            self.reads += 1

        return step

    def keeper(self) -> None:
        """Rolls, flushes and deletes what is old, under all of them."""
        self.log.roll()
        self.log.flush()
        if self.log.end_offset - self.log.start_offset > KEEP:
            self.log.delete_before(self.log.end_offset - KEEP // 2)
        time.sleep(0.01)


def test_readers_and_writers_on_one_log(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a", internal_segment_bytes=60_000, index_interval_bytes=500) as log:
        crowd = Crowd(log)
        crowd.run([*(crowd.writer(n) for n in range(WRITERS)), *(crowd.reader() for _ in range(READERS)), crowd.keeper])
        assert crowd.reads > 0 and log.end_offset >= crowd.acknowledged > 0
        end = log.end_offset
    with kafkalog.open(tmp_path / "t-0") as view:
        assert view.end_offset == end and view.verify(deep=True).ok
