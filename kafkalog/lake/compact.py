"""`compact_table`: rewrite the small files of a sync's table as fewer ones, with the same rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import IllegalArgument
from kafkalog.lake.appends import FILES_PER_COMMIT
from kafkalog.lake.failures import TableChanged
from kafkalog.lake.files import FILE_BYTES, LEAST_FILE_BYTES, TableFiles
from kafkalog.lake.sync import MOST_CONFLICTS, OWN, pause
from kafkalog.lake.table import CommitConflict, LiveFile
from kafkalog.lake.targets import open_table, parse_target

if TYPE_CHECKING:
    from kafkalog.lake.table import LakeTable

_LOG: Final = logging.getLogger(__name__)
_LARGE: Final = 0.75
"""Share of the target size from which on a file is left unchanged."""


class CompactCommit(NamedTuple):
    """One commit: the number and bytes of the replaced files and of the new ones, and the new snapshot."""

    removed: int
    removed_bytes: int
    files: int
    bytes: int
    snapshot: str


def compact_table(
    target: str, *, options: Mapping[str, str] | None = None, target_file_bytes: int = FILE_BYTES
) -> list[CompactCommit]:
    """Rewrite the small files of a sync's table as files of about `target_file_bytes`, and return the commits.

    Files of different partitions are not merged. Rows and positions do not change: syncs continue, also one that runs
    at the same time, and a load of the table into a topic skips these commits. Old files stay for readers of older
    snapshots. After a crash or any error, the finished commits remain in effect.

    Raises IllegalArgument for a table that is missing or that something else made, IllegalState for one with delete
    files or deletion vectors, TableChanged if other writers were always faster; StorageError, MissingPackage.

    >>> from kafkalog.lake.sync import sync_topic
    >>> for text in (b"one", b"two"):
    ...     offset = log.append(text); log.flush(); _ = sync_topic("data", "orders", "delta:orders-table")
    >>> commit, = compact_table("delta:orders-table")
    >>> commit.removed, commit.files, compact_table("delta:orders-table")
    (2, 1, [])
    """
    if target_file_bytes < LEAST_FILE_BYTES:
        raise IllegalArgument(
            f"file size {target_file_bytes} is too small", hint=f"give at least {LEAST_FILE_BYTES} bytes"
        )
    table = open_table(parse_target(target, options or {}), "")
    _load(table)
    done: list[CompactCommit] = []
    kept: set[object] = set()
    conflicts = 0
    while True:
        groups = plan_groups(table.live_files(), target_file_bytes)
        group = next((one for one in groups if one[0].partition not in kept), None)
        if group is None:
            return done
        try:
            commit = _rewrite(table, group, target_file_bytes)
            if commit is None:
                kept.add(group[0].partition)
            else:
                done.append(commit)
            conflicts = 0
        except CommitConflict as error:
            conflicts += 1
            if conflicts == MOST_CONFLICTS:
                raise TableChanged(
                    f"other writers committed {conflicts} times before the files could be replaced: {error}",
                    path=table.name, hint="run the command again, or at another time",
                ) from None  # fmt: skip
            _LOG.info("%s: another writer committed, trying again: %s", table.name, error)
            pause(conflicts)
            _load(table)


def _load(table: LakeTable) -> None:
    if not table.load():
        raise IllegalArgument("there is no such table", path=table.name, hint="check its name")
    if OWN not in table.properties:
        raise IllegalArgument(
            "the table was not made by a sync", path=table.name, hint="compact it with the engine that made it"
        )


def plan_groups(files: Sequence[LiveFile], file_bytes: int) -> Iterator[list[LiveFile]]:
    """Yield the small files of a partition that become fewer ones, in pieces for a commit each.

    >>> files = [LiveFile(f"{n}", None, size, ("DE",)) for n, size in enumerate((10, 90, 20, 30))]
    >>> [[one.path for one in group] for group in plan_groups(files, 100)]
    [['0', '2', '3']]
    """
    by_partition: dict[object, list[LiveFile]] = {}
    for one in sorted(files, key=lambda one: one.path):
        if one.size < _LARGE * file_bytes:
            by_partition.setdefault(one.partition, []).append(one)
    for small in by_partition.values():
        group: list[LiveFile] = []
        for one in small:
            if group and sum(each.size for each in group) + one.size > FILES_PER_COMMIT * file_bytes:
                yield group
                group = []
            group.append(one)
        if len(group) > 1:
            yield group


def _rewrite(table: LakeTable, group: Sequence[LiveFile], file_bytes: int) -> CompactCommit | None:
    """Replace the files in one commit; return None without a change if they would not become fewer."""
    files = TableFiles(table.writer, file_bytes)
    try:
        for live in group:
            for batch in table.read_file(live):
                files.add(batch)
        files.close()
        written = list(files.finished)
        if len(written) >= len(group):
            return None
        _commit(table, files, group)
    finally:
        files.abandon()
    old, new = (sum(one.size for one in part) for part in (group, written))
    _LOG.info("%s: snapshot %s, %d files in place of %d", table.name, table.snapshot, len(written), len(group))
    return CompactCommit(len(group), old, len(written), new, table.snapshot)


def _commit(table: LakeTable, files: TableFiles, group: Sequence[LiveFile]) -> None:
    """Replace the group by the finished files; keep those that the commit has, or may have.

    A store that repeats a request after a lost answer finds its own commit and reports it as a conflict.
    """
    written = {one.path for one in files.finished}
    try:
        table.commit(files.finished, group, None)
    except CommitConflict as error:
        try:
            live = {one.path for one in table.live_files()} if table.load() else set[str]()
        except BaseException:
            files.take()
            raise
        if written & live:
            files.take()
        if not written <= live:
            raise CommitConflict(str(error)) from None
    except BaseException:
        files.take()
        raise
    files.take()
