"""Data directories as a KRaft broker has them, made without one: formatted, and with a metadata log."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from kafkalog._core.bytes.varint import encode_uvarint
from kafkalog.config.topic import LogConfig
from kafkalog.manager.cluster_metadata import BOOTSTRAP_FILE, BOOTSTRAP_SNAPSHOT, METADATA_DIRECTORY
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
    """Return the first records of every metadata log."""
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


def format_directory(
    directory: Path, *, level: int = VERSION_4_3, node_id: int = NODE_ID, records: Sequence[Record] = (),
    by: str = "4.3", has_voters: bool = False,
) -> str:  # fmt: skip
    """The directory as kafka-storage of a version leaves it, its partitions as they were; its id is the answer.

    Before 4.4 the records that a controller begins with are in a file of their own; `has_voters` is `--standalone`.
    """
    own = write_meta_properties(directory, node_id=node_id)
    begins = [*features(level), *records]
    snapshot = directory / METADATA_DIRECTORY / BOOTSTRAP_SNAPSHOT
    if by == "4.4" or has_voters:
        snapshot.parent.mkdir()
        snapshot.write_bytes(snapshot_of(begins if by == "4.4" else [], (node_id,) if has_voters else ()))
    if by != "4.4":
        (directory / BOOTSTRAP_FILE).write_bytes(snapshot_of(begins))
    return own


def snapshot_of(records: Sequence[Record], voters: Sequence[int] = ()) -> bytes:
    """A snapshot of the metadata from offset 0 on."""
    parts = [kraft_batch(ControlType.SNAPSHOT_HEADER, {"lastContainedLogTimestamp": 0}, timestamp=T0, leader_epoch=0)]
    if voters:
        ids = [
            {
                "voterId": voter, "voterDirectoryId": "Er3uhoIpQAyT3-6BGQRyUA", "endpoints": [],
                "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
            }
            for voter in voters
        ]  # fmt: skip
        voter_set = {"voters": ids}
        parts.append(kraft_batch(ControlType.KRAFT_VOTERS, voter_set, timestamp=T0, base_offset=1, leader_epoch=0))
    end = len(parts)
    if records:
        parts.append(batch(records, end))
        end += len(records)
    parts.append(kraft_batch(ControlType.SNAPSHOT_FOOTER, {}, timestamp=T0, base_offset=end, leader_epoch=0))
    return b"".join(map(bytes, parts))


def write_metadata_log(
    directory: Path, records: Sequence[Record] = (), *, voters: Sequence[int] = (NODE_ID,), leader_epoch: int = 2
) -> Path:
    """A metadata log as a controller that stopped leaves it; its directory is the answer."""
    path = directory / METADATA_DIRECTORY
    path.mkdir(parents=True, exist_ok=True)
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
