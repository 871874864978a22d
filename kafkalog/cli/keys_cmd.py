"""`kafkalog keys`: build, list and drop key indexes, and get records by key."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from kafkalog.cli import common

if TYPE_CHECKING:
    from kafkalog._core.batch.record import Record
    from kafkalog.log.log import Log
    from kafkalog.tools.directories import PartitionPath

_topic = common.topic_option()
_partitions = common.partition_option(multiple=True)
store_option = click.option(
    "--store",
    type=click.Path(),
    metavar="DIR",
    help="Directory of the key indexes, for any number of partitions. Default: beside the segments.",
)


@click.group("keys", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Build, list and drop key indexes, and get records by key.

    A key index is a file that locates the records of each key in a closed segment; without it, a look-up searches the
    segment. A broker ignores the files beside its segments, and an index that no longer fits is never used. With
    --store the indexes lie in a separate directory, and the data directories are only read, even beside a running
    broker.
    See docs/keys.md.
    """


def _opened(where: PartitionPath, store: str | None, *, writes: bool = False) -> Log:
    """Open a partition: for reading with a store or if nothing is written, else for writing, with the lock."""
    import kafkalog

    if store is not None:
        return kafkalog.open(where.path, key_index=store)
    return kafkalog.open(where.path, "a" if writes else "r")


@command.command("build")
@common.dir_option
@_topic
@_partitions
@store_option
@click.option("--rebuild", is_flag=True, help="Build all of them, also those that fit.")
@common.quiet_options
def build(
    dirs: tuple[str, ...],
    topic: str | None,
    partitions: tuple[int, ...],
    store: str | None,
    rebuild: bool,
) -> int:
    """Build the missing and outdated key indexes of closed segments.

    Without --store it opens each partition for writing, so it needs the lock of the data directory.

    Example: kafkalog keys build -d data -t orders

    Exit status: 0 built, 1 damage or another failure, 2 wrong usage.
    """
    for one in common.find_partitions(dirs, topic, partitions):
        with _opened(one, store, writes=True) as log:
            infos = log.build_key_index(rebuild=rebuild)
        records, size = sum(info.records for info in infos), sum(info.size for info in infos)
        print(f"{one.topic_partition}: {common.plural(len(infos), 'segment')}, {records:,} records, {size:,} bytes")
    return 0


@command.command("ls")
@common.dir_option
@_topic
@_partitions
@store_option
@common.json_option("Print one JSON object for each closed segment.")
def ls(
    dirs: tuple[str, ...], topic: str | None, partitions: tuple[int, ...], store: str | None, as_json: bool
) -> int:
    """List the closed segments with the state of their key indexes: ok, missing, stale or damaged.

    Example: kafkalog keys ls -d data -t orders

    Exit status: 0 listed, 1 a failure, 2 wrong usage.
    """
    for one in common.find_partitions(dirs, topic, partitions):
        with _opened(one, store) as log:
            infos = log.key_index()
        for info in infos:
            if as_json:
                print(json.dumps({"partition": str(one.topic_partition), **info._asdict()}))
            else:
                print(f"{one.topic_partition} {info.base_offset:020} {info.state} {info.records:,} {info.size:,}")
    return 0


@command.command("drop")
@common.dir_option
@_topic
@_partitions
@store_option
@common.quiet_options
def drop(
    dirs: tuple[str, ...],
    topic: str | None,
    partitions: tuple[int, ...],
    store: str | None,
) -> int:
    """Remove the key indexes; look-ups search the segments then.

    Example: kafkalog keys drop -d data -t orders

    Exit status: 0 removed, 1 a failure, 2 wrong usage.
    """
    for one in common.find_partitions(dirs, topic, partitions):
        with _opened(one, store, writes=True) as log:
            print(f"{one.topic_partition}: {common.plural(log.drop_key_index(), 'file')} removed")
    return 0


@command.command("get")
@common.dir_option
@common.topic_option(required=True)
@_partitions
@store_option
@click.option("--history", is_flag=True, help="All records of each key, oldest first, instead of the last one.")
@common.isolation_option
@common.on_damage_option
@common.json_option("Print one JSON object for each record.")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def get(
    dirs: tuple[str, ...],
    topic: str,
    partitions: tuple[int, ...],
    store: str | None,
    history: bool,
    isolation_level: str | None,
    on_damage: str,
    as_json: bool,
    keys: tuple[str, ...],
) -> int:
    """Print the last record of each KEY as PARTITION, offset, key and value, separated by tabs.

    All partitions of the topic are asked, or those given. A tombstone is printed as null.

    Example: kafkalog keys get -d data -t orders order-17

    Exit status: 0 all keys found, 1 a key without a record, or damage, 2 wrong usage.
    """
    from kafkalog.storage.damage import Skipped

    level = common.isolation_level(isolation_level)
    skipped: list[Skipped] | None = [] if on_damage == "skip" else None
    missing = set(keys)
    for one in common.find_partitions(dirs, topic, partitions):
        with _opened(one, store) as log:
            for key in keys:
                encoded = key.encode("utf-8", "surrogateescape")
                if history:
                    found = log.history(encoded, isolation=level, on_damage=on_damage, skipped=skipped)
                else:
                    last = log.get(encoded, isolation=level, on_damage=on_damage, skipped=skipped)
                    found = iter(() if last is None else (last,))
                for record in found:
                    missing.discard(key)
                    _print(one.topic_partition.partition, record, as_json)
    sys.stdout.flush()
    common.report_skipped(skipped or ())
    for key in sorted(missing):
        print(f"kafkalog: no record has the key {key!r}", file=sys.stderr)
    return 1 if missing or skipped else 0


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _print(partition: int, record: Record, as_json: bool) -> None:
    key, value = record.key or b"", record.value
    if as_json:
        row = {
            "partition": partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _text(key),
            "value": _text(value),
            "headers": [[name, _text(data)] for name, data in record.headers],
        }
        print(json.dumps(row))
        return
    out = sys.stdout.buffer
    sys.stdout.flush()
    out.write(b"%d\t%d\t%s\t%s\n" % (partition, record.offset, key, b"null" if value is None else value))
