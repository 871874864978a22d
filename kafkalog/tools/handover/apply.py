"""Adding topics to a broker's metadata, and undoing that; the caller holds the locks of all directories.

    journal -> partition.metadata, ids in the topics files -> metadata, last and in one step (or in whole topics)

An interruption leaves every record and every known topic as before, and the same handover, repeated, continues from
there: nothing is moved, and all records of a topic are in one batch.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from kafkalog.config.topic import LogConfig
from kafkalog.errors import IllegalState
from kafkalog.manager.cluster_metadata import ClusterMetadata, read_batches
from kafkalog.manager.topics import TopicStore, format_topics
from kafkalog.records.control import ControlType
from kafkalog.records.control_batch import kraft_batch
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.partition_metadata import replace_topic_id
from kafkalog.tools.handover import journal as handover_journal
from kafkalog.tools.handover.journal import Journal, digest, saved_path
from kafkalog.tools.handover.node import Metadata
from kafkalog.tools.handover.plan import HandoverPlan, TopicPlan
from kafkalog.tools.handover.records import batches, config_records, partition_record, producer_ids_record, topic_record
from kafkalog.util.fileio import FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors

METADATA_LOG: Final = {"max.message.bytes": str(2**31 - 1), "segment.bytes": str(1 << 30), "segment.ms": str(2**63 - 1)}
"""Settings for one append to a metadata log: batches of any size, and no new segment because of age."""


def record_groups(plan: HandoverPlan) -> list[list[bytes]]:
    """Return the metadata records of a plan, grouped into those that belong together."""
    groups = [_topic_records(plan, topic) for topic in plan.topics if topic.action != "known"]
    if plan.next_producer_id is not None:
        groups.insert(0, [producer_ids_record(plan.node.node_id, plan.next_producer_id)])
    return groups


def _topic_records(plan: HandoverPlan, topic: TopicPlan) -> list[bytes]:
    version = plan.metadata.image.metadata_version
    partitions = [partition_record(topic.topic_id, one, plan.node.node_id, version) for one in topic.add]
    if topic.action != "new":
        return partitions
    return [topic_record(topic.name, topic.topic_id), *config_records(topic.name, topic.settings), *partitions]


def apply_plan(plan: HandoverPlan, now_ms: int, fs: FileSystem) -> None:
    """Apply a plan without problems. StorageError, and errors of opening the metadata log."""
    metadata = plan.metadata
    groups = record_groups(plan)
    count = sum(map(len, groups))
    bootstrap = _bootstrap(metadata, groups, now_ms, fs) if metadata.is_fresh and (count or plan.twins) else b""
    carried = {path: before for topic in plan.topics for path, before in topic.id_writes}
    journal = Journal(
        metadata.end_offset,
        metadata.end_offset + (0 if metadata.is_fresh else count),
        digest(bootstrap) if bootstrap else "",
        tuple(topic.name for topic in plan.topics if topic.action != "known"),
        carried,
    )
    bootstrap_files = (metadata, *plan.twins) if bootstrap else ()
    before = handover_journal.read_interrupted(metadata, fs)
    for one in bootstrap_files:
        content = _read_bootstrap(one.bootstrap_path, fs)
        if before is None or not before.wrote(content):  # else the saved copy is older, and so the one to restore
            _write_file(saved_path(one), content, fs)
    handover_journal.write(metadata, journal if before is None else journal.after(before), fs)
    for topic in plan.topics:
        _write_topic_id(topic, fs)
    for one in bootstrap_files:
        _write_file(one.bootstrap_path, bootstrap, fs)
    if not metadata.is_fresh and count:
        new_batches = batches(groups, metadata.end_offset, metadata.leader_epoch, now_ms)
        with _metadata_log(metadata, metadata.end_offset, fs) as log:
            for batch in new_batches:
                log.append_as_follower(batch, metadata.leader_epoch)
    handover_journal.mark_done(metadata, fs)


def _write_topic_id(topic: TopicPlan, fs: FileSystem) -> None:
    """Write the topic's id into its partition directories, and into topics files that have another."""
    for path, _ in topic.id_writes:
        replace_topic_id(fs, path, topic.topic_id)
    for directory in sorted({one.directory for one in topic.found}):
        _set_stored_id(directory, topic.name, topic.topic_id, fs)


def _set_stored_id(directory: str, name: str, topic_id: str, fs: FileSystem) -> None:
    store = TopicStore(directory, fs=fs)
    topics, removed = store.read()
    if name in topics and topics[name].topic_id != topic_id:
        _write_file(store.path, format_topics({**topics, name: topics[name]._replace(topic_id=topic_id)}, removed), fs)


