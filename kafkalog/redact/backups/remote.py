"""Backups in an object store being redacted: new contents and manifests are uploaded, then old ones are deleted."""

from __future__ import annotations

import os
from collections.abc import Sequence

from kafkalog.backup.manifest import Manifest
from kafkalog.backup.remote.backups import RemoteBackups
from kafkalog.backup.remote.local_copy import LocalCopy
from kafkalog.backup.store import PARTIAL
from kafkalog.redact.backups.rewrite import Rewriter
from kafkalog.redact.backups.search import Found, Segment
from kafkalog.redact.report import Copy
from kafkalog.storage.names import LOG_SUFFIX


class ObjectBackups:
    """The backups in an object store, whose files are downloaded to `local` as needed. Threads: one at a time."""

    def __init__(self, remote: RemoteBackups, local: LocalCopy) -> None:
        self._remote = remote
        self._copy = local

    def manifests(self) -> list[Manifest]:
        """Return the manifests, oldest first. CorruptBackup, IllegalArgument, PartitionNotFound, StorageError."""
        return [self._remote.manifest(one) for one in self._remote.ids()]

    def leftovers(self) -> list[Copy]:
        """Return the objects of contents that no backup has; records may be in them."""
        what = "a killed backup, delete or redaction left it, and --apply removes it"
        objects = self._remote.objects
        return [Copy(objects.url_of(name), what) for name in self._remote.leftovers()]

    def name_of(self, manifest: Manifest, segment: Segment) -> str:
        """Return the URL of a segment's object and the segment's path in the backup."""
        return f"{self._remote.objects.url_of_content(segment.file.sha256)} ({manifest.id}/{segment.file.path})"

    def open(self, manifest: Manifest, segments: Sequence[Segment]) -> str:
        """Download the segments, and what is needed to read them; return the directory. CorruptBackup, StorageError."""
        directories = {one.directory for one in segments}
        wanted = {one.file.path for one in segments}
        files = [
            file
            for file in manifest.files
            if file.path in wanted
            or (not file.path.endswith(LOG_SUFFIX) and os.path.dirname(file.path) in directories)
            or file.path.count("/") == 1
        ]
        return self._copy.fetch(manifest.id, files if segments else [])

    def close(self, manifest: Manifest, found: Sequence[Found]) -> None:
        """Remove the downloaded segments of a backup that are not rewritten."""
        needed = {one.segment.file.path for one in found}
        self._copy.drop(manifest.id, needed)

    def begin(self) -> None:
        """Delete what killed runs left. StorageError."""
        self._remote.delete(())

    def target(self, manifest: Manifest) -> str:
        """Return the directory in which the rewritten files of a backup are prepared."""
        return os.path.join(self._copy.path, manifest.id + PARTIAL)

    def prepare(self, manifest: Manifest, found: Sequence[Found], rewriter: Rewriter) -> Manifest:
        """Write the files of a backup that change. StorageError, CorruptRecord.

        IllegalArgument for an encrypted backup without recipients.
        """
        self._remote.objects.check_can_replace(manifest.id)
        return rewriter.rewrite(os.path.join(self._copy.path, manifest.id), self.target(manifest), manifest, found)

    def replace(self, manifest: Manifest, new: Manifest) -> None:
        """Upload what is new of a backup, then its manifest, and delete the old manifest. StorageError."""
        self._copy.replace(manifest, new, self.target(manifest))

    def finish(self) -> None:
        """Delete the contents that no backup refers to. StorageError."""
        self._remote.delete(())
