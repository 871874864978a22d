"""Open the log manager of some data directories, with the known topics and a scheduler for its jobs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import ConfigError, KafkalogError
from kafkalog.manager.known_topics import KnownTopics, read_known_topics, topics_in
from kafkalog.manager.log_manager import LoadProgress, LogManager
from kafkalog.manager.meta_properties import read_meta_properties
from kafkalog.manager.topics import TopicStore
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import HIGH_WATERMARK_FILE, OffsetCheckpoint
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem
from kafkalog.util.interrupts import deferred_interrupts
from kafkalog.util.scheduler import Scheduler, Schedules

_LOG: Final = logging.getLogger(__name__)


class OpenedLogs(NamedTuple):
    """The manager, the scheduler of its jobs (not scheduled yet), and the known topics of the directories."""

    manager: LogManager
    scheduler: Schedules
    known: KnownTopics

    def close(self, *, discards: bool = False) -> None:
        """Close all logs, then end the job threads, even if a close fails. As `LogManager.close`."""
        with deferred_interrupts():
            try:
                self.manager.close(discards=discards)
            finally:
                self.scheduler.shutdown()


def open_logs(
    directories: Sequence[str | os.PathLike[str]],
    config: BrokerConfig,
    *,
    fs: FileSystem,
    clock: Clock,
    scheduler: Schedules | None = None,
    progress: Callable[[LoadProgress], object] | None = None,
    recovers_damage: bool = False,
    has_replicas: bool | None = False,
    refuses_loss: bool = False,
) -> OpenedLogs:
    """Open the logs of these data directories. Settings in `config` override those of a broker's metadata there.

    `has_replicas`: other nodes have copies of all partitions; None: of those that the directories' files say. Then
    `restore_high_watermarks` comes next.

    Without a `scheduler` one is created; if the open fails it is shut down, also a given one. ConfigError for a node.id
    other than the directories'; further errors as `read_known_topics` and `LogManager.open`.
    """
    paths = [os.path.realpath(path) for path in directories]
    try:
        readable = [path for path in paths if _is_readable(path, fs)]
        known = read_known_topics(readable, fs=fs)
        settings = BrokerConfig.from_mapping({**known.store_settings(), **config.overrides()})
        if settings.node_id is not None and known.node_id is not None and settings.node_id != known.node_id:
            raise ConfigError(
                f"node.id is {settings.node_id}, but the directories belong to node {known.node_id}",
                hint="their meta.properties says so: omit node.id, or open the right directories",
            )
        if scheduler is None:
            scheduler = Scheduler("kafkalog-jobs", clock, settings.background_threads)
        manager = LogManager.open(
            directories,
            settings,
            topic_settings=known.other_settings(topics_in(readable, fs), settings),
            fs=fs,
            clock=clock,
            scheduler=scheduler,
            progress=progress,
            recovers_damage=recovers_damage,
            has_replicas=known.has_replicas if has_replicas is None else lambda _: has_replicas,
            refuses_loss=refuses_loss,
        )
    except BaseException:
        if scheduler is not None:
            with deferred_interrupts():
                scheduler.shutdown()
        raise
    return OpenedLogs(manager, scheduler, known)


def restore_high_watermarks(
    manager: LogManager, has_replicas: Callable[[TopicPartition], bool] = lambda _: True
) -> list[TopicPartition]:
    """Set the high watermark of logs to the one in its directory's checkpoint, within the log; its start without one.

    The leader may discard records above it, so no one may read them before the leader reports its own (PART-12), and
    no retention deletes them. Return the partitions that `has_replicas` chose. Call this before jobs rewrite the
    checkpoint. CorruptCheckpoint, StorageError.
    """
    known = {
        one.path: OffsetCheckpoint(os.path.join(one.path, HIGH_WATERMARK_FILE), fs=manager.fs).read()
        for one in manager.online
    }
    chosen = [key for key in manager.logs if has_replicas(key)]
    for key in chosen:
        log = manager.logs[key]
        marks = known.get(os.path.dirname(log.path), {})
        log.high_watermark_follows_end = False
        log.update_high_watermark(marks.get(key, 0))
    return chosen


def _is_readable(path: str, fs: FileSystem) -> bool:
    """Return False for a missing directory, which is created, and for one that the manager will take offline.

    Its disk does not let the files be read that every start reads there.
    """
    try:
        fs.names(path)
        read_meta_properties(path, fs)
        TopicStore(path, fs=fs).read()
    except OSError as error:
        _LOG.debug("%s is passed over: %s", path, error)
        return False
    except KafkalogError:  # damage, which is reported where the settings are read
        return True
    return True
