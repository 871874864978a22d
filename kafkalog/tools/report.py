"""Data of a report on data directories: every partition, the larger ones sampled."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kafkalog.errors import KafkalogError
from kafkalog.inspect.report import Report
from kafkalog.inspect.stats import LogStats
from kafkalog.inspect.survey import SurveyOptions, survey
from kafkalog.manager.checkpoints import read_cleaner_offsets
from kafkalog.manager.known_topics import KnownTopics, read_known_topics
from kafkalog.storage.names import is_log_file
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.damage import damage_locator
from kafkalog.tools.directories import PartitionPath, partitions_below
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors

REPORT_BYTES: Final = 512 << 20
"""Default number of bytes to read for a report, distributed over the partitions by size."""
_MIN_BYTES: Final = 1 << 20
"""Fewest bytes to read of a partition, if it is that large."""
_DETAIL_PART: Final = 8
"""One byte in this many is decoded for the keys."""


def make_report(
    paths: Sequence[str],
    *,
    topics: Sequence[str] = (),
    sample_bytes: int | None = REPORT_BYTES,
    keys: bool = True,
    tell: Callable[[int], object] | None = None,
) -> Report:
    """Return a report on data directories or partitions, for `topics` or all; lock and change nothing.

    About `sample_bytes` are read in total (None: everything); with `keys` a part of the records is decoded. `tell` is
    called with the bytes of each finished part, which add up to `total_bytes`. Unreadable data is listed among the
    problems, and the rest is reported. Raises PartitionNotFound, StorageError, UnknownTopicOrPartition for a missing
    path or topic.
    """
    found = partitions_below(paths, topics)
    sizes = [segment_bytes(one.path) for one in found]
    total = max(sum(sizes), 1)
    known = _TopicSettings()
    logs: list[LogStats] = []
    problems: list[str] = []
    for one, size in zip(found, sizes, strict=True):
        progress = None if tell is None else report_share(tell, size)
        most = None if sample_bytes is None else max(_MIN_BYTES, sample_bytes * size // total)
        detail = None if most is None else max(_MIN_BYTES, most // _DETAIL_PART)
        try:
            with LogView(one.path) as view:
                first_dirty = known.first_dirty_offset(one)
                options = SurveyOptions(most, False, keys, detail, first_dirty)
                logs.append(survey(view, one.topic_partition, options, progress, locate=damage_locator(view)))
        except KafkalogError as error:
            problems.append(f"{one.topic_partition}: {error}")
        if progress is not None:
            progress(1.0)
    directories = tuple(os.path.abspath(path) for path in paths)
    return Report(directories, tuple(logs), (*problems, *known.problems), int(time.time() * 1000))


def segment_bytes(path: str, fs: FileSystem = OS) -> int:
    """Return the bytes of the segments, or 0 if they cannot be read."""
    try:
        return sum(fs.stat(os.path.join(path, name)).st_size for name in fs.names(path) if is_log_file(name))
    except OSError:
        return 0


class _TopicSettings:
    """Settings and cleaner checkpoints of the data directories, each read once."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._topics: dict[str, KnownTopics | None] = {}
        self._cleaned: dict[str, dict[TopicPartition, int]] = {}

    def first_dirty_offset(self, one: PartitionPath) -> int | None:
        """Return the first dirty offset of a compacted partition; None for one not known to be compacted."""
        directory = os.path.dirname(os.path.realpath(one.path))
        if directory not in self._topics:
            self._topics[directory], self._cleaned[directory] = self._read(directory)
        topics = self._topics[directory]
        settings = None if topics is None else topics.settings_of(one.topic_partition.topic)
        if settings is None or "compact" not in settings.get("cleanup.policy", ""):
            return None
        return self._cleaned[directory].get(one.topic_partition, 0)

    def _read(self, directory: str) -> tuple[KnownTopics | None, dict[TopicPartition, int]]:
        try:
            return read_known_topics([directory]), read_cleaner_offsets(directory)
        except KafkalogError as error:
            self.problems.append(f"topic settings are unknown: {error}")
            return None, {}


def write_report(text: str, path: str) -> None:
    """Write the page to a file, whole or not at all. Raises StorageError."""
    with os_errors("write the report", path):
        atomic_write(OS, path, text.encode())


def report_share(tell: Callable[[int], object], size: int) -> Callable[[float], None]:
    """Return a function that takes the finished share of `size` bytes and calls `tell` with the bytes added."""
    reported = 0

    def progress(share: float) -> None:
        nonlocal reported
        done = int(size * share)
        if done > reported:
            tell(done - reported)
            reported = done

    return progress


def total_bytes(paths: Iterable[str], topics: Sequence[str] = ()) -> int:
    """Return the bytes of the segments that a report covers."""
    return sum(segment_bytes(one.path) for one in partitions_below(list(paths), topics))
