"""Opening a partition for writing: names, lock, topic settings, clean-shutdown marker."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple

from kafkalog.config.topic import LogConfig, key_for
from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    IllegalState,
    InvalidRecord,
    NotAPartition,
    PartitionNotFound,
    StorageError,
)
from kafkalog.log.background import LogTasks
from kafkalog.log.writable import WritableLog
from kafkalog.manager.checkpoints import forget, lower_cleaner_offsets, read_offset
from kafkalog.manager.known_topics import QUORUM_FILE, read_metadata
from kafkalog.manager.log_dir import LogDir, remove_empty_directory
from kafkalog.manager.partition import NEW, Found, ensure_topic, holds_segments, make_directory, open_partition
from kafkalog.manager.topics import TOPICS_FILE, TopicEntry, TopicStore
from kafkalog.storage.group_commit import Sync, check_sync
from kafkalog.storage.names import parse_dir, partition_dir_name
from kafkalog.storage.recovery.recover_log import Progress, RecoveryProgress
from kafkalog.tools.directories import partitions_of
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import HIGH_WATERMARK_FILE, LOG_START_FILE, RECOVERY_POINT_FILE
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.filesystems import warn_if_unsafe
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.paths import real_path
from kafkalog.util.scheduler import Scheduler

_LOG: Final = logging.getLogger(__name__)
OnDamage = Literal["recover", "refuse"]


class _Target(NamedTuple):
    """The partition to open: its real path, topic and partition, and the options."""

    path: str
    topic_partition: TopicPartition
    settings: Mapping[str, object]
    sync: Sync
    fs: FileSystem
    clock: Clock
    progress: Progress
    refuses_loss: bool
    tasks: LogTasks | None

    @property
    def directory(self) -> str:
        """The data directory."""
        return os.path.dirname(self.path)

    @property
    def name(self) -> str:
        """The partition directory's name."""
        return os.path.basename(self.path)


def open_for_append(
    path: str | bytes | os.PathLike[str],
    settings: Mapping[str, object] | None = None,
    *,
    sync: Sync = False,
    on_damage: OnDamage = "recover",
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
    progress: Progress | None = None,
    scheduler: Scheduler | None = None,
) -> WritableLog:
    """Open the partition directory `path` for writing, creating it if missing.

    The data directory is created too if only its last part is missing; a failed open removes it again.

    `scheduler` deletes files after `file.delete.delay.ms` and flushes rolled segments, until the log is closed. Without
    one, files are deleted at once, and the next flush or close syncs rolled segments.

    `settings` are topic settings by dotted or attribute name. They are stored if this call creates the topic, and
    otherwise override the topic's settings for this open only.

    Of a partition of which other nodes have copies, the high watermark is the checkpointed one, with a warning in the
    log: the end of the log may be discarded by its leader.

    Raises NotAPartition (an invalid name, a file, a directory with other content), PartitionNotFound (neither the data
    directory nor its parent exists), DirectoryLocked, IllegalState (the topic's delete was interrupted), UnknownConfig,
    ConfigError, CorruptCheckpoint, StorageError. A
    partition that was not closed cleanly is recovered first: `progress` is called with a RecoveryProgress from the
    reading threads, one call at a time. An interrupt ends the recovery; the next opening starts it again. Intact
    batches that recovery removes from the log are saved; with `on_damage` "refuse" the call raises CorruptRecord
    instead, and changes nothing.
    """
    check_sync(sync)
    is_refused = refuses_loss(on_damage)
    given = {key_for(name).name: value for name, value in (settings or {}).items()}
    real = real_path(path)
    interrupts = deferred_interrupts()

    def report(recovery: RecoveryProgress) -> None:
        interrupts.run_pending()
        if progress is not None:
            progress(recovery)

    tasks = None if scheduler is None else LogTasks(scheduler)
    target = _Target(real, partition_of(real), given, sync, fs, clock, report, is_refused, tasks)
    warn_if_unsafe(target.directory, durable=sync is not False)
    opened = None
    try:
        with interrupts:
            opened = _open(target)
        if "segment.bytes" in given:
            opened.log.config.warn_if_small(4)
        return opened
    except BaseException:  # a deferred interrupt is raised here, with the log open
        if opened is not None:
            opened.close()
        raise


def refuses_loss(on_damage: str) -> bool:
    """Return True for "refuse", False for "recover"; raise IllegalArgument otherwise."""
    if on_damage in ("recover", "refuse"):
        return on_damage == "refuse"
    raise IllegalArgument(
        f"on_damage is {on_damage!r}",
        hint='use "recover" (truncate at damage, keep intact batches behind it) or "refuse" (raise if there are any)',
    )


def partition_of(path: str) -> TopicPartition:
    """Return the partition named by a path's last part; raise NotAPartition unless that is its canonical name."""
    name = os.path.basename(path)
    topic_partition, kind = parse_dir(name)
    if kind or partition_dir_name(topic_partition) != name:
        raise NotAPartition(
            f"{ascii(name)} is not the name of a live partition directory",
            path=path,
            hint=f"its name would be {partition_dir_name(topic_partition)}",
        )
    return topic_partition


