"""Segments of a backup rewritten without what their records held, and the manifest that describes them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from kafkalog.backup.copying import create, sum_of
from kafkalog.backup.cut import index_contents
from kafkalog.backup.in_progress import link_or_copy
from kafkalog.backup.manifest import Manifest, StoredFile
from kafkalog.errors import CorruptBackup
from kafkalog.redact.backups.search import CHANGED, Content, Found, Request, Segment
from kafkalog.redact.rewrite import redacted_chunks
from kafkalog.storage.names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from kafkalog.storage.readonly.read import extent_of
from kafkalog.storage.readonly.view import LogView
from kafkalog.util.fileio import FileSystem, make_directories
from kafkalog.util.os_errors import os_errors

_PRIVATE, _PUBLIC = 0o400, 0o444


class _File(NamedTuple):
    """A rewritten file: its path, its length, and its SHA-256 sum."""

    path: str
    size: int
    sha256: str


class Rewriter:
    """Rewrites segments of backups, each content once: other backups get links to its files. Threads: one at a time."""

    def __init__(self, request: Request, fs: FileSystem) -> None:
        self._request = request
        self._fs = fs
        self._done: dict[Content, dict[str, _File]] = {}

    def rewrite(self, source: str, target: str, manifest: Manifest, found: Sequence[Found]) -> Manifest:
        """Write the redacted segments of the backup at `source`, with their indexes, below `target`.

        Return the manifest of the backup with them. `source` is not changed, and nothing is synced. CorruptBackup,
        CorruptRecord, InvalidRecord, StorageError.
        """
        files = {file.path: file for file in manifest.files}
        grown: dict[str, int] = {}
        records: dict[str, int] = {}
        for one in found:
            segment = one.segment
            with os_errors("redact the backup", os.path.join(target, segment.file.path)):
                make_directories(self._fs, os.path.join(target, segment.directory))
                new = self._segment(source, target, files, one)
            files |= {file.path: file for file in new}
            grown[segment.directory] = grown.get(segment.directory, 0) + new[0].size - segment.file.size
            records[segment.directory] = records.get(segment.directory, 0) + len(one.offsets)
        names = [one.name for one in manifest.directories]
        partitions = tuple(
            one._replace(size=one.size + grown.get(f"{names[one.directory]}/{one.topic_partition}", 0))
            for one in manifest.partitions
        )
        texts = [f"redacted: {count} record{'' if count == 1 else 's'} of {name}" for name, count in records.items()]
        return manifest._replace(
            partitions=partitions, notes=(*manifest.notes, *texts), files=tuple(files[path] for path in sorted(files)),
            redactions=manifest.redactions + 1,
        )  # fmt: skip

    def _segment(
        self, source: str, target: str, files: Mapping[str, StoredFile], found: Found
    ) -> list[StoredFile]:
        """Write, or link to, the files of one redacted segment; return their entries, that of the data first."""
        segment = found.segment
        done = self._done.get(segment.content)
        if done is None:
            done = {LOG_SUFFIX: self._write_log(source, target, found)}
            self._done[segment.content] = done
        self._add_indexes(done, target, files, segment)
        entries = []
        for suffix, file in done.items():
            old = files.get(segment.stem + suffix)
            if old is None:
                continue
            own = os.path.join(target, old.path)
            if file.path == own:
                self._fs.utime(own, ns=(old.mtime_ns, old.mtime_ns))
                self._fs.chmod(own, _PRIVATE if old.is_private else _PUBLIC)
            else:
                link_or_copy(self._fs, file.path, own)
            entries.append(old._replace(size=file.size, sha256=file.sha256, identity=None))
        return entries

    def _write_log(self, source: str, target: str, found: Found) -> _File:
        """Write the redacted data of a segment. CorruptBackup if the file is not the one stored: its new sum would fit.
        """
        segment = found.segment
        old = os.path.join(source, segment.file.path)
        if sum_of(self._fs, old)[1] != segment.file.sha256:
            raise CorruptBackup("the file's content differs from what was stored", path=old, hint=CHANGED)
        path, sums, at = os.path.join(target, segment.file.path), sha256(), 0
        with LogView(os.path.join(source, segment.directory), fs=self._fs) as view, create(self._fs, path) as file:
            extent = extent_of(view.state, segment.base_offset)
            size = segment.file.size
            for new in redacted_chunks(extent, size, found.offsets, self._request.change, extent.data.file.path):
                at += file.pwrite(new.data, at)
                sums.update(new.data)
        return _File(path, at, sums.hexdigest())

    def _add_indexes(
        self, done: dict[str, _File], target: str, files: Mapping[str, StoredFile], segment: Segment
    ) -> None:
        """Write the indexes that this backup has of the segment, and no earlier one had."""
        kinds = (INDEX_SUFFIX, TIME_INDEX_SUFFIX)
        if all(kind in done or segment.stem + kind not in files for kind in kinds):
            return
        for suffix, content in index_contents(done[LOG_SUFFIX].path, segment.base_offset, self._fs).items():
            if suffix not in done and segment.stem + suffix in files:
                path = os.path.join(target, segment.stem + suffix)
                with create(self._fs, path) as file:
                    file.pwrite(content, 0)
                done[suffix] = _File(path, len(content), sha256(content).hexdigest())
