"""The commands of files beside closed segments: `build`, `ls` and `drop` of `kafkalog keys` and `kafkalog times`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from kafkalog.cli import common

if TYPE_CHECKING:
    from kafkalog.errors import KafkalogError
    from kafkalog.keys.manage import KeyIndexInfo
    from kafkalog.log.log import Log
    from kafkalog.time_ranges.manage import TimeRangesInfo
    from kafkalog.tools.directories import PartitionPath

    Infos = Sequence[KeyIndexInfo] | Sequence[TimeRangesInfo]

_topic = common.topic_option()
_partitions = common.partition_option(multiple=True)


class Sidecars(NamedTuple):
    """A kind of such files: its words, and its calls, which take a log and the directory given with --store.

    `unit` is what a file counts, a field of its info. `build` takes True as well if files that fit are built again.
    """

    group: str
    files: str
    unit: str
    of_last: str
    dropped: str
    opens: Callable[[str, str, str | None], Log]
    build: Callable[[Log, str | None, bool], Infos]
    list: Callable[[Log, str | None], Infos]
    drop: Callable[[Log, str | None], int]

    def open(self, where: PartitionPath, store: str | None, *, writes: bool = False) -> Log:
        """Open a partition: for reading with a store or if nothing is written, else for writing, with the lock.

        NotAPartition without segments, also for writing: nothing is created.
        """
        log = self.opens(where.path, "r", store)
        if not writes or store is not None:
            return log
        log.close()
        return self.opens(where.path, "a", store)

    @property
    def store_option(self) -> Callable[[common.Command], common.Command]:
        """The option --store."""
        where = f"Directory of the {self.files}, for any number of partitions. Default: beside the segments."
        return click.option("--store", type=click.Path(), metavar="DIR", help=where)

    @property
    def options(self) -> Callable[[common.Command], common.Command]:
        """The options that select partitions, and --store."""
        return common.options(common.dir_option, _topic, _partitions, self.store_option)


def build_command(kind: Sidecars) -> click.Command:
    """Return the command `build`."""

    @kind.options
    @click.option("--rebuild", is_flag=True, help="Build all of them, also those that fit.")
    @common.quiet_options
    def build(
        dirs: tuple[str, ...], topic: str | None, partitions: tuple[int, ...], store: str | None, rebuild: bool
    ) -> int:
        failed: list[KafkalogError] = []
        found = common.find_partitions(dirs, topic, partitions)
        for one, opened in common.each_opened(found, lambda one: kind.open(one, store, writes=True), failed):
            with opened as log:
                infos = kind.build(log, store, rebuild)
            total, size = sum(getattr(info, kind.unit) for info in infos), sum(info.size for info in infos)
            counts = f"{common.plural(len(infos), 'segment')}, {common.plural(total, kind.unit[:-1])}"
            print(f"{one.topic_partition}: {counts}, {size:,} bytes")
        return 1 if failed else 0

    text = f"""Build the missing and outdated {kind.files} of closed segments.

    {kind.of_last}Without --store it opens each partition for writing, so it needs the lock of the data directory.

    Example: kafkalog {kind.group} build -d data -t orders

    Exit status: 0 built, 1 damage or another failure, 2 wrong usage.
    """
    return click.command("build", help=text)(build)


def list_command(kind: Sidecars) -> click.Command:
    """Return the command `ls`."""

    @kind.options
    @common.json_option("Print one JSON object for each segment.")
    def ls(
        dirs: tuple[str, ...], topic: str | None, partitions: tuple[int, ...], store: str | None, as_json: bool
    ) -> int:
        failed: list[KafkalogError] = []
        is_empty = True
        found = common.find_partitions(dirs, topic, partitions)
        for one, opened in common.each_opened(found, lambda one: kind.open(one, store), failed):
            with opened as log:
                infos = kind.list(log, store)
            for info in infos:
                is_empty = False
                if as_json:
                    print(json.dumps({"partition": str(one.topic_partition), **info._asdict()}))
                else:
                    count = getattr(info, kind.unit)
                    print(f"{one.topic_partition} {info.base_offset:020} {info.state} {count:,} {info.size:,}")
        if is_empty and not failed:
            common.note(f"no closed segments, and {kind.files} belong to these")
        return 1 if failed else 0

    text = f"""List the closed segments with the state of their {kind.files}: ok, missing, stale or damaged.

    Example: kafkalog {kind.group} ls -d data -t orders

    Exit status: 0 listed, 1 a failure, 2 wrong usage.
    """
    return click.command("ls", help=text)(ls)


def drop_command(kind: Sidecars) -> click.Command:
    """Return the command `drop`."""

    @kind.options
    @common.quiet_options
    def drop(dirs: tuple[str, ...], topic: str | None, partitions: tuple[int, ...], store: str | None) -> int:
        failed: list[KafkalogError] = []
        found = common.find_partitions(dirs, topic, partitions)
        for one, opened in common.each_opened(found, lambda one: kind.open(one, store, writes=True), failed):
            with opened as log:
                print(f"{one.topic_partition}: {common.plural(kind.drop(log, store), 'file')} removed")
        return 1 if failed else 0

    text = f"""Remove the {kind.files}; afterwards {kind.dropped} the segments.

    Example: kafkalog {kind.group} drop -d data -t orders

    Exit status: 0 removed, 1 a failure, 2 wrong usage.
    """
    return click.command("drop", help=text)(drop)


def add_commands(group: click.Group, kind: Sidecars) -> None:
    """Add `build`, `ls` and `drop` to a command group."""
    for command in (build_command(kind), list_command(kind), drop_command(kind)):
        group.add_command(command)
