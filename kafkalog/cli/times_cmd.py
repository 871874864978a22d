"""`kafkalog times`: build, list and drop time ranges."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from kafkalog.cli import common

if TYPE_CHECKING:
    from kafkalog.reading.source import LogSource
    from kafkalog.time_ranges.place import TimeRangesPlace
    from kafkalog.tools.directories import PartitionPath

_topic = common.topic_option()
_partitions = common.partition_option(multiple=True)
_store = click.option(
    "--store",
    type=click.Path(),
    metavar="DIR",
    help="Directory of the time ranges, for any number of partitions. Default: beside the segments.",
)


@click.group("times", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Build, list and drop time ranges, so that queries with a time range read only what may match.

    Time ranges are the smallest and largest times of the pieces of a segment, in a file of about 0.01 % of its size. A
    broker ignores the files beside its segments, and a file that no longer fits is never used. With --store they lie in
    a separate directory, which `kafkalog sql --time-ranges DIR` uses, and the data directories are only read, even
    beside a running broker.
    See docs/sql.md.
    """


@contextmanager
def _opened(
    where: PartitionPath, store: str | None, *, writes: bool = False
) -> Iterator[tuple[LogSource, TimeRangesPlace]]:
    """Open a partition: for reading with a store or if nothing is written, else for writing, with the lock."""
    import kafkalog
    from kafkalog.time_ranges.place import TimeRangesPlace
    from kafkalog.util.fileio import OS

    with kafkalog.open(where.path, "a" if writes and store is None else "r") as log:
        source = log._source
        yield source, TimeRangesPlace(source.path, store, source.fs if log.mode == "a" else OS)


@command.command("build")
@common.dir_option
@_topic
@_partitions
@_store
@click.option("--rebuild", is_flag=True, help="Build all of them, also those that fit.")
@common.quiet_options
def build(
    dirs: tuple[str, ...],
    topic: str | None,
    partitions: tuple[int, ...],
    store: str | None,
    rebuild: bool,
) -> int:
    """Build the missing and outdated time ranges.

    Those of the last segment are among them if nothing has been written to it for two seconds. Without --store it opens
    each partition for writing, so it needs the lock of the data directory.

    Example: kafkalog times build -d data -t orders --store times

    Exit status: 0 built, 1 damage or another failure, 2 wrong usage.
    """
    from kafkalog.time_ranges.manage import build_ranges

    for one in common.find_partitions(dirs, topic, partitions):
        with _opened(one, store, writes=True) as (source, place):
            infos = build_ranges(source, place, rebuild=rebuild)
        pieces, size = sum(info.pieces for info in infos), sum(info.size for info in infos)
        counts = f"{common.plural(len(infos), 'segment')}, {common.plural(pieces, 'piece')}"
        print(f"{one.topic_partition}: {counts}, {size:,} bytes")
    return 0


@command.command("ls")
@common.dir_option
@_topic
@_partitions
@_store
@common.json_option("Print one JSON object for each segment.")
def ls(
    dirs: tuple[str, ...], topic: str | None, partitions: tuple[int, ...], store: str | None, as_json: bool
) -> int:
    """List the closed segments with the state of their time ranges: ok, missing, stale or damaged.

    The last segment is listed if it has time ranges.

    Example: kafkalog times ls -d data -t orders --store times

    Exit status: 0 listed, 1 a failure, 2 wrong usage.
    """
    from kafkalog.time_ranges.manage import list_ranges

    for one in common.find_partitions(dirs, topic, partitions):
        with _opened(one, store) as (source, place):
            infos = list_ranges(source, place)
        for info in infos:
            if as_json:
                print(json.dumps({"partition": str(one.topic_partition), **info._asdict()}))
            else:
                print(f"{one.topic_partition} {info.base_offset:020} {info.state} {info.pieces:,} {info.size:,}")
    return 0


@command.command("drop")
@common.dir_option
@_topic
@_partitions
@_store
@common.quiet_options
def drop(
    dirs: tuple[str, ...],
    topic: str | None,
    partitions: tuple[int, ...],
    store: str | None,
) -> int:
    """Remove the time ranges; queries read the segments then.

    Example: kafkalog times drop -d data -t orders --store times

    Exit status: 0 removed, 1 a failure, 2 wrong usage.
    """
    for one in common.find_partitions(dirs, topic, partitions):
        with _opened(one, store, writes=True) as (_, place):
            print(f"{one.topic_partition}: {common.plural(place.remove_others(), 'file')} removed")
    return 0
