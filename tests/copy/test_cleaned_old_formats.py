"""Topics of format v1 that were compacted: a clean makes v2 batches without a leader epoch of them."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.backup import create_backup, restore_backup
from kafkalog.copy import copy_topics
from kafkalog.manager.topics import TopicStore
from kafkalog.records.format import CompressionType
from tests.copy.topics import KEEP, records_in, source_of
from tests.plain_reader import Read
from tests.redact.model import Made, read_all, write


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A compacted topic, whose first segment is v2 after a clean, and whose second one is v1."""
    rows = [Made(1, CompressionType.NONE, [(b"k%d" % (n % 2), b"%d" % n, ())], [0]) for n in range(8)]
    write(tmp_path / "data" / "old-0", [rows[:5], rows[5:]])
    TopicStore(str(tmp_path / "data")).ensure("old", partitions=1, settings={**KEEP, "cleanup.policy": "compact"})
    with kafkalog.open(tmp_path / "data" / "old-0", "a") as log:
        log.compact()
    return tmp_path / "data"


def content(records: list[Read]) -> list[tuple[object, ...]]:
    return [(one.key, one.value, one.timestamp) for one in records]


def without_epoch(partition: Path) -> int:
    """The number of v2 batches that have no leader epoch."""
    with kafkalog.open(partition) as log:
        return sum(one.header.magic == 2 and one.header.leader_epoch < 0 for one in log.batches())


@pytest.mark.parametrize("kind", ["directory", "backup", "cluster", "tiered"])
def test_a_directory_gets_the_same_batches(kind: str, data: Path, tmp_path: Path) -> None:
    assert without_epoch(data / "old-0") >= 1
    with source_of(kind, data, tmp_path) as source:
        report = copy_topics(source, str(tmp_path / "copied"), ["old"], apply=True)
        again = copy_topics(source, str(tmp_path / "copied"), ["old"], apply=True)
    assert report.ok and again.records == 0
    assert read_all(tmp_path / "copied" / "old-0") == read_all(data / "old-0")


@pytest.mark.parametrize("by", ["time", "append"])
def test_a_moment_of_it_is_restored(by: str, data: Path, tmp_path: Path) -> None:
    create_backup(data, tmp_path / "backups")
    whole = records_in(data / "old-0")
    restore_backup(tmp_path / "backups", tmp_path / "then", at=whole[-2].timestamp, by=by)
    assert content(records_in(tmp_path / "then" / "old-0")) == content(whole[:-1])
