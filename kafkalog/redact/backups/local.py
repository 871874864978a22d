"""A directory of backups being redacted: a new directory takes the place of each backup with wanted records."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256

from kafkalog.backup.copying import create, sync_files
from kafkalog.backup.in_progress import link_or_copy
from kafkalog.backup.manifest import MANIFEST, SUMS, Manifest, encode_manifest, read_manifest, sums_of
from kafkalog.backup.store import PARTIAL, BackupStore
from kafkalog.redact.backups.rewrite import Rewriter
from kafkalog.redact.backups.search import Found, Segment
from kafkalog.redact.report import Copy
from kafkalog.util.fileio import FileSystem, make_directories
from kafkalog.util.os_errors import os_errors, walk


class LocalBackups:
    """The backups in a directory; a caller that replaces one holds the lock on it. Threads: one at a time."""

    def __init__(self, store: BackupStore, fs: FileSystem) -> None:
        self._store = store
        self._fs = fs

    def manifests(self) -> list[Manifest]:
        """Return the manifests, oldest first. CorruptBackup, PartitionNotFound, StorageError."""
        return [read_manifest(self._store.find(one), self._fs) for one in self._store.ids()]

    def leftovers(self) -> list[Copy]:
        """Return what killed runs left; records may be in it."""
        what = "a killed backup, delete or redaction left it, and --apply removes it"
        return [Copy(os.path.join(self._store.path, name), what) for name in self._store.unfinished()]

    def name_of(self, manifest: Manifest, segment: Segment) -> str:
        """Return the path of a segment."""
        return os.path.join(self._store.find(manifest.id), segment.file.path)

    def open(self, manifest: Manifest, segments: Sequence[Segment]) -> str:
        """Return the directory of a backup, which has the segments."""
        return self._store.find(manifest.id)

    def close(self, manifest: Manifest, found: Sequence[Found]) -> None:
        """Do nothing: the files of a backup stay."""

    def begin(self) -> None:
        """Remove what killed runs left. StorageError."""
        self._store.sweep()

    def target(self, manifest: Manifest) -> str:
        """Return the directory in which a backup's replacement is prepared."""
        return os.path.join(self._store.path, manifest.id + PARTIAL)

    def prepare(self, manifest: Manifest, found: Sequence[Found], rewriter: Rewriter) -> Manifest:
        """Write a backup's replacement, with links to all files that stay, and sync it. StorageError, CorruptRecord."""
        source, target = self._store.find(manifest.id), self.target(manifest)
        new = rewriter.rewrite(source, target, manifest, found)
        written = (os.path.join(below, name) for below, _, names in os.walk(target) for name in names)
        changed = {os.path.relpath(path, target) for path in written}
        with os_errors("redact the backup", target):
            directories = [self._link(source, target, *one, changed) for one in walk(source)]
            content = encode_manifest(new)
            for name, data in ((MANIFEST, content), (SUMS, sums_of(new.files, sha256(content).hexdigest()))):
                path = os.path.join(target, name)
                with create(self._fs, path) as file:
                    file.pwrite(data, 0)
                self._fs.chmod(path, 0o444)
            sync_files(self._fs, (os.path.join(target, name) for name in (*sorted(changed), MANIFEST, SUMS)))
            for directory in reversed(directories):
                self._fs.fsync_dir(directory)
        return new

    def _link(
        self, source: str, target: str, directory: str, below: list[str], names: list[str], changed: set[str]
    ) -> str:
        """Give the files of one directory of a backup, except those that changed, a name in its replacement."""
        place = os.path.relpath(directory, source)
        made = os.path.normpath(os.path.join(target, place))
        make_directories(self._fs, made)
        for name in names:
            path = os.path.normpath(os.path.join(place, name))
            if path not in changed and path not in (MANIFEST, SUMS):
                link_or_copy(self._fs, os.path.join(directory, name), os.path.join(made, name))
        return made

    def replace(self, manifest: Manifest, new: Manifest) -> None:
        """Put the replacement in the place of a backup, and remove the old one. StorageError."""
        self._store.replace(manifest.id)

    def finish(self) -> None:
        """Do nothing: contents that no backup has are gone with the last of their names."""
