"""A store that our cleaner goes over in the background while it is appended to, and a real broker in turn with it."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

import kafkalog
from kafkalog.dirs.log_dirs import LogDirs
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import OffsetCheckpoint
from tests.cleaner.histories import History, folded, random_history
from tests.cleaner.test_states import wait_until
from tests.interop import ours
from tests.interop.broker import Broker
from tests.interop.reference import RecordTuple, Reference

NOW = time.time_ns() // 1_000_000
KEYS = [TopicPartition(f"b{number}", partition) for number in range(3) for partition in range(2)]
RESTLESS = {"log.cleaner.backoff.ms": 1, "log.cleaner.threads": 2, "log.initial.task.delay.ms": 0}
EAGER = {"log.initial.task.delay.ms": "100", "log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0"}
Shown = dict[str, list[RecordTuple]]


def histories() -> dict[TopicPartition, History]:
    return {
        key: random_history(Random(f"background {key}"), least=60, most=60, close_all=True, now_ms=NOW) for key in KEYS
    }


def clean_to(data: Path) -> Mapping[TopicPartition, int]:
    return OffsetCheckpoint(str(data / "cleaner-offset-checkpoint")).read()


def make_topics(dirs: LogDirs, made: Mapping[TopicPartition, History]) -> None:
    for topic in dict.fromkeys(key.topic for key in KEYS):
        history = made[TopicPartition(topic, 0)]
        settings = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": 0,
            "index.interval.bytes": 150,
            "internal.segment.bytes": history.segment_bytes,
        }
        dirs.create_topic(topic, 2, settings)


def append_all(dirs: LogDirs, made: Mapping[TopicPartition, History], start: int, stop: int | None) -> None:
    """Each partition by a separate thread, and the active segment ends: all of it may be cleaned."""

    def append(key: TopicPartition) -> None:
        for number in range(*slice(start, stop).indices(len(made[key].events))):
            made[key].append(dirs[key], number, number + 1)
        dirs[key].roll()

    threads = [threading.Thread(target=append, args=(key,)) for key in KEYS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def shown(dirs: LogDirs, level: str) -> Shown:
    found = {}
    for key in KEYS:
        records = dirs[key].records(isolation=level)
        found[str(key)] = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in records]
    return found


def by_key(rows: Shown) -> dict[str, dict[bytes, bytes]]:
    """Return a reader's final state of each partition."""
    return {name: folded((row[2], row[3]) for row in found) for name, found in rows.items()}


@pytest.mark.slow
def test_a_broker_and_we_clean_in_turn_in_the_background(reference: Reference, tmp_path: Path) -> None:
    """CLN-29, CLN-33, CLN-41: each goes on where the other's checkpoint ends; the fold by key stays."""
    data = tmp_path / "data"
    data.mkdir()
    made = histories()
    with kafkalog.open_dirs(data, "a", **RESTLESS) as dirs:
        make_topics(dirs, made)
        append_all(dirs, made, 0, 40)
        ends = {key: made[key].first(40).stable for key in KEYS}
        wait_until(lambda: dirs.cleaner.totals.cleans > len(KEYS) and len(clean_to(data)) == len(KEYS))
        assert not dirs.cleaner.uncleanable
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        cleaned_to = dict(clean_to(data))
        assert all(0 < cleaned_to[key] <= ends[key] for key in KEYS)
        append_all(dirs, made, 40, None)
        before = shown(dirs, "read_committed")
    expected = {str(key): made[key].folded() for key in KEYS}
    assert by_key(before) == expected

    broker = Broker(reference, tmp_path / "work", data, EAGER)
    broker.format()
    ours.command("handover", "-d", str(data), "--apply", "--let-expire")
    with broker:
        deadline = time.monotonic() + 120
        while any(clean_to(data)[key] < made[key].end for key in KEYS) and time.monotonic() < deadline:
            time.sleep(0.2)
        served = broker.consume_all(KEYS, "read_committed")
        log = broker.log()
    after = {key: at for key, at in clean_to(data).items() if key in made}
    assert after == {key: made[key].end for key in KEYS}, log[-3000:]
    assert "Resetting first dirty offset" not in log
    assert by_key(served) == expected

    with kafkalog.open_dirs(data, "a", **RESTLESS) as dirs:
        assert shown(dirs, "read_committed") == served
        for key in KEYS:
            dirs[key].append([(b"a", b"of ours", NOW)])
            dirs[key].roll()
        wait_until(lambda: all(clean_to(data)[key] > made[key].end for key in KEYS))
        assert not dirs.cleaner.uncleanable
        done = {clean.topic_partition: clean.start_offset for clean in dirs.cleaner.last}
        assert done and all(start >= made[key].end for key, start in done.items())
        for name, found in by_key(shown(dirs, "read_committed")).items():
            assert found == expected[name] | {b"a": b"of ours"}
