"""`kafkalog ls`: the files of a topic's partitions."""

from __future__ import annotations

import json

import click

from kafkalog.cli import common


@click.command("ls")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[DIR | PARTITION]...")
@common.dir_option
@common.topic_option()
@common.partition_option(multiple=True)
@common.tiered_option
@common.json_option("Print one JSON object for each file.")
@common.quiet_options
def command(
    paths: tuple[str, ...],
    dirs: tuple[str, ...],
    topic: str | None,
    partitions: tuple[int, ...],
    tiered: str | None,
    as_json: bool,
) -> None:
    """List the files of a topic's partitions (of all topics without -t).

    Select partitions with -d, -t and -p, or give the paths of data directories and partition directories.

    LENGTH is the length of the file, USED the bytes that hold data, and DISK the space that the file system allocated,
    all in bytes. The index files of an active segment are created at full length (segment.index.bytes, 10 MiB) and
    truncated to their entries when the segment is closed. With --tiered the files of tiered segments are listed, too,
    as the log is read with them.

    A note on stderr describes file systems on which locks or syncs may not be reliable; -v describes every file
    system.

    Example: kafkalog ls -d data -t orders -p 0
    """
    from kafkalog.tools.listing import list_files
    from kafkalog.util.filesystems import file_system_of

    fs, found = common.select_partitions(paths, dirs, topic, partitions, tiered)
    for directory in paths or dirs:
        file_system = file_system_of(directory)
        if common.verbosity() or not file_system.is_safe:
            common.note(f"{directory}: {file_system}")
    for topic_partition, path in found:
        files = list_files(path, fs=fs)
        if as_json:
            for one in files:
                fields = {"topic": topic_partition.topic, "partition": topic_partition.partition}
                print(json.dumps({**fields, **one._asdict()}))
            continue
        print(f"{path}:")
        print(f"{'LENGTH':>14} {'USED':>14} {'DISK':>14} {'ENTRIES':>9}  NAME")
        for one in files:
            entries = "-" if one.entries is None else f"{one.entries:,}"
            print(f"{one.length:>14,} {one.used:>14,} {one.disk:>14,} {entries:>9}  {one.name}")
