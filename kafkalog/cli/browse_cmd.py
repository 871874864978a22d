"""`kafkalog browse`: a browser for the terminal."""

from __future__ import annotations

from functools import partial

import click

from kafkalog.cli import common
from kafkalog.cli.decoder_options import ROW_DECODERS, schema_given, schema_options, serdes_option, typed_keywords
from kafkalog.cli.keys_cmd import store_option


@click.command("browse")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[DIR | PARTITION]...")
@common.dir_option
@common.topics_option
@serdes_option(
    f"Show decoded keys and values, as trees: key=NAME, value=NAME, or NAME for both; NAME is {ROW_DECODERS}."
)
@schema_options
@store_option
@common.tiered_option
def command(
    paths: tuple[str, ...],
    dirs: tuple[str, ...],
    topics: tuple[str, ...],
    serdes: tuple[str, ...],
    schemas: str | None,
    schema: str | None,
    message: str | None,
    store: str | None,
    tiered: str | None,
) -> None:
    """Browse data directories in the terminal: partitions, segments, batches, records.

    Press Enter to open an item, Left or Esc to return, ? for all keys, q to quit. `/` searches for a key or by a
    condition, `f` lists only the records that match, `[` and `]` go to the previous and next record with the key of the
    selected one. Only what is on the screen is read, so a log may have any size. Nothing is locked or changed, and a
    broker may be running.

    The browser needs Textual: pip install 'kafkalog[browse]'.

    Example: kafkalog browse -d data -t orders -s value=json
    """
    from kafkalog.browse.start import BrowseOptions, browse
    from kafkalog.tools.consume.decoded import parse_serdes
    from kafkalog.tools.directories import partitions_below

    select = None
    if typed := typed_keywords(serdes, schemas, schema, message):
        from kafkalog.log.typed_keywords import select_matching

        select = partial(select_matching, typed)
    with common.usage_of("-s"):
        options = BrowseOptions(parse_serdes(serdes, schemas, schema_given(schema), message), store, select)
    fs, where = common.locate_dirs(list(paths) if paths else common.need_dirs(dirs), tiered)
    browse(partitions_below(where, topics, fs), fs, options)
