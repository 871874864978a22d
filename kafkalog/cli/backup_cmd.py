"""`kafkalog backup`: create, list, verify, restore and delete backups of data directories, even while written."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import click

from kafkalog.cli import backup_options, common
from kafkalog.cli.progress import Meter

if TYPE_CHECKING:
    from kafkalog.backup.manifest import Manifest

_LATEST = "latest"
_target_argument = click.argument("target", type=click.Path(), metavar="TARGET")
_id_option = click.option("--id", "which", default=_LATEST, metavar="ID", help="Backup to use. Default: the last one.")
_staging_option = click.option(
    "--staging", type=click.Path(), metavar="DIR",
    help="With a URL: prepare the files in this directory. Default: one beside the first data directory.",
)  # fmt: skip


class _Group(click.Group):
    """`kafkalog backup -d DIR TARGET` is `kafkalog backup create -d DIR TARGET`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and not {"-h", "--help"} & set(args[:1]):
            args = ["create", *args]
        return super().parse_args(ctx, args)


@click.group("backup", cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Back up data directories, even while a broker writes to them: `kafkalog backup -d DIR TARGET`.

    TARGET gets one directory for each backup. It holds all data directories as they were, and every command can read
    them there. Files that have not changed since the last backup are linked, not copied. If TARGET is a URL
    (s3://BUCKET/PATH), the backups are kept in that object store, encrypted on request. docs/backup.md describes the
    contents of a backup and of a restored log.
    """


@command.command("create")
@common.dir_option
@_target_argument
@click.option("--full", is_flag=True, help="Copy all files, as if there were no earlier backup.")
@click.option("--keep", type=click.IntRange(1), metavar="N", help="Afterwards, delete all but the last N backups.")
@backup_options.recipient_option
@backup_options.identity_option
@_staging_option
@common.json_option("Print one JSON object for the backup.")
@common.quiet_options
def create(
    dirs: tuple[str, ...], target: str, full: bool, keep: int | None, recipients: tuple[str, ...],
    identities: tuple[str, ...], staging: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Back up the data directories to TARGET; the word `create` is optional.

    Bytes are copied unchanged. Damage in segments is reported, even with -q, and recorded in the backup's manifest.

    Example: kafkalog backup create -d data /backups/kafka --keep 7

    Example: kafkalog backup create -d data s3://bucket/kafka --recipient age1...

    Exit status: 0 created, 1 not created, or created from a log that has damage, 2 wrong usage.
    """
    from kafkalog.backup import create_backup
    from kafkalog.backup.damage import DAMAGED
    from kafkalog.server.groups.stored import whole_offsets
    from kafkalog.tools.verify.directories import total_bytes

    where = common.need_dirs(dirs)
    if keep is not None and recipients and not identities:
        raise click.UsageError("--keep reads the encrypted manifests of other backups: give --identity FILE as well")
    backups = backup_options.backups_at(target, recipients, identities, staging)
    total = total_bytes(where) if sys.stderr.isatty() and isinstance(backups, str) else None
    with Meter("backup", total) as meter:
        report = create_backup(where, backups, full=full, keep=keep, committed=whole_offsets, tell=meter.add)
    manifest = report.manifest
    damaged = [text for text in manifest.notes if text.startswith(DAMAGED)]
    for text in manifest.notes:
        if text not in damaged:
            common.note(f"kafkalog: note: {text}")
    for text in damaged:
        print(f"kafkalog: {text}; the backup has its bytes unchanged", file=sys.stderr)
    if as_json:
        sizes = {"linked": report.linked, "cloned": report.cloned, "copied": report.copied}
        print(json.dumps({**_summary(manifest), "path": report.path, **sizes}))
    else:
        print(
            f"{report.path}: {_describe(manifest)}; {report.linked:,} bytes linked to the last backup, "
            f"{report.cloned:,} cloned, {report.copied:,} copied"
        )
    return 1 if damaged else 0


@command.command("list")
@_target_argument
@backup_options.identity_option
@common.json_option("Print one JSON object for each backup.")
def list_(target: str, identities: tuple[str, ...], as_json: bool) -> int:
    """List the backups in TARGET, oldest first.

    One that is deleted meanwhile is named, and is no error.

    Example: kafkalog backup list /backups/kafka

    Exit status: 0 listed, 1 a backup cannot be read or the directory is missing, 2 wrong usage.
    """
    from kafkalog.backup.create import backups_of
    from kafkalog.errors import CorruptBackup, PartitionNotFound

    store = backups_of(backup_options.backups_at(target, identities=identities))
    status = 0
    for one in store.ids():
        try:
            manifest = store.manifest(one)
        except CorruptBackup as error:
            print(f"kafkalog: {error}", file=sys.stderr)
            status = 1
        except PartitionNotFound:
            _tell_deleted(one)
        else:
            print(json.dumps(_summary(manifest)) if as_json else f"{one}  {_describe(manifest)}")
    return status


@command.command("verify")
@_target_argument
@_id_option
@click.option("--all", "everything", is_flag=True, help="Verify all backups.")
@click.option("--deep", is_flag=True, help="Also verify the logs in the backup, including every record.")
@backup_options.identity_option
@common.json_option("Print one JSON object for each finding, and one for the report.")
@common.quiet_options
def verify(
    target: str, which: str, everything: bool, deep: bool, identities: tuple[str, ...], as_json: bool,
) -> int:  # fmt: skip
    """Compare every file of a backup with its stored checksum.

    With --all, a backup that is deleted meanwhile is named, and is no error.

    Example: kafkalog backup verify /backups/kafka --all --deep

    Exit status: 0 unchanged, 1 damaged or unreadable, 2 wrong usage.
    """
    from kafkalog.backup import verify_backup
    from kafkalog.backup.create import backups_of
    from kafkalog.errors import PartitionNotFound

    backups = backup_options.backups_at(target, identities=identities)
    ids = backups_of(backups).ids() if everything else [which]
    status = 0
    with Meter("verify", None) as meter:
        for one in ids:
            try:
                report = verify_backup(backups, one, deep=deep, tell=meter.add)
            except PartitionNotFound:
                if not everything:
                    raise
                _tell_deleted(one)
                continue
            if everything and not as_json:
                print(one)
            for line in report.json_lines() if as_json else report.lines(with_notes=not common.is_quiet()):
                print(line)
            status = status if report.ok else 1
    return status


@command.command("restore")
@click.argument("target", type=click.Path(), metavar="[TARGET]", required=False)
@common.dir_option
@_id_option
@click.option("--at", metavar="TIME", help="Restore each partition as it was then: ISO-8601, or ms since 1970.")
@click.option(
    "--by", type=click.Choice(["append", "time"]), default="append", show_default=True,
    help="With --at: keep what lies before the first later record, or all records that are not later.",
)  # fmt: skip
@click.option(
    "--from", "sources", multiple=True, type=click.Path(), metavar="DIR",
    help="With --at: restore from this data directory, which may be in use, and not from a TARGET; repeatable.",
)
@backup_options.identity_option
@_staging_option
@common.json_option("Print one JSON object for the restored backup.")
@common.quiet_options
def restore(
    target: str | None, dirs: tuple[str, ...], which: str, at: str | None, by: str, sources: tuple[str, ...],
    identities: tuple[str, ...], staging: str | None, as_json: bool,
) -> int:  # fmt: skip
    """Restore a backup of TARGET into missing or empty data directories.

    Give as many directories as were backed up, in the same order. Every file is compared with its checksum while it is
    copied. `kafkalog restore` and `kafkalog backup restore` are the same command.

    With --at, records after TIME are left out, transactions that were not decided then are aborted, and groups have
    their offsets at that time. The first backup made at or after TIME is used. Notes say what differs from that.

    Example: kafkalog restore /backups/kafka -d data

    Example: kafkalog backup restore /backups/kafka -d data

    Example: kafkalog restore /backups/kafka --at 2026-11-01T12:00Z -d data

    Example: kafkalog restore --from data --at 2026-11-01T12:00Z -d data-of-then

    Exit status: 0 restored, 1 not restored, 2 wrong usage.
    """
    from kafkalog.backup import restore_backup, restore_directories

    where = common.need_dirs(dirs)
    if (target is None) == (not sources):
        raise click.UsageError("Give either TARGET, a directory of backups, or --from DIR.")
    if sources and at is None:
        raise click.UsageError("--from needs --at TIME; to copy a directory as it is now, use `kafkalog backup`.")
    if sources and which != _LATEST:
        raise click.UsageError("--id names a backup of TARGET; --from has none.")
    if by == "time" and at is None:
        raise click.UsageError("--by needs --at TIME.")
    if sources and (identities or staging is not None):
        raise click.UsageError("--identity and --staging need TARGET, the URL of an object store.")
    at_ms = None if at is None else common.parse_time(at, "--at")
    with Meter("restore", None) as meter:
        if target is None:
            manifest = restore_directories(sources, where, at=at_ms or 0, by=by, tell=meter.add)
        else:
            backups = backup_options.backups_at(target, identities=identities, staging=staging)
            manifest = restore_backup(backups, where, which, at=at_ms, by=by, tell=meter.add)
    if at_ms is not None:
        for text in manifest.notes:
            common.note(f"kafkalog: note: {text}")
    if as_json:
        print(json.dumps(_summary(manifest)))
    else:
        print(f"{manifest.id} restored: {_describe(manifest)}" if at_ms is None else _describe_moment(manifest, at_ms))
    return 0


@command.command("delete")
@_target_argument
@click.argument("ids", nargs=-1, metavar="ID...")
@backup_options.identity_option
def delete(target: str, ids: tuple[str, ...], identities: tuple[str, ...]) -> int:
    """Delete backups; the other backups stay complete.

    Without an ID, only the leftovers of killed runs are removed.

    Example: kafkalog backup delete /backups/kafka 20260131T120000Z

    Exit status: 0 deleted, 1 a backup is missing, 2 wrong usage.
    """
    from kafkalog.backup import delete_backups

    delete_backups(backup_options.backups_at(target, identities=identities), ids)
    return 0


def _tell_deleted(which: str) -> None:
    print(f"kafkalog: note: the backup {which} was deleted meanwhile", file=sys.stderr)


def _summary(manifest: Manifest) -> dict[str, object]:
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


def _describe(manifest: Manifest) -> str:
    return f"{_scope(manifest)}, {common.plural(len(manifest.files), 'file')}, {manifest.size:,} bytes"


def _describe_moment(manifest: Manifest, at_ms: int) -> str:
    from kafkalog.util.times import time_text

    return f"{manifest.id} restored as of {time_text(at_ms)}: {_scope(manifest)}"


def _scope(manifest: Manifest) -> str:
    partitions = manifest.partitions
    topics = common.plural(len({one.topic for one in partitions}), "topic")
    offsets = common.plural(sum(one.end_offset - one.start_offset for one in partitions), "offset")
    return f"{topics}, {common.plural(len(partitions), 'partition')}, {offsets}"
