"""Look-ups by key over all partitions of a topic, and the memory of mappings that hold their keys."""

import logging
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.dirs.topic import TopicLogs
from kafkalog.dirs.topic_keys import LatestOfTopic
from kafkalog.errors import IllegalArgument
from tests.memory import memory

KEYS = [b"", b"a", b"b", b"key-3", b"k" * 40]
T = 1_700_000_000_000
STEPS = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 2), st.sampled_from(KEYS), st.sampled_from([None, b"1", b"2"]), st.integers(0, 6)),
        st.sampled_from(["roll", "build", "truncate"]),
    ),
    max_size=14,
)


def check(topic: TopicLogs, mappings: list[LatestOfTopic]) -> None:
    """All look-ups in a topic against all records of its partitions."""
    histories: dict[bytes, list[list[kafkalog.Record]]] = {key: [] for key in [*KEYS, b"nobody"]}
    for key, own in histories.items():
        own += [[record for record in log if record.key == key] for log in topic]
    live: dict[bytes, kafkalog.Record] = {}
    for key, own in histories.items():
        last = [records[-1] for records in own if records]
        expected = max(last, key=lambda record: record.timestamp, default=None)
        assert topic.get(key) == expected and (key in topic) == bool(last)
        found = [*topic.history(key)]
        assert sorted(map(repr, found)) == sorted(map(repr, sum(own, [])))
        heads = [[*records] for records in own if records]
        for record in found:  # always the oldest head, of equal ones that of the first partition
            head = min(heads, key=lambda records: records[0].timestamp)
            assert head.pop(0) == record
            heads = [records for records in heads if records]
        if alive := [record for record in last if record.value is not None]:
            live[key] = max(alive, key=lambda record: record.timestamp)
    for mapping in mappings:
        assert dict(mapping.items()) == live == dict(mapping)
        assert len(mapping) == len(live) == len([*mapping]) == len([*mapping.values()])
        assert [key in mapping for key in histories] == [key in live for key in histories]


@given(STEPS)
@settings(max_examples=25, deadline=None)
def test_look_ups_in_a_topic_are_those_of_all_its_records(steps: list[Any]) -> None:
    with TemporaryDirectory(dir=memory()) as folder, kafkalog.open_dirs(f"{folder}/data", "a") as dirs:
        dirs.create_topic("t", 3, {"retention.ms": -1})
        topic = dirs["t"]
        mappings = [topic.latest(), topic.latest(in_memory=True), topic.latest(in_memory=True, memory_bytes=3 * 300)]
        for step in steps:
            if isinstance(step, tuple):
                number, key, value, seconds = step
                topic[number].append([(key, value, T + seconds), (None, b"no key", T)])
            for log in topic if not isinstance(step, tuple) else ():
                if step == "roll":
                    log.roll()
                elif step == "build":
                    log.build_key_index()
                else:
                    log.truncate_to(max(log.start_offset, log.end_offset - 2))
        check(topic, mappings)
        assert [one.is_in_memory for one in mappings[:2]] == [False, True]
        with kafkalog.open_dirs(f"{folder}/data") as reader:
            check(reader["t"], [reader["t"].latest(in_memory=True), reader["t"].latest()])


def test_a_partition_is_in_its_topic(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        for name in ("t", "u"):
            dirs.create_topic(name, 2)
        assert dirs["t", 1] in dirs["t"] and dirs["u", 1] not in dirs["t"] and b"k" not in dirs["t"]
        with pytest.raises(TypeError, match="encode it first"):
            assert "k" in dirs["t"]


def test_keys_in_memory_keep_to_their_limit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What is measured is below the limit until it is full; then the mapping goes on and follows the log."""
    limit, keys = 2 << 20, [b"key-%d" % n for n in range(12_000)]
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for start in range(0, 8000, 1000):
            log.append([(key, b"v") for key in keys[start : start + 1000]])
        tracemalloc.start()
        latest = log.latest(in_memory=True, memory_bytes=limit)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert latest.is_in_memory and len(latest) == 8000 and 0.3 * limit < held < limit
        log.append([(key, None) for key in keys[:4000]])
        log.append([(key, b"w") for key in keys[8000:]])
        assert len(latest) == 8000 and latest.is_in_memory, "what was deleted takes no memory"
        with caplog.at_level(logging.WARNING, "kafkalog.keys"):
            log.append([(key, b"x") for key in keys[:4000]])
            assert len(latest) == 12_000 and not latest.is_in_memory
        (told,) = [one.getMessage() for one in caplog.records]
        assert f"{tmp_path / 't-0'} take more than {limit} bytes" in told
        assert latest[keys[0]].value == b"x" and b"nobody" not in latest and next(iter(latest)) == keys[4000]
        log.append([(b"another", b"y"), (keys[0], None)])
        assert latest[b"another"].value == b"y" and keys[0] not in latest
        assert latest.find_many([keys[1], b"nobody", keys[0]]) == [log.get(keys[1]), None, None]


def test_wrong_limits(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for wrong in (-1, True, "1 GiB", 1.5):
            with pytest.raises(IllegalArgument, match="memory_bytes is"):
                log.latest(in_memory=True, memory_bytes=wrong)  # type: ignore[arg-type]
        with pytest.raises(IllegalArgument, match="without in_memory"):
            log.latest(memory_bytes=5)
        assert log.latest(in_memory=True, memory_bytes=0).is_in_memory  # it has no key
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("t", 3)
        for wrong in (-1, -5, True, "1 GiB", 1.5):
            with pytest.raises(IllegalArgument, match=f"memory_bytes is {wrong!r}"):
                dirs["t"].latest(in_memory=True, memory_bytes=wrong)  # type: ignore[arg-type]
        with pytest.raises(IllegalArgument, match="without in_memory"):
            dirs["t"].latest(memory_bytes=5)


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True), (False, False), (True, True)])
def test_a_reader_notices_that_what_it_read_was_written_again(tmp_path: Path, before: bool, after: bool) -> None:
    """The record that it read last is there again, at the same offset; the one before it is another."""
    with kafkalog.open(tmp_path / "t-0", "a") as writer, kafkalog.open(tmp_path / "t-0") as reader:
        for key in (b"a", b"b", b"c", b"last"):
            writer.append([(key, b"v", T)])
        if before:
            writer.roll()
        latest = reader.latest(in_memory=True)
        assert [*latest] == [b"a", b"b", b"c", b"last"]
        writer.truncate_to(2)
        for key in (b"new", b"last", b"d"):
            writer.append([(key, b"v", T)])
        if after:
            writer.roll()
        assert [*latest] == [b"a", b"b", b"new", b"last", b"d"]


def test_a_mapping_is_there_once_the_index_is_read(tmp_path: Path) -> None:
    """After a start no segment with an index is read, but for the batches of the keys that are looked up."""
    with kafkalog.open(tmp_path / "t-0", "a", segment_bytes=1 << 20) as log:
        for start in range(0, 20_000, 100):
            log.append([(b"key-%d" % n, b"v" * 300) for n in range(start, start + 100)])
        log.roll()
        log.build_key_index()
    with kafkalog.open(tmp_path / "t-0") as log:
        before = log._source.metrics.reads.total
        latest = log.latest()
        for n in range(0, 20_000, 1000):
            assert latest[b"key-%d" % n].offset == n
        assert b"nobody" not in latest
        assert log._source.metrics.reads.total - before < 0.2 * log.size