def _open(target: _Target) -> WritableLog:
    created = _make_data_directory(target.directory, target.fs)
    try:
        log_dir = LogDir.acquire(target.directory, fs=target.fs)
    except BaseException:
        if created:
            remove_empty_directory(target.directory, target.fs)
        raise
    try:
        return _open_in(log_dir, target)
    except BaseException:
        if target.tasks is not None:
            target.tasks.shutdown()
        if created:
            log_dir.discard((TOPICS_FILE,))
        else:
            log_dir.release()
        raise


def _make_data_directory(directory: str, fs: FileSystem) -> bool:
    """Create a missing data directory and return True; never create its parent, which may be a typo."""
    try:
        if stat.S_ISDIR(fs.stat(directory).st_mode):
            return False
    except FileNotFoundError:
        return _create_directory(directory, fs)
    except NotADirectoryError:
        pass
    except OSError as error:
        raise StorageError.from_os(error, "open the data directory", path=directory) from error
    raise NotAPartition(
        "the data directory is a file", path=directory, hint="give DIR/<topic>-<number>, where DIR is a directory"
    )


def _create_directory(directory: str, fs: FileSystem) -> bool:
    try:
        fs.mkdir(directory)
    except FileExistsError:  # another thread or process was faster
        return False
    except FileNotFoundError as error:
        raise PartitionNotFound(
            "neither the data directory nor its parent exists",
            path=directory,
            hint="create the parent first, or check the path",
        ) from error
    except OSError as error:
        raise StorageError.from_os(error, "create the data directory", path=directory) from error
    try:
        fs.fsync_dir(os.path.dirname(directory))
    except OSError as error:
        remove_empty_directory(directory, fs)
        raise StorageError.from_os(error, "create the data directory", path=directory) from error
    return True


def _open_in(log_dir: LogDir, target: _Target) -> WritableLog:
    """Open the partition of a locked data directory; a failure leaves everything unchanged."""
    path, fs = target.path, target.fs
    log_dir.refuse_open(target.name)
    create = not holds_segments(path, fs)
    settings, has_replicas = _known_of(log_dir.topics, target)
    config = LogConfig.from_stored({**settings, **target.settings})
    mark = _high_watermark(target) if has_replicas and not create else None

    def record() -> TopicEntry:
        return _record_topic(log_dir.topics, target, {**settings, **target.settings})

    log = open_partition(
        log_dir,
        path,
        config,
        NEW if create else _found(log_dir, target),
        make=(lambda made: make_directory(made, record().topic_id, fs)) if create else None,
        fs=fs,
        clock=target.clock,
        scheduler=target.tasks,
        progress=target.progress,
        refuses_loss=target.refuses_loss,
        keeps_begun_epochs=mark is not None,
    )
    try:
        if mark is not None:
            log.update_high_watermark(mark)
        lower_cleaner_offsets(target.directory, {target.topic_partition: log.log_end_offset}, fs=fs)
    except BaseException:
        log.close()
        log_dir.partition_closed(target.name, True)
        raise
    return WritableLog(
        log, log_dir, path, target.topic_partition, sync=target.sync, fs=fs, clock=target.clock, tasks=target.tasks
    )


def _known_of(store: TopicStore, target: _Target) -> tuple[Mapping[str, object], bool]:
    """Return the topic's own settings, and True if other nodes have copies of the partition.

    From the topics file, else from a broker's metadata beside the partition.
    """
    is_in_replica_set = target.fs.exists(os.path.join(target.directory, QUORUM_FILE))
    topic = store.get(target.topic_partition.topic)
    if topic is not None and topic.is_deleted:
        raise IllegalState(
            f"the delete of topic {topic.name} was interrupted, and the next start of a server completes it",
            path=target.path,
            hint="`kafkalog topics delete --apply` completes it now; a new topic may have the name then",
        )
    if topic is not None:
        return topic.settings, is_in_replica_set
    try:
        known = read_metadata([target.directory], fs=target.fs)
    except (CorruptRecord, InvalidRecord) as error:
        _LOG.warning("%s: cannot read the topic's settings, using the defaults: %s", target.name, error)
        return {}, is_in_replica_set
    return known.settings_of(target.topic_partition.topic) or {}, known.has_replicas(target.topic_partition)


def _high_watermark(target: _Target) -> int:
    """Return the checkpointed high watermark of a partition of which other nodes have copies, and warn of that."""
    mark = read_offset(target.directory, HIGH_WATERMARK_FILE, target.topic_partition, fs=target.fs)
    _LOG.warning(
        "%s: other nodes have copies of this partition: records from offset %d on may be discarded by its leader, also "
        "those appended here; write to the leader instead", target.path, mark,
    )  # fmt: skip
    return mark


def _found(log_dir: LogDir, target: _Target) -> Found:
    start = read_offset(target.directory, LOG_START_FILE, target.topic_partition, fs=target.fs)
    point = read_offset(target.directory, RECOVERY_POINT_FILE, target.topic_partition, fs=target.fs)
    return Found(log_dir.vouches_for(target.name), start, point)


def _record_topic(store: TopicStore, target: _Target, settings: Mapping[str, object]) -> TopicEntry:
    """Return the topic's entry in the topics file, created with these settings or extended to include the partition.

    Checkpoint entries of a deleted partition of that name are removed first.
    """
    forget(target.directory, (target.topic_partition,), fs=target.fs)
    siblings = partitions_of(target.directory, target.topic_partition.topic, target.fs)
    return ensure_topic(store, target.topic_partition, siblings, settings=settings, fs=target.fs)
