"""`restore_backup`: restore the data directories of a backup, byte by byte, into empty places.

All files are first copied into the place's directory `kafkalog-restore.partial` and synced; then its entries are
renamed to their final names. A broker and kafkalog refuse a data directory with an entry of that name, so an
incomplete restore is never used as a log. A restore repeated after a kill continues the renames or starts over: a file
there, in the end beside the directory, names the backup.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from typing import Final

from kafkalog.backup.copies import Copies
from kafkalog.backup.copying import Copier, Tell, one_at_a_time, run_together, sum_of, sync_files
from kafkalog.backup.create import check_places, create_backup
from kafkalog.backup.directory import CHECKPOINTS
from kafkalog.backup.manifest import SET_ASIDE, Manifest, StoredDirectory, StoredFile, encode_manifest, read_manifest
from kafkalog.backup.remote.backups import RemoteBackups, located
from kafkalog.backup.remote.local_copy import DOWNLOADS, LocalCopy, remove_local_copy
from kafkalog.backup.restore_at.directories import Rewind
from kafkalog.backup.restore_at.plan import Moment
from kafkalog.backup.store import LATEST, BackupStore
from kafkalog.errors import CorruptBackup, DirectoryLocked, IllegalArgument, KafkalogError, StorageError
from kafkalog.manager.log_dir import LogDir
from kafkalog.storage.names import LOCK_FILE, META_PROPERTIES, RESTORE_STAGING
from kafkalog.storage.remote import refuse_urls
from kafkalog.tools.directories import Path, path_list
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS, FileSystem, atomic_write, make_directories
from kafkalog.util.os_errors import os_errors, walk
from kafkalog.util.times import Time, time_text

STAGING: Final = RESTORE_STAGING
READY: Final = "kafkalog-restore.ready"
"""Name of the file that records which directory of which backup is staged completely and on disk."""
_CHECKPOINTS: Final = frozenset(CHECKPOINTS)
"""Files that cutting a log may add."""
_MAX_RECORD_BYTES: Final = 1 << 10
_HINT: Final = "`kafkalog backup verify` reports all damage; restore another backup"


def restore_backup(
    target: Path | RemoteBackups,
    dirs: Path | Iterable[Path],
    which: str = LATEST,
    *,
    at: Time | None = None,
    by: str = "append",
    tell: Tell | None = None,
    fs: FileSystem = OS,
) -> Manifest:
    """Restore the data directories of a backup into `dirs`, one for each, which are missing or empty.

    With `at` (a datetime, ISO-8601 text or ms since 1970) each partition is restored as it was at that moment: up to
    its first later record with `by` "append", without all later records with "time". Transactions that were not
    decided then are aborted, and groups have their offsets at that time. The default backup is the first one made at or
    after the moment. The manifest returned then describes what was restored, with notes (docs/backup.md).

    If `target` is a URL or RemoteBackups, the backup is first downloaded to a directory beside the first of `dirs`,
    which needs space for a second copy.

    Every file is compared with its checksum while it is copied. Files are independent copies, or share blocks with the
    backup if the file system supports that: later writes to them do not reach the backup.

    CorruptBackup, with the file, if one differs from what was stored: then nothing is restored. IllegalArgument for a
    directory that is not empty, a wrong number of them, or a moment outside of the backups; CorruptRecord for damage
    where a log is cut; DirectoryLocked, PartitionNotFound, StorageError.

    >>> made = kafkalog.backup.create_backup("data", "backups")    # of `log`
    >>> restored = restore_backup("backups", "elsewhere")
    >>> with kafkalog.open("elsewhere/orders-0") as copy:
    ...     [record.value for record in copy]
    [b'first', b'second']
    >>> restore_backup("backups", "as-it-was", at=made.manifest.created_ms).partitions[0].end_offset
    2
    """
    if at is None and by != "append":
        raise IllegalArgument(f"by is {by!r}, but there is no moment", hint="give `at` as well")
    moment = None if at is None else Moment.of(at, by)
    remote = located(target)
    given = path_list(dirs)
    refuse_urls(*given)
    places = [os.path.realpath(one) for one in given]
    if not isinstance(remote, RemoteBackups):
        restored = _restore_local(os.fspath(remote), given, which, moment, tell, fs)
        remove_local_copy(places[0] + DOWNLOADS, fs)  # of a restore from a store that was killed
        return restored
    if not places:
        raise IllegalArgument("no directory to restore into is given")
    staging = remote.staging_for(places[0] + DOWNLOADS)
    check_places(places, staging)
    found = remote.find(which)
    with remote.local_copy(staging, fs) as local:
        if moment is not None:
            try:
                found = os.path.basename(BackupStore(local.path, fs=fs).find_since(moment.at_ms, which))
            except CorruptBackup:
                list(map(remote.manifest, remote.ids()))  # raises why a manifest was left out
                raise
        _check_number(places, remote.manifest(found), remote.url)
        _check_empty(places, fs)
        _download(remote, local, found, tell)
        return _restore_local(local.path, given, found, moment, None, fs)


def _download(remote: RemoteBackups, local: LocalCopy, found: str, tell: Tell | None) -> None:
    """Download a backup; start over if it is redacted meanwhile. PartitionNotFound if it is deleted meanwhile."""
    while True:
        before = remote.objects.manifest_names(found)
        try:
            return local.download(found, tell)
        except CorruptBackup:
            remote.find(found)
            if remote.objects.manifest_names(found) == before:
                raise


def _restore_local(
    target: str,
    dirs: Path | Iterable[Path],
    which: str,
    moment: Moment | None,
    tell: Tell | None,
    fs: FileSystem,
    copies: Copies | None = None,
) -> Manifest:
    """Restore a backup in a directory; start over if it is redacted meanwhile.

    Files of `copies` may be moved, since these are removed afterwards.
    """
    store = BackupStore(target, fs=fs)
    path = store.find(which) if moment is None else store.find_since(moment.at_ms, which)
    manifest = read_manifest(path, fs)
    given = path_list(dirs)
    refuse_urls(*given)
    places = [os.path.realpath(one) for one in given]
    _check_number(places, manifest, path)
    for place in places:
        if (place + os.sep).startswith(os.path.join(os.path.realpath(target), "")):
            raise IllegalArgument("the target is inside the directory of backups", path=place, hint="choose another")
    try:
        rewind = None if moment is None else Rewind(path, manifest, moment, store.newest_before(moment.at_ms), fs)
        linked = rewind.whole_segments() if rewind is not None and copies is not None else frozenset[str]()
        _restore(path, manifest, places, rewind, linked, Copier(fs, one_at_a_time(tell)), fs, copies)
    except CorruptBackup:
        if store.is_redacted_since(manifest):
            return _restore_local(target, dirs, manifest.id, moment, tell, fs, copies)
        raise
    return manifest if rewind is None else rewind.restored(places)


def _check_number(places: Sequence[str], manifest: Manifest, path: str) -> None:
    if len(places) != len(manifest.directories) or len(set(places)) < len(places):
        names = ", ".join(one.source for one in manifest.directories)
        raise IllegalArgument(
            f"{len(places)} directories are given, but the backup has {len(manifest.directories)}",
            path=path, hint=f"give one for each of {names}, in that order",
        )  # fmt: skip


def _check_empty(places: Sequence[str], fs: FileSystem) -> None:
    """Raise IllegalArgument, before a download, if a place is not empty and no restore was interrupted there."""
    found = {one: _names_in(one, fs) for one in places if fs.exists(one)}
    if not any({STAGING, READY} & set(names) for names in found.values()):
        for place, names in found.items():
            if names:
                raise _occupied(place, names)


def _names_in(place: str, fs: FileSystem) -> list[str]:
    with os_errors("list the directory", place):
        return sorted(name for name in fs.names(place) if name != LOCK_FILE)


def _contents(names: Sequence[str]) -> str:
    return f"the directory has {', '.join(names[:3])}{f' and {len(names) - 3:,} more' if len(names) > 3 else ''}"


def _occupied(place: str, names: Sequence[str]) -> IllegalArgument:
    return IllegalArgument(
        _contents(names), path=place, hint="restore into an empty directory, or move these files away"
    )


def restore_directories(
    sources: Path | Iterable[Path],
    dirs: Path | Iterable[Path],
    *,
    at: Time,
    by: str = "append",
    tell: Tell | None = None,
    fs: FileSystem = OS,
) -> Manifest:
    """Restore data directories, which may be in use, into `dirs` as they were at the moment `at`.

    `sources` are copied as a backup copies them, beside the restored files, and are not changed. Arguments and errors
    as for `create_backup` and `restore_backup`; IllegalArgument for a moment that is still to come.

    >>> restored = restore_directories("data", "as-it-was", at=log[-1].timestamp)    # of `log`
    >>> restored.partitions[0].end_offset
    2
    """
    moment = Moment.of(at, by)
    if moment.at_ms > SYSTEM_CLOCK.milliseconds():
        raise IllegalArgument(f"{time_text(moment.at_ms)} is still to come", hint="give a moment up to now")
    places, given = [os.path.realpath(one) for one in path_list(dirs)], path_list(sources)
    refuse_urls(*path_list(dirs), *given)
    if not places:
        raise IllegalArgument("no directory to restore into is given")
    paths = [os.path.realpath(one) for one in given]
    for place in places:
        check_places(paths, place)
    copies = Copies(paths, places, moment, fs)
    done = copies.finished()
    copies.clear()
    if done is not None and _has_all(places, done, fs):
        return done
    had_copies = copies.exists
    try:
        which = copies.find()
        if which is None:
            _check_empty(places, fs)
            which = create_backup(given, copies.path, tell=tell, fs=fs).manifest.id
        if not any(_names_in(one, fs) for one in places if fs.exists(one)):
            copies.begin()
        restored = _restore_local(copies.path, places, which, moment, None, fs, copies)
    except (KafkalogError, OSError) as error:
        needs_copies = isinstance(error, StorageError | DirectoryLocked)  # the next run, or one that goes on now
        needs_copies |= had_copies and isinstance(error, IllegalArgument)  # the run that left them
        if not needs_copies:
            copies.discard()
        raise
    copies.finish(restored)
    return restored


def _has_all(places: Sequence[str], manifest: Manifest, fs: FileSystem) -> bool:
    """Return True if each place exists and has the names of its directory of the backup."""
    return all(
        fs.exists(place) and {*_names_in(place, fs)} - _CHECKPOINTS == _names_of(manifest, directory) - _CHECKPOINTS
        for place, directory in zip(places, manifest.directories, strict=True)
    )


def _names_of(manifest: Manifest, directory: StoredDirectory) -> set[str]:
    """Return the names in a directory of the backup after its restore."""
    files = [file.path.split("/") for file in manifest.files if file.path.startswith(f"{directory.name}/")]
    return {META_PROPERTIES if path[1] == META_PROPERTIES + SET_ASIDE else path[1] for path in files}


def _restore(
    path: str,
    manifest: Manifest,
    places: Sequence[str],
    rewind: Rewind | None,
    linked: frozenset[str],
    copier: Copier,
    fs: FileSystem,
    copies: Copies | None,
) -> None:
    """Stage all directories, cut them back if `rewind` is given, and publish them: all or none are visible."""
    locks = [LogDir.acquire(place, fs=fs, create=True, exclusive=True) for place in places]
    try:
        for lock in locks:
            lock.withhold_marker()  # the clean-shutdown marker comes from the backup, if at all
        moment = "" if rewind is None else f" {rewind.record}"
        stagings = [
            _Staging(path, manifest, directory, place, moment, linked, copier, fs)
            for place, directory in zip(places, manifest.directories, strict=True)
        ]
        is_resumed = any(one.is_ready() for one in stagings)
        is_resumed |= copies is not None and copies.is_begun and all(one.is_published() for one in stagings)
        unfinished = [one for one in stagings if not (is_resumed and one.is_published())]
        for one in unfinished:
            one.check_place()
        if not all(one.is_ready() for one in unfinished):
            _stage(unfinished, rewind)
        for one in unfinished:
            one.publish()
    finally:
        for lock in locks:
            lock.release()


def _stage(stagings: Sequence[_Staging], rewind: Rewind | None) -> None:
    """Copy all directories, cut them back if `rewind` is given, then sync them; after an error nothing is staged."""
    try:
        for one in stagings:
            one.copy()
        if rewind is not None:
            rewind.apply([one.root for one in stagings])
        for one in stagings:
            one.complete()
    except BaseException as error:
        for one in stagings:
            with suppress(OSError):
                one.discard()
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise StorageError.from_os(error, "restore", path=stagings[0].root) from error
        raise


class _Staging:
    """The staged files of one data directory, to be moved into its place; those in `linked` are the backup's own."""

    def __init__(
        self,
        backup: str,
        manifest: Manifest,
        directory: StoredDirectory,
        place: str,
        moment: str,
        linked: frozenset[str],
        copier: Copier,
        fs: FileSystem,
    ) -> None:
        self._backup = backup
        self._linked = linked
        self._files = [file for file in manifest.files if file.path.startswith(f"{directory.name}/")]
        self._only = manifest._replace(directories=(directory,))
        self._place = place
        self.root = os.path.join(place, STAGING)
        self._ready_inside = os.path.join(self.root, READY)
        self._ready_beside = os.path.join(place, READY)
        checksum = sha256(encode_manifest(manifest)).hexdigest()
        self._record = f"{manifest.id} {directory.name} {checksum}{moment}\n".encode()
        self._copier = copier
        self._fs = fs

    def _target(self, file: StoredFile) -> str:
        name = file.path.partition("/")[2]
        return os.path.join(self.root, META_PROPERTIES if name == META_PROPERTIES + SET_ASIDE else name)

    def is_ready(self) -> bool:
        """Return True if an interrupted restore staged this backup's directory completely."""
        return self._record in (self._read_record(self._ready_inside), self._read_record(self._ready_beside))

    def _read_record(self, path: str) -> bytes:
        with os_errors("read the state of the restore", path):
            return self._fs.read_file(path, _MAX_RECORD_BYTES) if self._fs.exists(path) else b""

    def is_published(self) -> bool:
        """Return True if the place has the names of the backup's directory: an earlier restore published it."""
        return _has_all([self._place], self._only, self._fs)

    def check_place(self) -> None:
        """Raise IllegalArgument if the place holds anything but leftovers of an interrupted restore."""
        names = _names_in(self._place, self._fs)
        if not names or names == [STAGING] or self.is_ready():
            return
        if self._read_record(self._ready_inside) or self._read_record(self._ready_beside):
            raise IllegalArgument(
                f"{_contents(names)}: the restore of another backup was interrupted here", path=self._place,
                hint="run that restore again, or empty the directory",
            )  # fmt: skip
        raise _occupied(self._place, names)

    def publish(self) -> None:
        """Rename the staged entries to their final names, except those that a killed restore has renamed."""
        fs, root = self._fs, self.root
        with os_errors("move the restored files into place", root):
            if fs.exists(root):
                for name in sorted(fs.names(root)):
                    if name != READY:
                        fs.rename(os.path.join(root, name), os.path.join(self._place, name))
                fs.fsync_dir(self._place)
                if fs.exists(self._ready_inside):  # its record must outlive the directory
                    fs.rename(self._ready_inside, self._ready_beside)
                fs.rmdir(root)
                fs.fsync_dir(self._place)
            fs.unlink_if_exists(self._ready_beside)
            fs.fsync_dir(self._place)

    def copy(self) -> None:
        """Copy and compare all files. CorruptBackup, StorageError, OSError."""
        self.discard()
        make_directories(self._fs, self.root)
        for directory in sorted({os.path.dirname(self._target(file)) for file in self._files}):
            make_directories(self._fs, directory)
        run_together(partial(self._copy, file, self._target(file)) for file in self._files)

    def complete(self) -> None:
        """Sync the staged files and record that all of them are there. StorageError, OSError."""
        found = list(walk(self.root))
        sync_files(self._fs, [os.path.join(directory, name) for directory, _, names in found for name in names])
        for directory, _, _ in reversed(found):
            self._fs.fsync_dir(directory)
        atomic_write(self._fs, self._ready_inside, self._record)

    def discard(self) -> None:
        """Remove what is staged."""
        if self._fs.exists(self.root):
            shutil.rmtree(self.root)

    def _copy(self, file: StoredFile, target: str) -> None:
        source = os.path.join(self._backup, file.path)
        try:
            opened = self._fs.open_file(source, "r")
        except FileNotFoundError:
            raise CorruptBackup("a file of the backup is missing", path=source, hint=_HINT) from None
        with opened:
            size = opened.size()
            if size != file.size:
                raise CorruptBackup(
                    f"the file has {size} bytes, but {file.size} were stored", path=source, hint=_HINT
                )
            is_linked = file.path in self._linked and self._link(source, target)
            sums = sum_of(self._fs, source)[1] if is_linked else self._copier.copy(opened, target, file.size)
        if sums != file.sha256:
            raise CorruptBackup("the file's content differs from what was stored", path=source, hint=_HINT)
        if file.is_private or is_linked:
            self._fs.chmod(target, 0o600 if file.is_private else 0o644)
        self._fs.utime(target, ns=(file.mtime_ns, file.mtime_ns))

    def _link(self, source: str, target: str) -> bool:
        """Hard-link a file of the backup; return False if that is not possible."""
        try:
            self._fs.link(source, target)
        except OSError:
            return False
        return True
