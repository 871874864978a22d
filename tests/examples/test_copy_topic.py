"""examples/copy_topic.py: a topic copied with everything as it was."""

import time
from pathlib import Path

import pytest

import kafkalog
from tests import golden_cases, raw_batches
from tests.examples.programs import refused, said, started

LOGDIR = [case for case in golden_cases.partitions("logdir") if case.topic.startswith("pub-")]


def everything(log: kafkalog.Log) -> tuple[object, ...]:
    """All bytes of a log, and where it starts and ends."""
    data = b"".join(map(bytes, log.batches()))
    return log.start_offset, log.end_offset, log.last_stable_offset, data


def assert_same(source: Path, target: Path, topic: str) -> None:
    with kafkalog.open_dirs(source) as dirs, kafkalog.open_dirs(target) as copies:
        assert copies.topics[topic].settings == dirs.topics[topic].settings
        for log, copy in zip(dirs.logs(topic), copies.logs(topic), strict=True):
            assert everything(copy) == everything(log), log.name


@pytest.mark.golden
@pytest.mark.skipif(not LOGDIR, reason="no data directory in the golden capture")
def test_what_a_broker_wrote_is_copied_byte_for_byte(tmp_path: Path) -> None:
    """Compacted, expired, emptied, transactional, compressed, in several partitions: the hardest ones there are."""
    source = LOGDIR[0].directory.parent
    with kafkalog.open_dirs(source) as dirs:
        chosen = {
            "starts late": [key.topic for key in dirs if dirs[key].start_offset > dirs[key].segments[0].base_offset],
            "emptied": [key.topic for key in dirs if dirs[key].start_offset == dirs[key].end_offset > 0],
            "several": [topic.name for topic in dirs.topics.values() if len(topic.partitions) > 2],
            "transactions": [key.topic for key in dirs if dirs[key].last_stable_offset < dirs[key].end_offset],
            "thinned": [key.topic for key in dirs if 0 < sum(1 for _ in dirs[key]) < dirs[key].end_offset // 2],
        }
    for topic in {topics[0] for topics in chosen.values() if topics}:
        said("copy_topic.py", source, tmp_path / "copy", topic)
        assert_same(source, tmp_path / "copy", topic)
    assert kafkalog.verify(tmp_path / "copy", deep=True).ok


def test_a_copy_goes_on_where_it_ends(tmp_path: Path) -> None:
    source, target = tmp_path / "data", tmp_path / "copy"
    with kafkalog.open_dirs(source, "a") as dirs:
        dirs.create_topic("orders", 2, {"retention.ms": -1})
        dirs["orders", 0].append([b"a", b"b"])
        dirs["orders", 1].append(b"c")
    assert said("copy_topic.py", source, target, "orders") == [
        "orders-0: offsets 0 to 2, 2 copied now", "orders-1: offsets 0 to 1, 1 copied now"
    ]  # fmt: skip
    with kafkalog.open_dirs(source, "a") as dirs:
        dirs["orders", 0].append([b"d", b"e", b"f"])
        dirs["orders", 0].delete_before(2)
    assert said("copy_topic.py", source, target, "orders") == [
        "orders-0: offsets 0 to 5, 3 copied now", "orders-1: offsets 0 to 1, 0 copied now"
    ]  # fmt: skip
    with kafkalog.open(target / "orders-0") as copy:
        assert [record.value for record in copy] == [b"a", b"b", b"d", b"e", b"f"]


def test_a_copy_that_was_killed_is_completed(tmp_path: Path) -> None:
    source, target = tmp_path / "data", tmp_path / "copy"
    with kafkalog.open(source / "big-0", "a", retention_ms=-1) as log:
        for part in raw_batches.batches(0, 20_000, 1):
            log.replicate(part)
    running = started("copy_topic.py", source, target, "big")
    while running.poll() is None and not grows(target / "big-0"):
        time.sleep(0.002)
    running.kill()
    running.communicate()
    assert len(said("copy_topic.py", source, target, "big")) == 1
    assert_same(source, target, "big")


def grows(directory: Path) -> bool:
    """True once records are in a partition."""
    return directory.is_dir() and any(path.stat().st_size for path in directory.glob("*.log"))


def test_what_is_no_copy_is_left_alone(tmp_path: Path) -> None:
    source, target = tmp_path / "data", tmp_path / "copy"
    for directory, value in ((source, b"a"), (target, b"b")):
        with kafkalog.open(directory / "orders-0", "a") as log:
            log.append(value)
    assert "it is no copy of it" in refused("copy_topic.py", source, target, "orders")
    with kafkalog.open(target / "orders-0", "a") as log:
        log.append(b"more")
    assert "behind the end 1 of its source" in refused("copy_topic.py", source, target, "orders")
    assert "Hint: topics here: orders" in refused("copy_topic.py", source, target, "order")
    assert "does not exist" in refused("copy_topic.py", tmp_path / "nowhere", target, "orders")
    with kafkalog.open(target / "orders-0", "a"):
        assert "Hint: stop the process" in refused("copy_topic.py", source, target, "orders")
