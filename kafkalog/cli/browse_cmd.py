"""`kafkalog browse`: a browser for the terminal."""

from __future__ import annotations

import click

from kafkalog.cli import common


@click.command("browse")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[DIR | PARTITION]...")
@common.dir_option
@common.topics_option
def command(paths: tuple[str, ...], dirs: tuple[str, ...], topics: tuple[str, ...]) -> None:
    """Browse data directories in the terminal: partitions, segments, batches, records.

    Press Enter to open an item, Left or Esc to return, q to quit. `/` searches for a key, `o` jumps to an offset, `t`
    to a time, `n` to the next record with the key. Only what is on the screen is read, so a log may have any size.
    Nothing is locked or changed, and a broker may be running.

    The browser needs Textual: pip install 'kafkalog[browse]'.

    Example: kafkalog browse -d data -t orders
    """
    from kafkalog.browse.start import browse
    from kafkalog.tools.directories import partitions_below

    browse(partitions_below(list(paths) if paths else common.need_dirs(dirs), topics))
