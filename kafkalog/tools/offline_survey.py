"""The partitions that offline work covers, and the settings of their topics: read once, before any log is opened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kafkalog.config.broker import BrokerConfig
from kafkalog.config.topic import LogConfig, key_for
from kafkalog.manager.known_topics import KnownTopics, read_known_topics
from kafkalog.tools.directories import PartitionPath, Path, partitions_below, path_list
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem


class Kept(NamedTuple):
    """A partition that is skipped, and the reason."""

    path: str
    why: str


class OfflineSurvey(NamedTuple):
    """The partitions of some paths, their topics' known settings, and the settings `given` for all.

    `config` are the store's settings, for topics without their own; `now_ms` is the time of the whole job.
    """

    found: list[PartitionPath]
    known: KnownTopics
    given: Mapping[str, object]
    config: BrokerConfig
    now_ms: int

    @classmethod
    def of(
        cls,
        paths: Path | Iterable[Path],
        topics: Sequence[str] = (),
        settings: Mapping[str, object] | None = None,
        store: Mapping[str, object] | None = None,
        now_ms: int | None = None,
        fs: FileSystem = OS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> OfflineSurvey:
        """Survey the paths; `topics` names those to include (none: all); `now_ms` None is now.

        PartitionNotFound, NotAPartition, UnknownTopicOrPartition, ConfigError, UnknownConfig; CorruptRecord or
        CorruptCheckpoint for damaged settings.
        """
        found = partitions_below(path_list(paths), topics, fs)
        given = {key_for(name).name: value for name, value in (settings or {}).items()}
        known = read_known_topics(dict.fromkeys(os.path.dirname(one.path) for one in found), fs=fs)
        config = BrokerConfig.from_mapping({**known.store_settings(), **(store or {})})
        return cls(found, known, given, config, clock.milliseconds() if now_ms is None else now_ms)

    def config_of(self, topic: str) -> LogConfig:
        """Return a topic's configuration: the given settings, else its own, else the store's."""
        return self.known.config_of(topic, self.config).replace(**self.given)

    def mark_is_end(self, place: PartitionPath) -> bool:
        """Return True if all of a partition counts as replicated: there is no other copy."""
        return not self.known.has_replicas(place.topic_partition)
