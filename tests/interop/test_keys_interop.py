"""Key indexes beside the segments of a real broker: it opens the directory with them in it, serves it and cleans it."""

import time
from pathlib import Path

import kafkalog
from kafkalog.storage.names import parse_topic_partition_dir
from kafkalog.tools.verify.directories import verify
from tests.interop import ours
from tests.interop.broker import Broker
from tests.interop.reference import Reference

EAGER = {"log.initial.task.delay.ms": "100", "log.cleaner.backoff.ms": "100", "log.cleaner.min.cleanable.ratio": "0"}
NAME = "states-0"
KEYS = [b"key-%d" % i for i in range(20)]


def write(path: Path) -> None:
    """Three closed segments with indexes, in which each key has many records."""
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": 0, "min_compaction_lag_ms": 0}
    with kafkalog.open(path, "a", **settings) as log:  # type: ignore[arg-type]
        for part in range(3):
            for turn in range(50):
                log.append([(key, b"%d-%d" % (part, turn)) for key in KEYS])
            log.roll()
        log.append((b"end", b"x"))
        assert [info.state for info in log.build_key_index()] == ["ok"] * 3


def last_values(path: Path) -> list[bytes | None]:
    with kafkalog.open(path) as log:
        return [record and record.value for record in log.get_many(KEYS)]


def test_a_broker_opens_and_cleans_a_directory_with_key_indexes(reference: Reference, tmp_path: Path) -> None:
    """It leaves the files alone; those of segments that its cleaner replaced are not used."""
    data, store = tmp_path / "data", tmp_path / "store"
    data.mkdir()
    path = data / NAME
    write(path)
    assert verify(str(path)).ok
    names = sorted(file.name for file in path.glob("*.keyindex"))
    expected = last_values(path)
    partition = parse_topic_partition_dir(NAME)
    broker = Broker(reference, tmp_path / "work", data, EAGER)
    broker.format()
    ours.command("handover", "-d", str(data), "--apply", "--let-expire")
    checkpoint = data / "cleaner-offset-checkpoint"
    with broker:
        deadline = time.monotonic() + 90
        while not (checkpoint.exists() and f"{NAME[:-2]} 0 3000" in checkpoint.read_text()):
            assert time.monotonic() < deadline, broker.log()[-3000:]
            time.sleep(0.2)
        with kafkalog.open(path, key_index=store) as log:  # beside the running broker
            while sum(1 for _ in log) > 100 and time.monotonic() < deadline:
                time.sleep(0.2)
            assert [record and record.value for record in log.get_many(KEYS)] == expected
            log.build_key_index()
            assert all(info.state == "ok" for info in log.key_index())
            assert [record and record.value for record in log.get_many(KEYS)] == expected
        after = broker.consume_all([partition], "read_uncommitted")[NAME]
    assert 21 <= len(after) <= 100
    assert sorted(file.name for file in path.glob("*.keyindex")) == names
    assert last_values(path) == expected
    with kafkalog.open(path) as log:
        assert "stale" in [info.state for info in log.key_index()]
    with kafkalog.open(path, "a") as log:
        assert all(info.state == "ok" for info in log.build_key_index())
        assert len(list(path.glob("*.keyindex"))) == len(log.segments) - 1
    assert last_values(path) == expected
