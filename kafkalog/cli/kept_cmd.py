"""`kafkalog kept`: list, restore and remove records saved when recovery cut a log."""

from __future__ import annotations

import json

import click

from kafkalog.cli import common

_paths = click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="(DIR | PARTITION)...")
_entries = click.option(
    "--entry", "entries", multiple=True, metavar="NAME", help="Only what `list` shows by this name; repeats."
)


@click.group("kept", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """List, restore and remove sound records that recovery kept when it cut a log.

    When a log that was not closed cleanly is opened for writing, it is cut at its first damaged batch. Sound batches
    behind that are kept in the partition's directory, where no reader and no broker takes them for the log. See
    docs/recovery.md.
    """


@command.command("list")
@_paths
@common.topics_option
@common.json_option("One JSON object for each opening that kept something.")
def list_(paths: tuple[str, ...], topics: tuple[str, ...], as_json: bool) -> int:
    """List what was kept, with the reason.

    Exit status: 0 listed, 1 damage or a named thing absent, 2 wrong usage.
    """
    from kafkalog.tools.kept import list_kept, shown

    for one in list_kept(paths, topics=topics):
        print(json.dumps(one.as_json()) if as_json else shown(one))
    return 0


@command.command("restore")
@_paths
@click.option("--to", required=True, type=click.Path(), metavar="DIR", help="Data directory to write to.")
@common.topics_option
@_entries
@common.json_option("One JSON object for each partition.")
@common.quiet_options
def restore(
    paths: tuple[str, ...],
    to: str,
    topics: tuple[str, ...],
    entries: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    verbose: int,
) -> int:
    """Write the records that were kept to partitions of another data directory, at their offsets.

    What was kept stays where it is; `consume`, `export` and `import` take the records from there.

    Exit status: 0 restored, 1 nothing is kept, damage or a named thing absent, 2 wrong usage.
    """
    from kafkalog.tools.kept import restore_kept

    common.set_verbosity(quiet, verbose)
    done = restore_kept(paths, to, topics=topics, entries=entries)
    for one in done:
        print(json.dumps(one.as_json()) if as_json else one)
    if not done:
        common.note("kafkalog: nothing is kept there", quiet=quiet)
    return 0 if done else 1


@command.command("remove")
@_paths
@common.apply_option
@common.topics_option
@_entries
@common.json_option("One JSON object for each opening that kept something.")
@common.quiet_options
def remove(
    paths: tuple[str, ...],
    dry_run: bool,
    topics: tuple[str, ...],
    entries: tuple[str, ...],
    as_json: bool,
    quiet: bool,
    verbose: int,
) -> int:
    """Remove what was kept, for good; the logs are not touched. Nothing goes without --apply.

    Exit status: 0 fine, 1 damage or a named thing absent, 2 wrong usage.
    """
    from kafkalog.tools.kept import remove_kept, shown

    common.set_verbosity(quiet, verbose)
    found = remove_kept(paths, apply=not dry_run, topics=topics, entries=entries)
    for one in found:
        removed = {**one.as_json(), "removed": not dry_run}
        print(json.dumps(removed) if as_json else f"{'remove' if dry_run else 'removed'} {shown(one)}")
    if found and dry_run:
        common.note("nothing was changed: give --apply", quiet=quiet)
    return 0
