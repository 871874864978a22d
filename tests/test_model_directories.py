"""Random sessions of a store of two data directories beside a dict of lists: topics come, grow, change, age and go."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import kafkalog
from kafkalog.errors import TopicExists, UnknownTopicOrPartition
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from tests.crash.disk import read_image, write_image
from tests.memory import memory

NAMES = st.sampled_from(["a", "b", "c-d"])
WHERE = st.floats(0, 0.999)
SMALL = {"internal_segment_bytes": 300, "retention_ms": "-1", "segment_index_bytes": 1200}


class StoreBesideADict(RuleBasedStateMachine):
    """The model: values by partition, where each partition starts, and which topics have an own retention."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="kafkalog-model-", dir=memory()))
        self.values: dict[tuple[str, int], list[bytes]] = {}
        self.starts: dict[tuple[str, int], int] = {}
        self.limits: dict[str, int] = {}

    @initialize()
    def create(self) -> None:
        self.store = self.opened(self.directory)

    @staticmethod
    def opened(directory: Path) -> kafkalog.LogDirs:
        """A store whose jobs run when a rule says so, not by time: `crash` reads files that nothing is writing."""
        store = kafkalog.open_dirs([directory / "one", directory / "two"], "a")
        for job in store.jobs:
            job.stop()
        return store

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
        shutil.rmtree(self.directory)

    def partition(self, where: float) -> tuple[str, int]:
        keys = sorted(self.values)
        return keys[int(where * len(keys))]

    @rule(name=NAMES, partitions=st.integers(1, 3))
    def create_topic(self, name: str, partitions: int) -> None:
        if any(topic == name for topic, _ in self.values):
            with pytest.raises(TopicExists):
                self.store.create_topic(name, partitions)
            return
        made = self.store.create_topic(name, partitions, SMALL)
        assert list(made.partitions) == list(range(partitions))
        self.grow(name, partitions)

    def grow(self, name: str, partitions: int) -> None:
        for number in range(partitions):
            self.values.setdefault((name, number), [])
            self.starts.setdefault((name, number), 0)

    @precondition(lambda self: self.values)
    @rule(where=WHERE)
    def delete_topic(self, where: float) -> None:
        name, _ = self.partition(where)
        self.store.delete_topic(name)
        for key in [key for key in self.values if key[0] == name]:
            del self.values[key], self.starts[key]
        self.limits.pop(name, None)
        with pytest.raises(UnknownTopicOrPartition):
            self.store[name, 0]

    @precondition(lambda self: self.values)
    @rule(where=WHERE, more=st.integers(0, 1), limit=st.sampled_from([None, 0, 400]))
    def alter_topic(self, where: float, more: int, limit: int | None) -> None:
        name, _ = self.partition(where)
        count = sum(topic == name for topic, _ in self.values) + more
        self.store.alter_topic(name, {"retention.bytes": None if limit is None else str(limit)}, partitions=count)
        self.grow(name, count)
        self.limits.pop(name, None)
        if limit is not None:
            self.limits[name] = limit

    @precondition(lambda self: self.values)
    @rule(where=WHERE, count=st.integers(1, 20))
    def append(self, where: float, count: int) -> None:
        key = self.partition(where)
        for _ in range(count):
            value = b"%s-%d:%d" % (key[0].encode(), key[1], len(self.values[key]))
            assert self.store[key].append(value).first_offset == len(self.values[key])
            self.values[key].append(value)

    @precondition(lambda self: self.values)
    @rule(where=WHERE, part=WHERE)
    def delete_before(self, where: float, part: float) -> None:
        key = self.partition(where)
        offset = self.starts[key] + int(part * (len(self.values[key]) - self.starts[key]))
        assert self.store[key].delete_before(offset) == offset
        self.starts[key] = offset

    @rule()
    def retention(self) -> None:
        """Check that a delete removes the front of partitions with a limit, and no more than needed."""
        before = {key: self.store[key].size for key in self.values}
        next(job for job in self.store.jobs if job.name == "kafka-log-retention").run()
        for key in self.values:
            log = self.store[key]
            limit = self.limits.get(key[0])
            assert log.start_offset == self.starts[key] or limit is not None and before[key] > limit
            if limit is not None:
                assert log.size - log.segments[0].size <= limit or len(log.segments) == 1 or log.size <= limit + 400
            self.starts[key] = log.start_offset

    @rule()
    def flush(self) -> None:
        self.store.flush()

    @rule()
    def reopen(self) -> None:
        self.store.close()
        assert all((self.directory / name / CLEAN_SHUTDOWN_FILE).exists() for name in ("one", "two"))
        self.store = self.opened(self.directory)

    @rule()
    def crash(self) -> None:
        """The files as they lie: what a killed process leaves."""
        with tempfile.TemporaryDirectory(prefix="kafkalog-model-", dir=memory()) as place:
            copy = write_image(read_image(self.directory), Path(place) / "copy")
            with self.opened(copy) as store:
                self.compare(store, exact=False)

    @invariant()
    def agree(self) -> None:
        if hasattr(self, "store"):
            self.compare(self.store, exact=True)

    def compare(self, store: kafkalog.LogDirs, *, exact: bool) -> None:
        """Check for the same partitions and values; a start that only retention knew may be lost with the process."""
        assert {(key.topic, key.partition) for key in store} == set(self.values)
        for key, values in self.values.items():
            log = store[key]
            assert log.end_offset == len(values)
            assert log.start_offset == self.starts[key] or not exact and log.start_offset <= self.starts[key]
            assert [record.value for record in log] == values[log.start_offset :]


StoreBesideADict.TestCase.settings = settings(max_examples=12, stateful_step_count=20, deadline=None)


@pytest.mark.filterwarnings("ignore::kafkalog.errors.UnsafeFileSystem")
class TestStoreBesideADict(StoreBesideADict.TestCase):
    """Run by hypothesis."""
