"""kafkalog directories for a broker to take over, and the expected report, for the tests of `handover`."""

from pathlib import Path
from typing import Any

import kafkalog
from kafkalog.manager.cluster_metadata import ClusterMetadata, read_cluster_metadata
from kafkalog.records.builder import RecordsBuilder
from kafkalog.tools.handover.directories import HandoverOptions, HandoverReport, handover
from kafkalog.tools.handover.journal import JOURNAL_FILE
from tests.broker_directory import NODE_ID, T0, Record, format_directory, write_metadata_log

KEEP = {"retention_ms": -1}


def write(data: Path, name: str, count: int = 10, **settings: Any) -> None:
    data.mkdir(exist_ok=True)
    with kafkalog.open(data / name, "a", **settings) as log:
        for i in range(count):
            log.append([(b"k%d" % i, b"v%d" % i)])


def produced(producer_id: int, *, transactional: bool = False) -> bytearray:
    """The first batch of a producer."""
    builder = RecordsBuilder(
        0, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=transactional
    )
    builder.append(T0, b"k", b"v")
    return builder.build()


def metadata_of(data: Path) -> ClusterMetadata:
    found = read_cluster_metadata(data)
    assert found is not None
    return found


def content(root: Path) -> dict[str, bytes]:
    """Every file but those that locking and undoing need."""
    passed = (".lock", JOURNAL_FILE)
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.name not in passed
    }


def apply(data: Path, **options: Any) -> HandoverReport:
    return handover([data], apply=True, options=HandoverOptions(**options))


def refusal(data: Path, **options: Any) -> str:
    """Why a handover is refused; nothing has changed then."""
    before = content(data)
    report = apply(data, **options)
    assert not report.ok and not report.applied and content(data) == before
    assert report.plan.problems and all(one.hint for one in report.plan.problems)
    return "; ".join(one.what for one in report.plan.problems)


def topic(name: str, topic_id: str, *, replicas: tuple[int, ...] = (NODE_ID,), epoch: int = 0) -> list[Record]:
    partition = {
        "partitionId": 0, "topicId": topic_id, "replicas": list(replicas), "isr": list(replicas),
        "removingReplicas": [], "addingReplicas": [], "leader": replicas[0], "leaderEpoch": epoch, "partitionEpoch": 4,
    }  # fmt: skip
    return [("TopicRecord", 0, {"name": name, "topicId": topic_id}), ("PartitionRecord", 0, partition)]


def existing(tmp_path: Path, records: list[Record], **more: Any) -> Path:
    data = tmp_path / "data"
    write(data, "t-0")
    format_directory(data)
    write_metadata_log(data, records, **more)
    return data
