"""`create_backup`: back up data directories as they are now, while others write to them.

Nothing there is locked or written. First come the segments that are no longer appended to, which take most of the time.
Then comes the end of each partition: if there is a transaction coordinator, the ends of all partitions at one moment
(log_ends.py). Group offsets come first, so that no group is ahead of the records that it reads; a controller's log
comes last, so that it knows all topics that were copied.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from kafkalog._version import version
from kafkalog.backup.copying import Tell
from kafkalog.backup.damage import damage_notes, damage_of, known_damage, logs_by_directory
from kafkalog.backup.directory import METADATA, DirectoryCopy
from kafkalog.backup.in_progress import BackupInProgress
from kafkalog.backup.log_ends import Ending, Key, one_moment
from kafkalog.backup.manifest import LACKS_GROUPS, Manifest, Offsets, StoredPartition
from kafkalog.backup.partition import Copied, PartitionCopy
from kafkalog.backup.remote.backups import RemoteBackups, located
from kafkalog.backup.remote.local_copy import DOWNLOADS, remove_local_copy
from kafkalog.backup.store import BackupStore, StoreLock
from kafkalog.errors import IllegalArgument, KafkalogError, PartitionNotFound
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.storage.remote import refuse_urls
from kafkalog.tools.directories import Path, path_list
from kafkalog.tools.verify.report import Finding
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem

COPIED_FIRST: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
MAX_DIRECTORIES: Final = 1000
STAGING: Final = ".kafkalog-backup"
"""Suffix of the directory, beside the first data directory, in which a backup for an object store is prepared."""
Committed = Callable[[Sequence[str]], Offsets]
"""Reads the committed offsets of groups from the data directories."""


class BackupReport(NamedTuple):
    """A finished backup: its manifest, its directory, and the bytes that were linked, cloned and copied."""

    manifest: Manifest
    path: str
    linked: int
    cloned: int
    copied: int


def create_backup(
    dirs: Path | Iterable[Path],
    target: Path | RemoteBackups,
    *,
    full: bool = False,
    keep: int | None = None,
    committed: Committed | None = None,
    tell: Tell | None = None,
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
) -> BackupReport:
    """Create a backup of data directories in the directory of backups `target`, which is created if missing.

    `target` may also be a URL or RemoteBackups: then the backup is prepared in a local directory, which needs space for
    its new files, and uploaded. The report's path is then the URL.

    A broker, a server or a writer may use the directories meanwhile. Files that the last backup has are not copied
    again, unless `full` is set, which also checks a store's objects and uploads damaged ones again. Damaged bytes are
    copied unchanged and noted in the manifest. With `keep`, all but the last `keep` backups are deleted afterwards,
    before another run may write there. `committed` reads the offsets of groups for the manifest; `tell` is called with
    the number of bytes as they are processed.

    A partition that is deleted meanwhile is not in the backup. PartitionNotFound for a data directory that does not
    exist, IllegalArgument for one inside the other or for a target that holds something else, DirectoryLocked while
    another backup is created there; StorageError: a full disk, or a partition that changed too fast. Earlier backups
    stay complete, whatever happens.

    >>> made = create_backup("data", "backups")    # `log` in it may be written to
    >>> [(one.topic, one.end_offset) for one in made.manifest.partitions]
    [('orders', 2)]
    """
    if keep is not None and keep < 1:
        raise IllegalArgument(f"keep is {keep}", hint="keep at least the new one")
    given = path_list(dirs)
    refuse_urls(*given)
    paths = [os.path.realpath(one) for one in given]
    remote = located(target)
    if not isinstance(remote, RemoteBackups):
        check_places(paths, os.path.realpath(remote))
        return _create(paths, os.fspath(remote), full, committed, tell, fs, clock, keep=keep)
    staging = remote.staging_for((paths or [""])[0] + STAGING)
    for place in filter(None, (staging, remote.objects.local_path)):
        check_places(paths, place)
    if keep is not None:
        remote.check_can_delete()
    remote.objects.create()
    with remote.objects.leased("a backup"):
        remote.check_recipients()
        with remote.local_copy(staging, fs) as local:
            for left in local.prepared():
                local.upload(left, tell)
            stored = remote.objects.sums()
            report = _create(paths, local.path, full, committed, tell, fs, clock, stored)
            local.upload(report.manifest.id, tell, heal=full)
        if keep is not None:
            remote.delete_leased(remote.ids()[:-keep])
    return report._replace(path=remote.url)


def _create(
    paths: Sequence[str],
    target: str,
    full: bool,
    committed: Committed | None,
    tell: Tell | None,
    fs: FileSystem,
    clock: Clock,
    elsewhere: Collection[str] = (),
    keep: int | None = None,
) -> BackupReport:
    with StoreLock(target, create=True, fs=fs) as store:
        known = {} if full else store.known()
        now_ms = clock.milliseconds()
        with BackupInProgress(store, known, now_ms, fs=fs, tell=tell, elsewhere=elsewhere) as backup:
            run = BackupRun(backup, paths, fs, clock, earlier=None if full else store.newest())
            manifest = run.run(clock.milliseconds(), committed)
            backup.commit(manifest)
        for one in store.ids()[:-keep] if keep is not None else ():
            store.delete(one)
        store.sweep()
    for number in sorted({one.directory for one in manifest.partitions}):  # without any, a restore may be in progress
        remove_local_copy(paths[number] + DOWNLOADS, fs)  # the restore of this directory was killed at its end
    path = os.path.join(store.path, backup.id)
    return BackupReport(manifest, path, backup.linked, backup.copier.cloned, backup.copier.copied)


def delete_backups(target: Path | RemoteBackups, ids: Iterable[str], *, fs: FileSystem = OS) -> None:
    """Delete backups by their ids, and leftovers of killed backups. PartitionNotFound, DirectoryLocked, StorageError.

    >>> made = create_backup("data", "backups")    # of `log`
    >>> delete_backups("backups", [made.manifest.id])
    >>> list_backups("backups")
    []
    """
    found = located(target)
    if isinstance(found, RemoteBackups):
        found.delete(ids)
        return
    with StoreLock(found, fs=fs) as store:
        requested = list(ids)
        for one in requested:
            store.find(one)
        for one in requested:
            store.delete(one)
        store.sweep()


def list_backups(target: Path | RemoteBackups, *, fs: FileSystem = OS) -> list[Manifest]:
    """Return the manifests of the backups, oldest first. CorruptBackup, PartitionNotFound, StorageError.

    A backup that is deleted meanwhile is left out.

    >>> made = create_backup("data", "backups")    # of `log`
    >>> list_backups("backups") == [made.manifest]
    True
    """
    store = backups_of(target, fs)
    found: list[Manifest] = []
    for one in store.ids():
        with suppress(PartitionNotFound):
            found.append(store.manifest(one))
    return found


def backups_of(target: Path | RemoteBackups, fs: FileSystem = OS) -> BackupStore | RemoteBackups:
    """Return the backups in a directory or in an object store, to find and to describe them."""
    found = located(target)
    return found if isinstance(found, RemoteBackups) else BackupStore(found, fs=fs)


def check_places(paths: Sequence[str], target: str) -> None:
    """Raise IllegalArgument if one of these directories lies in the target, or the target in one."""
    if not paths:
        raise IllegalArgument("no data directory is given")
    if len(set(paths)) < len(paths):
        raise IllegalArgument("a data directory is given twice")
    if len(paths) > MAX_DIRECTORIES:
        raise IllegalArgument(f"{len(paths)} data directories are given", hint=f"give at most {MAX_DIRECTORIES}")
    for path in paths:
        for inner, outer in ((target, path), (path, target)):
            if inner == outer or inner.startswith(os.path.join(outer, "")):
                raise IllegalArgument(
                    f"the target and the data directory {path} overlap", path=target,
                    hint="choose a target outside it, preferably on another disk",
                )  # fmt: skip


class BackupRun:
    """One run of a backup: its directories and partitions. Afterwards `damage` lists the damage in copied segments.

    `earlier` is the manifest of the backup whose files may be linked to.
    """

    def __init__(
        self,
        backup: BackupInProgress,
        paths: Sequence[str],
        fs: FileSystem,
        clock: Clock,
        topics: frozenset[str] | None = None,
        earlier: Manifest | None = None,
    ) -> None:
        self.damage: list[Finding] = []
        self._earlier = earlier
        self._backup = backup
        self._fs = fs
        self._clock = clock
        self._directories = [
            DirectoryCopy(backup, path, f"dir{number}", fs, topics) for number, path in enumerate(paths)
        ]
        self._copied: list[dict[TopicPartition, Copied]] = [{} for _ in paths]
        self._notes: list[str] = []

    def run(self, now_ms: int, committed: Committed | None) -> Manifest:
        found = [(number, *one) for number, each in enumerate(self._directories) for one in each.begin()]
        copies = {(number, key): self._copy(number, key, path) for number, key, path in found}
        for copy in copies.values():
            try:
                copy.copy_whole_segments()
            except PartitionNotFound:
                continue  # `finish` handles it
        ordered = sorted(copies, key=_copy_order)
        endings = self._endings({one: copies[one].path for one in ordered if one[1] != METADATA})
        for number, key in ordered:
            self._finish(number, key, copies[number, key], endings.get((number, key)))
        stored = [each.finish(done) for each, done in zip(self._directories, self._copied, strict=True)]
        self._check_damage({one.name for one in stored if one.is_clean})
        partitions = self._partitions()
        places = [self._backup.path_of(one.name) for one in self._directories]
        groups = self._groups(committed, places)
        topics = self._topics(places, partitions)
        notes = [*self._notes, *(note for one in self._directories for note in one.notes)]
        return Manifest(
            self._backup.id, now_ms, f"kafkalog {version}", tuple(stored), partitions, topics, groups,
            tuple(notes), self._backup.files,
        )  # fmt: skip

    def _copy(self, number: int, key: TopicPartition, path: str) -> PartitionCopy:
        directory = self._directories[number]
        name = f"{directory.name}/{key}"
        return PartitionCopy(
            self._backup, path, name, is_closed=directory.is_closed, fs=self._fs, clock=self._clock
        )  # fmt: skip

    def _endings(self, paths: Mapping[Key, str]) -> Mapping[Key, Ending]:
        found = one_moment(paths, self._fs, self._clock)
        if found is None:
            self._notes.append("transactions kept starting: the coordinator's copy may not know some of the open ones")
        return found or {}

    def _finish(self, number: int, key: TopicPartition, copy: PartitionCopy, ending: Ending | None = None) -> None:
        try:
            copied = copy.finish(ending)
        except PartitionNotFound:
            self._backup.drop_directory(copy.name)
            moved = self._find_moved(number, key)
            if moved is None:
                self._notes.append(f"{copy.path}: skipped, because it was deleted during the backup")
            else:
                self._finish(moved, key, self._copy(moved, key, os.path.join(self._directories[moved].path, str(key))))
            return
        self._copied[number][key] = copied
        self._notes += copied.notes

    def _check_damage(self, clean: Collection[str]) -> None:
        for name, logs in logs_by_directory(self._backup.files):
            directory, _, partition = name.partition("/")
            source = next(one.path for one in self._directories if one.name == directory)
            path = os.path.join(source, partition)
            found = damage_of(self._backup, name, logs, path, self._fs, is_clean=directory in clean)
            self.damage += found
            self._notes += damage_notes(name, found)
        damaged = {os.path.dirname(one.path) for one in self.damage}  # a copy's end is before its damage
        for copied in self._directories:
            lost = [one for one in copied.lost_ends if one.path not in damaged]
            self.damage += lost
            self._notes += damage_notes(copied.name, lost)
        self._notes += known_damage(self._backup, self._earlier)

    def _find_moved(self, number: int, key: TopicPartition) -> int | None:
        """Return the number of the data directory that a partition was moved to; None if it was not."""
        for other, directory in enumerate(self._directories):
            if other != number and key not in self._copied[other]:
                if os.path.isdir(os.path.join(directory.path, str(key))):
                    return other
        return None

    def _partitions(self) -> tuple[StoredPartition, ...]:
        found = []
        for number, (directory, done) in enumerate(zip(self._directories, self._copied, strict=True)):
            for key, copied in done.items():
                if key != METADATA:
                    found.append(directory.describe(key, number, copied))
        return tuple(sorted(found))

    def _groups(self, committed: Committed | None, places: Sequence[str]) -> Offsets:
        """Read group offsets from the copies, so that the manifest describes the backup."""
        try:
            return {} if committed is None else committed(places)
        except KafkalogError as error:
            self._notes.append(f"{LACKS_GROUPS}{error}")
            return {}

    def _topics(
        self, places: Sequence[str], partitions: Sequence[StoredPartition]
    ) -> Mapping[str, Mapping[str, str]]:
        try:
            known = read_known_topics(places, fs=self._fs)
        except KafkalogError as error:
            self._notes.append(f"the manifest lacks topic settings: {error}")
            return {}
        names = sorted({one.topic for one in partitions})
        return {name: dict(settings) for name in names if (settings := known.settings_of(name)) is not None}


def _copy_order(one: Key) -> tuple[int, TopicPartition]:
    key = one[1]
    return (0 if key.topic in COPIED_FIRST else 2 if key == METADATA else 1), key
