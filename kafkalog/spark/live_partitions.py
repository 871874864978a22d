"""Partitions of a stream: listed and checked at each trigger, with their views kept open."""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkalog.errors import NotAPartition, PartitionNotFound, StorageError
from kafkalog.spark.file_systems import file_system
from kafkalog.spark.options import SourceOptions
from kafkalog.spark.partitions import PartitionViews, find_partitions
from kafkalog.spark.reach import Standing
from kafkalog.spark.subscriptions import Assign, Subscribe
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS

LISTING_MS: Final = 1000
"""Most ms between listings of directories, whatever their times (which may come from another machine's clock)."""
FRESH_MS: Final = 100
"""Age in ms below which a directory's modification time may hide its next change."""


class _Identity(NamedTuple):
    """Identity of a partition among others of its name: the topic's id if it is stored, else the directory."""

    topic_id: str | None
    inode: int


class LivePartitions:
    """The current partitions that the options name. Only one thread at a time may use it.

    A look costs a few `stat` calls a partition if nothing has changed.
    """

    def __init__(self, options: SourceOptions, *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._options = options
        self._clock = clock
        self._directories_seen: tuple[int, ...] | None = None  # modification times when they were listed
        self._listed_ms = 0  # monotonic
        self._topics: set[str] = set()  # seen so far, if the options decode
        self._identities: dict[TopicPartition, _Identity] = {}
        self._unconfirmed: set[TopicPartition] = set()  # those that the last change of a directory may have replaced
        self.views = PartitionViews({}, options.isolation, file_system(options))
        self.standings: dict[TopicPartition, Standing] = {}

    def look(self, *, force: bool = False) -> dict[TopicPartition, Standing]:
        """Return the existing partitions with their offsets; `force` lists the directories in any case.

        A named partition that is absent is left out. Raises the errors of `find_partitions` for paths, and of views;
        IllegalArgument for another topic than the one that settled the types of decoded columns.
        """
        if force or self._directories_changed():
            self._list()
        self.views.refresh()
        self.standings = {}
        for one in list(self.views.directories):
            try:
                self.standings[one] = self._standing(one)
            except (PartitionNotFound, NotAPartition):  # deleted since the listing, or new and still without a segment
                self._directories_seen = None
        return self.standings

    def _directories_changed(self) -> bool:
        now = self._clock.monotonic_ms()
        if self._directories_seen is None or now - self._listed_ms >= LISTING_MS:
            return True
        return self._directory_times() != self._directories_seen

    def _directory_times(self) -> tuple[int, ...]:
        try:
            return tuple(OS.stat(path).st_mtime_ns for path in self._options.paths)
        except FileNotFoundError:
            return ()  # listing raises the error for it
        except OSError as error:
            raise StorageError.from_os(error, "examine the data directory") from error

    def _list(self) -> None:
        times, listed_ms, now_ms = self._directory_times(), self._clock.monotonic_ms(), self._clock.milliseconds()
        found = find_partitions(self._options.paths, self._options.subscription, absent_ok=True)
        if self._options.decoding:
            from kafkalog.spark.typed_columns import refuse_other_types

            self._topics.update(one.topic for one in found)  # the types are those of the first
            refuse_other_types(dict(self._options.decoding), self._topics)
        self.views.switch_to(found)
        fresh = any(now_ms - time // 1_000_000 < FRESH_MS for time in times)
        if self._directories_seen != times:
            self._unconfirmed = set(self._identities)
        self._directories_seen, self._listed_ms = None if fresh else times, listed_ms

    def _standing(self, one: TopicPartition) -> Standing:
        earliest, latest = self.views.bounds(one)
        if one not in self._identities:
            self._identities[one] = self._identity(one)
        return Standing(earliest, latest, max(latest, self.views[one].log_end_offset))

    def is_recreated(self, partition: TopicPartition, read_to: int) -> bool:
        """Return True if a partition that was read up to `read_to` is another one by now, which must be read again.

        The topic's id decides. Without ids, another directory is a sign only if its log ends before `read_to`: a copy
        of the partition may have replaced it.
        """
        before = self._identities.get(partition)
        if before is None or partition not in self._unconfirmed:
            return False
        try:
            now = self._identity(partition)
        except PartitionNotFound:  # missing again: the next look reports it
            return False
        standing = self.standings[partition]
        if before.topic_id is not None and now.topic_id is not None:
            is_other = before.topic_id != now.topic_id
        else:
            is_other = before.inode != now.inode and read_to > standing.log_end
        if is_other and read_to > standing.earliest:
            return True
        self._identities[partition] = now
        self._unconfirmed.discard(partition)
        return False

    def topic_ids(self) -> dict[TopicPartition, str | None]:
        """Return the ids of the topics that the known partitions belong to."""
        return {one: identity.topic_id for one, identity in self._identities.items()}

    def accept_recreated(self, partition: TopicPartition) -> None:
        """Treat the partition that exists now as the known one."""
        self._identities.pop(partition, None)
        self._unconfirmed.discard(partition)

    def _identity(self, one: TopicPartition) -> _Identity:
        path = self.views.directories[one]
        try:
            inode = OS.stat(path).st_ino
        except FileNotFoundError as error:
            raise PartitionNotFound("the partition directory is missing", path=path) from error
        except OSError as error:
            raise StorageError.from_os(error, "examine the partition directory", path=path) from error
        return _Identity(read_partition_metadata(OS, path), inode)

    def check_named(self) -> None:
        """Raise UnknownTopicOrPartition, as `find_partitions` does, if a named topic or partition is absent."""
        subscription = self._options.subscription
        if isinstance(subscription, Subscribe):
            absent = set(subscription.topics) - {one.topic for one in self.standings}
        elif isinstance(subscription, Assign):
            absent = {str(one) for one in subscription.partitions if one not in self.standings}
        else:
            return
        if absent:
            find_partitions(self._options.paths, subscription)

    def close(self) -> None:
        """Close the files."""
        self.views.close()
        self._directories_seen = None

