"""Creation of a partition in one of the data directories (MGR-1, MGR-4 to MGR-8)."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import IllegalState, StorageError
from kafkalog.manager.data_directory import DataDirectory
from kafkalog.manager.partition import NEW, holds_segments, make_directory, open_partition
from kafkalog.manager.placement import directories_in_order, find_directory
from kafkalog.manager.store_topics import StoreTopics
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.names import future_dir_name, partition_dir_name
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.manager.log_manager import LogManager

_LOG: Final = logging.getLogger(__name__)


class Creation(NamedTuple):
    """A log to be created, with the arguments of `LogManager.get_or_create`."""

    topic_partition: TopicPartition
    is_new: bool
    is_future: bool
    topic_id: str | None
    directory: str | os.PathLike[str] | None
    settings: Mapping[str, object] | None

    def make(self, manager: LogManager, topics: StoreTopics) -> UnifiedLog:
        """Create the log in the first directory that takes it.

        A directory whose disk fails goes offline, and the next one is tried.
        """
        problem = manager.problems.get(self.topic_partition)
        if problem is not None and not self.is_future:
            raise problem.with_traceback(None)
        offline = list(manager.offline)
        if not self.is_new and offline:
            raise StorageError(
                f"{self.topic_partition} is missing, and may be in an offline directory",
                path=offline[0].path,
                hint="bring the directory back online, or create the partition as new",
            ) from offline[0].offline_error
        if not self.is_future:
            partition_dir_name(self.topic_partition)
        failures: list[Exception] = []
        for directory in self._candidates(manager):
            try:
                return self._create_in(directory, manager, topics)
            except OSError as error:
                _LOG.warning("cannot create %s in %s: %s", self.topic_partition, directory.path, error)
                failures.append(error)
                manager.handle_error(directory, error)
        raise StorageError(
            f"no data directory accepts {self.topic_partition}: {failures[0]}",
            errno=failures[0].errno if isinstance(failures[0], OSError) else None,
        ) from failures[0]

    def _candidates(self, manager: LogManager) -> list[DataDirectory]:
        preferred = manager.preferred.get(self.topic_partition, self.directory)
        chosen = None if preferred is None else find_directory(manager.directories, preferred)
        if self.is_future:
            return [self._future_directory(manager, chosen)]
        if chosen is not None:
            chosen.online_log_dir  # noqa: B018 - raises where it is offline
            return [chosen]
        return directories_in_order(manager.directories, manager.config.cordoned_log_dirs)

    def _future_directory(self, manager: LogManager, chosen: DataDirectory | None) -> DataDirectory:
        current = manager.get(self.topic_partition)
        if chosen is None:
            raise IllegalState(f"no directory is given for the future log of {self.topic_partition}")
        if current is None:
            raise IllegalState(f"{self.topic_partition} does not exist, so it cannot be moved")
        if os.path.dirname(current.path) == chosen.path:
            raise IllegalState(f"{self.topic_partition} is already in that directory", path=chosen.path)
        return chosen

    def _create_in(self, directory: DataDirectory, manager: LogManager, topics: StoreTopics) -> UnifiedLog:
        key, log_dir = self.topic_partition, directory.online_log_dir
        name = future_dir_name(key) if self.is_future else partition_dir_name(key)
        path = os.path.join(directory.path, name)
        holds_segments(path, directory.fs)
        directory.forget()
        known = topics.get(key.topic)
        settings = self.settings if known is None and self.settings is not None else topics.settings_of(key.topic)
        log = open_partition(
            log_dir,
            path,
            manager.config.log_config(settings),
            NEW,
            make=lambda created: make_directory(
                created,
                topics.ensure(directory, key, manager.logs, self.settings, self.topic_id).topic_id,
                directory.fs,
            ),
            fs=directory.fs,
            clock=manager.clock,
            scheduler=manager.scheduler,
            producer_expiration_ms=manager.config.producer_id_expiration_ms,
            on_disk_failure=lambda error: manager.note_failure(directory, error),
        )
        directory.register((log,), is_future=self.is_future)
        _LOG.debug("created %s", path)
        return log
