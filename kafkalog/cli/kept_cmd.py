"""`kafkalog kept`: list, restore and remove records saved when recovery cut a log."""

from __future__ import annotations

import json

import click

from kafkalog.cli import common

_paths = common.paths_argument()
_entries = click.option(
    "--entry", "entries", multiple=True, metavar="NAME", help="Only the entry of this name in `list`; repeatable."
)


@click.group("kept", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List, restore and remove valid records that recovery kept when it cut a log.

    When a log that was not closed cleanly is opened for writing, it is cut at its first damaged batch. Valid batches
    after the cut are kept in the partition's directory, where neither readers nor brokers treat them as part of the
    log. See docs/recovery.md.
    """


@command.command("list")
@_paths
@common.topics_option
@common.json_option("Print one JSON object for each recovery that kept records.")
def list_(paths: tuple[str, ...], topics: tuple[str, ...], as_json: bool) -> int:
    """List the kept records, with the reason for each cut.

    Example: kafkalog kept list data

    Exit status: 0 listed, 1 damage, or a named item is missing, 2 wrong usage.
    """
    from kafkalog.tools.kept import describe, list_kept

    for one in list_kept(paths, topics=topics):
        print(json.dumps(one.as_json()) if as_json else describe(one))
    return 0


@command.command("restore")
@_paths
@click.option("--to", required=True, type=click.Path(), metavar="DIR", help="Data directory to write to.")
@common.topics_option
@_entries
@common.json_option("Print one JSON object for each partition.")
@common.quiet_options
def restore(
    paths: tuple[str, ...],
    to: str,
    topics: tuple[str, ...],
    entries: tuple[str, ...],
    as_json: bool,
) -> int:
    """Write the kept records to partitions of another data directory, at their offsets.

    The kept records also stay where they are. Use `consume`, `export` and `import` to process the restored records.

    Example: kafkalog kept restore data --to rescued

    Exit status: 0 restored, 1 nothing is kept, damage, or a named item is missing, 2 wrong usage.
    """
    from kafkalog.tools.kept import restore_kept

    done = restore_kept(paths, to, topics=topics, entries=entries)
    for one in done:
        print(json.dumps(one.as_json()) if as_json else one)
    if not done:
        common.note("kafkalog: there are no kept records", always=True)
    return 0 if done else 1


@command.command("remove")
@_paths
@common.apply_option
@common.topics_option
@_entries
@common.json_option("Print one JSON object for each recovery that kept records.")
@common.quiet_options
def remove(
    paths: tuple[str, ...],
    dry_run: bool,
    topics: tuple[str, ...],
    entries: tuple[str, ...],
    as_json: bool,
) -> int:
    """Remove the kept records permanently; the logs are not changed.

    Dry run by default; --apply makes the changes.

    Example: kafkalog kept remove data -t orders --apply

    Exit status: 0 fine, 1 damage, or a named item is missing, 2 wrong usage.
    """
    from kafkalog.tools.kept import describe, remove_kept

    found = remove_kept(paths, apply=not dry_run, topics=topics, entries=entries)
    for one in found:
        removed = {**one.as_json(), "removed": not dry_run}
        print(json.dumps(removed) if as_json else f"{'remove' if dry_run else 'removed'} {describe(one)}")
    if found and dry_run:
        common.note("nothing was changed: give --apply")
    return 0
