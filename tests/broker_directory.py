"""Data directories as a KRaft broker has them, made without one: formatted, and with a metadata log."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafkalog._core.varint import encode_uvarint
from kafkalog.config import LogConfig
from kafkalog.manager.cluster_metadata import BOOTSTRAP_FILE, METADATA_DIRECTORY
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import kraft_batch
from kafkalog.records.encoder import encoded
from kafkalog.records.schemas.metadata import RECORDS
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.partition_metadata import new_topic_id

CLUSTER_ID = "a2Fma2Fsb2ctaW50ZXJvcA"
NODE_ID = 3
T0 = 1_700_000_000_000
VERSION_4_3 = 30
Record = tuple[str, int, Mapping[str, Any]]


def value(name: str, version: int, message: Mapping[str, Any]) -> bytes:
    """A record of the metadata, by the name of its schema."""
    schema = next(one for one in RECORDS.values() if one.name == name)
    return b"\x01" + encode_uvarint(schema.number) + encode_uvarint(version) + encoded(schema, message, version)


def features(level: int = VERSION_4_3) -> list[Record]:
    """What every log of metadata begins with."""
    return [("FeatureLevelRecord", 0, {"name": "metadata.version", "featureLevel": level})]


def batch(records: Sequence[Record], base_offset: int, leader_epoch: int = 0) -> bytearray:
    """The records as one batch."""
    builder = RecordsBuilder(base_offset, leader_epoch=leader_epoch)
    for name, version, message in records:
        builder.append(T0, None, value(name, version, message))
    return builder.build()


def write_meta_properties(directory: Path, *, node_id: int = NODE_ID, cluster_id: str = CLUSTER_ID) -> str:
    """The ids of a data directory; its own is the answer."""
    directory.mkdir(parents=True, exist_ok=True)
    own = new_topic_id()
    lines = ("#", "#Sun Nov 22 00:00:00 UTC 2026", f"node.id={node_id}", f"directory.id={own}", "version=1")
    (directory / "meta.properties").write_text("\n".join([*lines, f"cluster.id={cluster_id}", ""]))
    return own


def format_directory(directory: Path, *, level: int = VERSION_4_3, node_id: int = NODE_ID) -> str:
    """The directory as kafka-storage leaves it, its partitions as they were; its id is the answer."""
    own = write_meta_properties(directory, node_id=node_id)
    header = kraft_batch(ControlType.SNAPSHOT_HEADER, {"lastContainedLogTimestamp": 0}, timestamp=T0, leader_epoch=0)
    footer = kraft_batch(ControlType.SNAPSHOT_FOOTER, {}, timestamp=T0, base_offset=2, leader_epoch=0)
    (directory / BOOTSTRAP_FILE).write_bytes(b"".join((header, batch(features(level), 1), footer)))
    return own


def write_metadata_log(
    directory: Path, records: Sequence[Record] = (), *, voters: Sequence[int] = (NODE_ID,), leader_epoch: int = 2
) -> Path:
    """A metadata log as a controller that stopped leaves it; its directory is the answer."""
    path = directory / METADATA_DIRECTORY
    path.mkdir(parents=True)
    ids = [{"voterId": voter} for voter in voters]
    change = {"leaderId": voters[0], "voters": ids, "grantingVoters": ids}
    first = kraft_batch(ControlType.LEADER_CHANGE, change, timestamp=T0, leader_epoch=leader_epoch)
    with_features = [*features(), *records]
    log = UnifiedLog.open(path, LogConfig())
    log.append_as_follower(first, leader_epoch)
    log.append_as_follower(batch(with_features, 1, leader_epoch), leader_epoch)
    log.close()
    (path / "quorum-state").write_text('{"data_version":0}')
    return path