def _bootstrap(metadata: ClusterMetadata, groups: Iterable[list[bytes]], now_ms: int, fs: FileSystem) -> bytes:
    """Return the bootstrap file with our records before its footer; the controller writes them into its new log."""
    path = metadata.bootstrap_path
    content = _read_bootstrap(path, fs)
    footer = read_batches(path, fs)[-1]
    control = footer.control
    if control is None or control.type != ControlType.SNAPSHOT_FOOTER:
        raise IllegalState("the bootstrap file has no footer", path=path, hint="format the directory again")
    epoch, offset = footer.header.leader_epoch, footer.base_offset
    new_batches = batches(groups, offset, epoch, now_ms)
    end = offset + sum(map(len, groups))
    closing = kraft_batch(ControlType.SNAPSHOT_FOOTER, {}, timestamp=now_ms, base_offset=end, leader_epoch=epoch)
    return b"".join((content[: len(content) - footer.size], *map(bytes, new_batches), closing))


def _read_bootstrap(path: str, fs: FileSystem) -> bytes:
    with os_errors("read the bootstrap file", path):
        return fs.read_file(path, 1 << 31)


def _write_file(path: str, content: bytes, fs: FileSystem) -> None:
    with os_errors("write the file", path):
        atomic_write(fs, path, content)


@contextmanager
def _metadata_log(metadata: ClusterMetadata, end_offset: int, fs: FileSystem) -> Iterator[UnifiedLog]:
    """Open the metadata log for writing and flush it at the end of the block.

    IllegalState unless it ends at `end_offset`. It is opened as after a crash, as a broker always does: its indexes are
    rebuilt, and its records are verified.
    """
    log = UnifiedLog.open(
        metadata.log_path, LogConfig.from_stored(METADATA_LOG), fs=fs, recovery_point=0, had_clean_shutdown=False
    )
    try:
        if log.log_end_offset != end_offset:
            raise IllegalState(
                f"the metadata log now ends at {log.log_end_offset}, no longer at {end_offset}",
                path=metadata.log_path,
                hint="stop the process that writes to it, and try again",
            )
        yield log
        log.flush()
    finally:
        log.close()


def undo_changes(found: Metadata, metadata: ClusterMetadata, journal: Journal, fs: FileSystem) -> None:
    """Undo the handover of `journal`, found beside `metadata`: that of `found`, or a twin of it.

    IllegalState if a controller has written since. StorageError.
    """
    bootstrap_files = (found.main, *found.twins)
    if journal.bootstrap_sha256:
        if not metadata.is_fresh:
            raise _too_late(metadata, journal)
        for one in bootstrap_files:
            _restore_bootstrap(one, journal, fs)
    elif metadata.end_offset > journal.end_before and _is_untouched(metadata, journal, fs):
        with _metadata_log(metadata, metadata.end_offset, fs) as log:
            log.truncate_to(journal.end_before)
    elif metadata.end_offset != journal.end_before:
        raise _too_late(metadata, journal)
    for path, before in journal.carried.items():
        if before is not None and fs.exists(path):
            replace_topic_id(fs, path, before)
            name, _, _ = os.path.basename(path).rpartition("-")
            _set_stored_id(os.path.dirname(path), name, before, fs)
    handover_journal.remove(metadata, bootstrap_files, fs)


def _is_untouched(metadata: ClusterMetadata, journal: Journal, fs: FileSystem) -> bool:
    """Return True if only elections of a controller that could not start follow what the handover wrote.

    An interrupted one may have written a part of its batches.
    """
    if metadata.end_offset < journal.end_after:
        return not journal.is_done and handover_journal.wrote_all(journal, metadata, fs)
    found = handover_journal.kinds_between(metadata, journal.end_after, metadata.end_offset, fs)
    return all(is_control for is_control in found)


def _restore_bootstrap(metadata: ClusterMetadata, journal: Journal, fs: FileSystem) -> None:
    saved = saved_path(metadata)
    if fs.exists(saved) and journal.wrote(_read_bootstrap(metadata.bootstrap_path, fs)):
        _write_file(metadata.bootstrap_path, _read_bootstrap(saved, fs), fs)


def _too_late(metadata: ClusterMetadata, journal: Journal) -> IllegalState:
    return IllegalState(
        "the handover cannot be undone: the broker has run since",
        path=handover_journal.path_of(metadata),
        hint="copy the directories, then delete the topics there: " + ", ".join(journal.topics[:5]),
    )
