"""A log manager on what a real broker was booted on: odd directories, damaged checkpoints (vector `log_manager`)."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import KafkalogError, NotAPartition, StorageError
from kafkalog.manager.cluster_metadata import read_cluster_metadata
from kafkalog.manager.log_manager import LogManager
from kafkalog.storage.names import META_PROPERTIES, NOT_PARTITIONS, parse_dir
from kafkalog.types import TopicPartition
from tests.golden_cases import cases, each_entry
from tests.mock_time import MockClock

DELAY_MS = 1000  # log.segment.delete.delay.ms of the broker
MARKER = ".kafka_cleanshutdown"
HEX = re.compile(r"\.[0-9a-f]{32}-")
FOUND_STRAY = re.compile(r"Found stray log dir Log\(dir=<DATADIR>/([^,]+), topicId=([^,]+),")


def prepared(entry: dict[str, Any], path: Path) -> Path:
    """The directory as it was before the broker was booted on it."""
    (top,) = cases("logdir")
    data = path / "data"
    shutil.copytree(top.directory, data, symlinks=True)
    before = entry["before"]
    for name in set(before["dirs"]) - {one.name for one in data.iterdir() if one.is_dir()}:
        try:
            live = str(parse_dir(name).topic_partition)
        except NotAPartition:
            (data / name).mkdir()
            continue
        source = data / live if (data / live).is_dir() else next(one for one in sorted(data.iterdir()) if is_empty(one))
        shutil.copytree(source, data / name)
    for file in data.iterdir():
        if file.is_file() and ("checkpoint" in file.name and file.suffix != ".checkpoint" or file.name == MARKER):
            file.unlink()
    for name, content in before["files"].items():
        (data / name).write_bytes(content.encode("latin-1"))
    for name, topic_id in strays(entry):
        (data / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    return data


def strays(entry: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, topic id) of the directories in which the broker found an id that its metadata has not."""
    return [found for line in entry["log"] for found in FOUND_STRAY.findall(line)]


def is_empty(path: Path) -> bool:
    """Whether this is a partition directory without a record."""
    logs = list(path.glob("*.log")) if path.is_dir() else []
    return bool(logs) and not any(log.stat().st_size for log in logs)


def opened(data: Path, clock: MockClock) -> LogManager:
    """Our manager, which knows the cluster's topics as the broker did."""
    metadata = read_cluster_metadata(str(data))
    assert metadata is not None
    ids = {topic.topic_id for topic in metadata.image.topics.values()}
    config = BrokerConfig(log_segment_delete_delay_ms=DELAY_MS)
    return LogManager.open([data], config, is_stray=lambda _, topic_id: topic_id not in ids, clock=clock)


def directories(data: Path) -> list[str]:
    """The names of the directories; ids of renamed ones are all the same."""
    return like(one.name for one in data.iterdir() if one.is_dir())


def like(names: Any) -> list[str]:
    return sorted(HEX.sub(".ID-", name) for name in names)


def offsets(content: str) -> dict[TopicPartition, int]:
    rows = [line.split() for line in content.splitlines()[2:]]
    return {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in rows}


def contents(data: Path) -> dict[str, bytes]:
    """Every file with its bytes, but for the lock's, which an opening may make."""
    return {
        str(one.relative_to(data)): one.read_bytes() for one in data.rglob("*") if one.is_file() and one.name != ".lock"
    }


def has_future(entry: dict[str, Any]) -> bool:
    return any(name.endswith("-future") for name in entry["before"]["dirs"])


@each_entry("log_manager", where=lambda entry: entry["broker_running"])
def test_where_the_broker_starts_ours_does_the_same(entry: dict[str, Any], tmp_path: Path) -> None:
    """MGR-11, MGR-19, MGR-26, CKPT-10: directories, checkpoints and the marker, running and after a clean stop."""
    data = prepared(entry, tmp_path)
    clock = MockClock(1_800_000_000_000)
    manager = opened(data, clock)
    clock.advance(DELAY_MS)
    manager.delete_logs()
    for name, _ in strays(entry):  # the broker makes them anew, for they are its partitions
        manager.get_or_create(parse_dir(name).topic_partition)
    assert directories(data) == like(entry["after_boot"]["dirs"])
    assert MARKER not in entry["after_boot"]["files"] and not (data / MARKER).exists()
    live = {parse_dir(name) for name in entry["after_boot"]["dirs"] if name not in NOT_PARTITIONS}
    assert manager.logs.keys() == {one.topic_partition for one in live if not one.kind}
    ends = {key: log.log_end_offset for key, log in manager.logs.items()}
    manager.close()
    stopped = entry["after_clean_stop"]
    assert directories(data) == like(stopped["dirs"])
    assert MARKER in stopped["files"] and (data / MARKER).exists()
    for name, content in stopped["files"].items():
        if name == MARKER:
            continue
        # the broker keeps lines of partitions that it has set aside; ours has those that are there
        theirs, ours = offsets(content), offsets((data / name).read_text())
        assert {key: theirs[key] for key in theirs if (data / str(key)).is_dir()} == {
            key: ours[key] for key in ours if key in theirs
        }, name
    assert ends == {
        key: offset
        for key, offset in offsets(stopped["files"]["recovery-point-offset-checkpoint"]).items()
        if (data / str(key)).is_dir()
    }


@each_entry("log_manager", where=lambda entry: not entry["broker_running"] and not has_future(entry))
def test_where_the_broker_refuses_ours_does_and_changes_nothing(entry: dict[str, Any], tmp_path: Path) -> None:
    """MGR-22, CKPT-5: ours keeps the marker too, which the broker takes away before it refuses."""
    data = prepared(entry, tmp_path)
    before = contents(data)
    with pytest.raises((NotAPartition, StorageError)) as caught:
        opened(data, MockClock())
    assert contents(data) == before and directories(data) == like(entry["after_clean_stop"]["dirs"])
    named = [name for name in (*entry["before"]["dirs"], *entry["before"]["files"]) if name in str(caught.value)]
    assert named and isinstance(caught.value, KafkalogError) and any(named[0] in line for line in entry["log"])


@each_entry("log_manager", where=lambda entry: not entry["broker_running"] and has_future(entry))
def test_a_future_directory_beside_its_current_one(entry: dict[str, Any], tmp_path: Path) -> None:
    """MGR-29: the broker renames onto the current one and does not start; ours serves it, and keeps the other."""
    data = prepared(entry, tmp_path)
    with opened(data, MockClock()) as manager:
        names = [name for name in entry["before"]["dirs"] if name not in NOT_PARTITIONS]
        assert manager.logs.keys() == {key for key, kind in map(parse_dir, names) if not kind}
        assert manager.future_logs.keys() == {key for key, kind in map(parse_dir, names) if kind}
    assert directories(data) == like(entry["after_clean_stop"]["dirs"]) and (data / MARKER).exists()


def test_the_capture_s_directory_has_its_ids() -> None:
    """CKPT-9."""
    (top,) = cases("logdir")
    assert (top.directory / META_PROPERTIES).is_file()
