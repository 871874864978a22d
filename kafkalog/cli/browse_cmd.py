"""`kafkalog browse`: a browser for the terminal."""

from __future__ import annotations

import click

from kafkalog.cli import common


@click.command("browse")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[DIR | PARTITION]...")
@common.dir_option
@common.topics_option
def command(paths: tuple[str, ...], dirs: tuple[str, ...], topics: tuple[str, ...]) -> None:
    """Look through data directories in the terminal: partitions, segments, batches, records.

    Enter goes in, Left or Esc out, q ends it. `/` looks for a key, `o` goes to an offset, `t` to a time, `n` to the
    next record with the key. Only what is on the screen is read, so a log may be of any size. Nothing is locked or
    changed, and a broker may run meanwhile.

    It is drawn by Textual: pip install 'kafkalog[browse]'.
    """
    from kafkalog.browse.start import browse
    from kafkalog.tools.directories import partitions_below

    browse(partitions_below(list(paths) if paths else common.need_dirs(dirs), topics))
