"""The job `index`: builds the key indexes of a whole tree, with a cluster's tasks reading the segments."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from kafkalog.keys.manage import KeyIndexInfo, build_index, common_secret
from kafkalog.keys.place import KeyIndexPlace
from kafkalog.sidecars.identity import UNSOUND
from kafkalog.spark.executors import check_executors
from kafkalog.spark.packing import packed
from kafkalog.spark.progress import Tell
from kafkalog.spark.tasks import results, run_tasks
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.directories import Path, partitions_below, path_list
from kafkalog.util.fileio import OS
from kafkalog.util.paths import real_path
from kafkalog.util.text import plural

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class _Work(NamedTuple):
    """A closed segment to index, and the secret that the indexes of its partition share."""

    path: str
    base_offset: int
    size: int
    secret: bytes


class KeyIndexReport(NamedTuple):
    """The key indexes of a tree: number of closed segments of each partition, by path, and the indexes there are.

    `problems` has a line for each segment that is damaged, and has none.
    """

    segments: dict[str, int]
    indexes: tuple[tuple[str, KeyIndexInfo], ...]
    problems: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """True if each segment has an index."""
        return not self.problems

    def lines(self) -> Iterator[str]:
        """Yield the report as text: a line for each partition, then the problems."""
        for path, row in self._rows():
            count = plural(row["segments"], "segment")
            yield f"{path}: {count}, {row['records']:,} records, {row['bytes']:,} bytes"
        yield from self.problems

    def json_lines(self) -> Iterator[str]:
        """Yield a JSON object for each partition, and one for the report."""
        for path, row in self._rows():
            yield json.dumps({"path": path, **row})
        yield json.dumps({"partitions": len(self.segments), "indexes": len(self.indexes), "problems": self.problems})

    def _rows(self) -> Iterator[tuple[str, dict[str, int]]]:
        for path, segments in self.segments.items():
            infos = [info for own, info in self.indexes if own == path]
            records, size = sum(info.records for info in infos), sum(info.size for info in infos)
            yield path, {"segments": segments, "indexes": len(infos), "records": records, "bytes": size}


def index(
    spark: SparkSession,
    paths: Path | Iterable[Path],
    store: Path,
    *,
    topics: Sequence[str] = (),
    rebuild: bool = False,
    tell: Tell | None = None,
) -> KeyIndexReport:
    """Build the key indexes of data directories or partition directories in the directory `store`; return a report.

    They are those of `log.build_key_index(store=…)`, for `kafkalog.open(path, key_index=store)`: of all closed segments
    that have none that fits, or of all with `rebuild`. `topics` names those to include; none: all. Tasks read the
    segments, so that a large partition is spread over many tasks. Nothing is locked, and a broker may run meanwhile;
    segments that it removes are left out. `store` is on a file system that all nodes mount, outside the data
    directories.

    Raises PartitionNotFound, NotAPartition, UnknownTopicOrPartition; IllegalArgument for a store in a data directory;
    MissingRequirement for executors without this package; StorageError; JobFailed.
    """
    found = partitions_below([os.path.abspath(path) for path in path_list(paths)], topics, OS)
    place = real_path(store)
    work: list[_Work] = []
    counts: dict[str, int] = {}
    for one in found:
        own = KeyIndexPlace(real_path(one.path), place, OS)
        secret = common_secret(own)
        with LogView(one.path) as view:
            closed = view.segments[:-1]
            own.remove_others(segment.base_offset for segment in closed)
            counts[one.path] = len(closed)
            work += [_Work(one.path, segment.base_offset, segment.size, secret) for segment in closed]
    os.makedirs(place, exist_ok=True)
    check_executors(spark, [*counts, place])
    tasks = packed(work, lambda one: one.size, spark.sparkContext.defaultParallelism)
    done = results(run_tasks(spark, partial(_build, store=place, rebuild=rebuild), tasks, "index", tell))
    built = sorted((path, info) for some in done for path, info in some if isinstance(info, KeyIndexInfo))
    problems = sorted(text for some in done for _, text in some if isinstance(text, str))
    return KeyIndexReport(counts, tuple(built), tuple(problems))


def _build(work: Sequence[_Work], *, store: str, rebuild: bool) -> list[tuple[str, KeyIndexInfo | str]]:
    """Run a task: build the indexes of its segments; the text of an error stands for that of a damaged one."""
    built: list[tuple[str, KeyIndexInfo | str]] = []
    for path in dict.fromkeys(one.path for one in work):
        place = KeyIndexPlace(real_path(path), store, OS)
        with LogView(path) as view:
            pairs = zip(view.segments[:-1], view.segments[1:], strict=True)
            closed = {segment.base_offset: (segment, following) for segment, following in pairs}
            for one in work:
                if one.path != path or one.base_offset not in closed:
                    continue
                segment, following = closed[one.base_offset]
                try:
                    info = build_index(segment, following.base_offset, place, one.secret, rebuild=rebuild)
                    built.append((path, info))
                except UNSOUND as error:
                    built.append((path, str(error)))
    return built
