"""`kafkalog dump`: segment files as the reference's dump tool prints them."""

from __future__ import annotations

import os
import sys

import click

_LATER = ("--offsets-decoder", "--transaction-log-decoder", "--cluster-metadata-decoder", "-J")


def _paths(arguments: tuple[str, ...], listed: tuple[str, ...]) -> list[str]:
    """The files named, in order: --files takes names with commas between, a directory stands for its files."""
    from kafkalog.cli.common import note
    from kafkalog.storage.view_listing import no_segments
    from kafkalog.tools.dump import files_of
    from kafkalog.util.fileio import OS

    given = [name for names in listed for name in names.split(",") if name] + list(arguments)
    if not given:
        raise click.UsageError("no file: name .log, .index or .timeindex files, or a partition directory")
    paths: list[str] = []
    for name in given:
        if not os.path.isdir(name):
            paths.append(name)
            continue
        dumped, left_out = files_of(name)
        if not dumped and not left_out:
            raise no_segments(OS, name)
        paths += dumped
        for path in left_out:
            note(f"{path} is left out: {os.path.splitext(path)[1]} files cannot be dumped yet")
    return paths


@click.command("dump")
@click.argument("files", nargs=-1, type=click.Path(), metavar="[FILE | DIRECTORY]...")
@click.option("--files", "listed", multiple=True, metavar="F1,F2,...", help="Files, with commas between.")
@click.option("--deep-iteration", is_flag=True, help="Print the records of each batch too.")
@click.option("--print-data-log", is_flag=True, help="Print the records with keys and values.")
@click.option("--skip-record-metadata", is_flag=True, help="Of a record, print key and value only.")
@click.option("--index-sanity-check", is_flag=True, help="Check indexes alone, without the log.")
@click.option("--verify-index-only", is_flag=True, help="Compare indexes with the log (not in this version).")
@click.option("--max-bytes", type=int, metavar="N", help="Read no more than the first N bytes of a .log file.")
@click.option("--offsets-decoder", "later", flag_value=_LATER[0], hidden=True)
@click.option("--transaction-log-decoder", "later", flag_value=_LATER[1], hidden=True)
@click.option("--cluster-metadata-decoder", "later", flag_value=_LATER[2], hidden=True)
@click.option("-J", "later", flag_value=_LATER[3], hidden=True)
def command(
    files: tuple[str, ...],
    listed: tuple[str, ...],
    deep_iteration: bool,
    print_data_log: bool,
    skip_record_metadata: bool,
    index_sanity_check: bool,
    verify_index_only: bool,
    max_bytes: int | None,
    later: str | None,
) -> None:
    """Print .log, .index and .timeindex files in the text of the reference's dump tool.

    A partition directory stands for all of its files. Files are opened for reading only.
    """
    if later is not None:
        raise click.UsageError(f"{later} is not in this version")
    from kafkalog.tools.dump import DumpOptions, dump_files

    options = DumpOptions(
        deep_iteration=deep_iteration,
        print_data_log=print_data_log,
        skip_record_metadata=skip_record_metadata,
        verify_index_only=verify_index_only,
        index_sanity_check=index_sanity_check,
        max_bytes=max_bytes,
    )
    try:
        dump_files(_paths(files, listed), sys.stdout.buffer, options, err=sys.stderr.buffer)
    finally:
        sys.stdout.buffer.flush()


dump = command
