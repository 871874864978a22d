"""Random sessions of one log beside a list: whatever is appended, rolled, cut, deleted and reopened, they agree."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from tests.memory import memory

VALUES = st.lists(st.one_of(st.none(), st.binary(max_size=60)), min_size=1, max_size=8)
Row = tuple[int, bytes | None, bytes | None]


class LogBesideAList(RuleBasedStateMachine):
    """The model: rows (offset, key, value) in order, batches, start and end."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kafkalog-model-", dir=memory()))
        self.path = self.directory / "t-0"
        self.rows: list[Row] = []
        self.spans: list[tuple[int, int]] = []  # first and last offset of each batch
        self.start = self.end = 0

    @initialize(segment=st.sampled_from([300, 1000, 100_000]), interval=st.sampled_from([0, 100, 4096]))
    def create(self, segment: int, interval: int) -> None:
        self.log = kafkalog.open(
            self.path, "a", internal_segment_bytes=segment, index_interval_bytes=interval, segment_index_bytes=120
        )

    def teardown(self) -> None:
        if hasattr(self, "log"):
            self.log.close()
        shutil.rmtree(self.directory)

    def took(self, rows: list[tuple[bytes | None, bytes | None]]) -> None:
        self.spans.append((self.end, self.end + len(rows) - 1))
        for key, value in rows:
            self.rows.append((self.end, key, value))
            self.end += 1

    @rule(values=VALUES)
    def append(self, values: list[bytes | None]) -> None:
        info = self.log.append([(None, value) for value in values])
        assert (info.first_offset, info.last_offset) == (self.end, self.end + len(values) - 1)
        self.took([(None, value) for value in values])

    @rule(key=st.one_of(st.none(), st.binary(max_size=9)), value=st.binary(max_size=200))
    def append_one(self, key: bytes | None, value: bytes) -> None:
        self.log.append((key, value))
        self.took([(key, value)])

    @rule(batches=st.lists(VALUES, max_size=4), base=st.integers(0, 10**6))
    def append_ready(self, batches: list[list[bytes | None]], base: int) -> None:
        raw = bytearray()
        for values in batches:
            raw += encode_batch([(None, value) for value in values], timestamp=1_700_000_000_000, base_offset=base)
        info = self.log.append_bytes(bytes(raw))
        assert info.first_offset == (self.end if batches else -1)
        for values in batches:
            self.took([(None, value) for value in values])

    @rule(values=VALUES, limit=st.integers(61, 300))
    def write(self, values: list[bytes | None], limit: int) -> None:
        with self.log.writer(linger_ms=60_000, batch_bytes=limit) as writer:
            handles = [writer.append(value) for value in values]
        assert [handle.result(0) for handle in handles] == list(range(self.end, self.end + len(values)))
        begin = self.end
        self.took([(None, value) for value in values])
        headers = [batch.header for batch in self.log.batches(begin)]
        self.spans[-1:] = [(header.base_offset, header.last_offset) for header in headers]

    @rule()
    def roll(self) -> None:
        assert self.log.roll() == self.end

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(where=st.floats(0, 1))
    def truncate(self, where: float) -> None:
        offset = self.start + int(where * (self.end - self.start))
        assert self.log.truncate_to(offset) is (offset < self.end)
        # inside a batch all of it goes, while the log end is the offset asked for
        keep = next((base for base, last in self.spans if base < offset <= last), offset)
        self.rows = [row for row in self.rows if row[0] < keep]
        self.spans = [span for span in self.spans if span[0] < keep]
        self.end = offset

    @precondition(lambda self: not self.rows or self.rows[-1][0] + 1 == self.end)
    @rule(where=st.floats(0, 1))
    def delete_before(self, where: float) -> None:
        offset = self.start + int(where * (self.end - self.start))
        assert self.log.delete_before(offset) == offset
        self.start = offset

    @precondition(lambda self: self.rows and self.rows[-1][0] + 1 == self.end and self.rows[-1][0] >= self.start)
    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = kafkalog.open(self.path, "a")

    def visible(self) -> list[Row]:
        return [row for row in self.rows if row[0] >= self.start]

    @invariant()
    def agree(self) -> None:
        if not hasattr(self, "log"):
            return
        assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
        assert [(record.offset, record.key, record.value) for record in self.log] == self.visible()

    @invariant()
    def a_reader_beside_agrees(self) -> None:
        if hasattr(self, "log"):
            with kafkalog.open(self.path) as view:
                assert [(record.offset, record.key, record.value) for record in view] == self.visible()

    @rule(where=st.floats(0, 1))
    def look_one_up(self, where: float) -> None:
        rows = self.visible()
        if rows:
            offset, key, value = rows[int(where * (len(rows) - 1))]
            record = self.log[offset]
            assert (record.offset, record.key, record.value) == (offset, key, value)


LogBesideAList.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_a_log_behaves_as_a_list = LogBesideAList.TestCase
