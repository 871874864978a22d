"""`kafkalog backup`: create, list, verify, restore and delete backups of data directories, even while written."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from kafkalog.cli import common
from kafkalog.cli.progress import Meter

if TYPE_CHECKING:
    from kafkalog.backup.manifest import Manifest, Offsets

_LATEST = "latest"
_target = click.argument("target", type=click.Path(), metavar="TARGET")
_which = click.option("--id", "which", default=_LATEST, metavar="ID", help="Which backup. Default: the last one.")


class _Group(click.Group):
    """`kafkalog backup -d DIR TARGET` is `kafkalog backup create -d DIR TARGET`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not {"-h", "--help"} & set(args[:1]):
            args = ["create", *args]
        return super().parse_args(ctx, args)


@click.group("backup", cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Back up data directories, also while a broker writes to them: `kafkalog backup -d DIR TARGET`.

    TARGET gets a directory for each backup, in which all data directories lie as they were: every command reads them
    there. What has not changed since the last backup is linked to and not copied. docs/backup.md says what is in a
    backup, and what a restored log is like.
    """


@command.command("create")
@common.dir_option
@_target
@click.option("--full", is_flag=True, help="Copy all anew, as if there were no earlier backup.")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Delete all but the last N backups afterwards.")
@common.json_option("One JSON object with what was made.")
@common.quiet_options
def create(
    dirs: tuple[str, ...], target: str, full: bool, keep: int | None, as_json: bool, quiet: bool, verbose: int
) -> int:
    """Make a backup of the data directories in TARGET; `create` may be left out.

    Bytes are copied as they are. Damage in segments is reported, also with -q, and noted in the backup's manifest.

    Exit status: 0 made, 1 not made, or made of a log that has damage, 2 wrong usage.
    """
    from kafkalog.backup import create_backup, delete_backups
    from kafkalog.backup.damage import DAMAGED
    from kafkalog.backup.store import BackupStore
    from kafkalog.tools.verify import total_bytes

    common.set_verbosity(quiet, verbose)
    where = common.need_dirs(dirs)
    with Meter("backup", total_bytes(where) if sys.stderr.isatty() else None, quiet=quiet) as meter:
        report = create_backup(where, target, full=full, committed=committed, tell=meter.add)
    if keep is not None:
        delete_backups(target, BackupStore(target).ids()[:-keep])
    manifest = report.manifest
    damaged = [text for text in manifest.notes if text.startswith(DAMAGED)]
    for text in manifest.notes:
        if text not in damaged:
            common.note(f"kafkalog: note: {text}", quiet=quiet)
    for text in damaged:
        print(f"kafkalog: {text}; its bytes are in the backup as they are", file=sys.stderr)
    if as_json:
        sizes = {"linked": report.linked, "cloned": report.cloned, "copied": report.copied}
        print(json.dumps({**_summary(manifest), "path": report.path, **sizes}))
    else:
        print(
            f"{report.path}: {_told(manifest)}; {report.linked:,} bytes as in the last backup, "
            f"{report.cloned:,} cloned, {report.copied:,} copied"
        )
    return 1 if damaged else 0


@command.command("list")
@_target
@common.json_option("One JSON object for each backup.")
def list_(target: str, as_json: bool) -> int:
    """The backups in TARGET, oldest first.

    Exit status: 0 listed, 1 one cannot be read or there is no such directory, 2 wrong usage.
    """
    from kafkalog.backup.store import BackupStore
    from kafkalog.errors import CorruptBackup

    store = BackupStore(target)
    status = 0
    for one in store.ids():
        try:
            manifest = store.manifest(one)
        except CorruptBackup as error:
            print(f"kafkalog: {error}", file=sys.stderr)
            status = 1
        else:
            print(json.dumps(_summary(manifest)) if as_json else f"{one}  {_told(manifest)}")
    return status


@command.command("verify")
@_target
@_which
@click.option("--all", "everything", is_flag=True, help="All backups.")
@click.option("--deep", is_flag=True, help="Verify the logs in it too, down to every record.")
@common.json_option("One JSON object for each finding, and one for the report.")
@common.quiet_options
def verify(
    target: str, which: str, everything: bool, deep: bool, as_json: bool, quiet: bool, verbose: int
) -> int:
    """Compare every file of a backup with the checksum that it was stored with.

    Exit status: 0 as it was stored, 1 damaged or unreadable, 2 wrong usage.
    """
    from kafkalog.backup import verify_backup
    from kafkalog.backup.store import BackupStore

    common.set_verbosity(quiet, verbose)
    ids = BackupStore(target).ids() if everything else [which]
    status = 0
    with Meter("verify", None, quiet=quiet) as meter:
        for one in ids:
            report = verify_backup(target, one, deep=deep, tell=meter.add)
            if everything and not as_json:
                print(one)
            for line in report.json_lines() if as_json else report.lines(with_notes=not quiet):
                print(line)
            status = status if report.ok else 1
    return status


@command.command("restore")
@_target
@common.dir_option
@_which
@common.json_option("One JSON object with what was restored.")
@common.quiet_options
def restore(
    target: str, dirs: tuple[str, ...], which: str, as_json: bool, quiet: bool, verbose: int
) -> int:
    """Restore a backup of TARGET into data directories that are missing or empty: `kafkalog restore TARGET -d DIR`.

    As many directories as were backed up, in that order. Every file is compared with its checksum on the way.

    Exit status: 0 restored, 1 not restored, 2 wrong usage.
    """
    from kafkalog.backup import restore_backup

    common.set_verbosity(quiet, verbose)
    with Meter("restore", None, quiet=quiet) as meter:
        manifest = restore_backup(target, common.need_dirs(dirs), which, tell=meter.add)
    print(json.dumps(_summary(manifest)) if as_json else f"{manifest.id} restored: {_told(manifest)}")
    return 0


@command.command("delete")
@_target
@click.argument("ids", nargs=-1, metavar="ID...")
def delete(target: str, ids: tuple[str, ...]) -> int:
    """Delete backups; the others lose nothing. Without an ID only what a killed run left is swept.

    Exit status: 0 deleted, 1 there is no such backup, 2 wrong usage.
    """
    from kafkalog.backup import delete_backups

    delete_backups(target, ids)
    return 0


def _summary(manifest: Manifest) -> dict[str, Any]:
    return {
        "id": manifest.id,
        "created_ms": manifest.created_ms,
        "directories": [one.source for one in manifest.directories],
        "topics": len({one.topic for one in manifest.partitions}),
        "partitions": len(manifest.partitions),
        "files": len(manifest.files),
        "bytes": manifest.size,
        "notes": list(manifest.notes),
    }


def _told(manifest: Manifest) -> str:
    partitions = manifest.partitions
    offsets = sum(one.end_offset - one.start_offset for one in partitions)
    return (
        f"{common.plural(len({one.topic for one in partitions}), 'topic')}, "
        f"{common.plural(len(partitions), 'partition')}, {common.plural(offsets, 'offset')}, "
        f"{common.plural(len(manifest.files), 'file')}, {manifest.size:,} bytes"
    )


def committed(dirs: Sequence[str]) -> Offsets:
    """Return the committed offsets of groups, for the manifest; empty without `__consumer_offsets`."""
    from kafkalog.cli.group_rows import groups_in
    from kafkalog.tools.directories import partitions

    if not partitions(dirs, topic="__consumer_offsets"):
        return {}
    found: Offsets = {}
    for (group, topic, partition), one in groups_in(list(dirs)).committed.items():
        found.setdefault(group, {}).setdefault(topic, {})[partition] = one.offset
    return found
