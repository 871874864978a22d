"""The records to redact in the segments of backups; each content is searched once, however many backups have it."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from kafkalog.backup.manifest import Manifest, StoredFile
from kafkalog.errors import CorruptBackup, CorruptRecord, IllegalState, InvalidRecord, StorageError
from kafkalog.keys.place import KeyIndexPlace
from kafkalog.redact.copies import STAGED_PREFIX
from kafkalog.redact.report import Copy
from kafkalog.redact.search import Advance, search, where_offsets
from kafkalog.redact.wanted import Change, Wanted
from kafkalog.storage.names import LOG_SUFFIX, SWAP_SUFFIX, is_log_file, parse_base_offset
from kafkalog.storage.readonly.view import LogView
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem

DAMAGED: Final = (
    "the backups are unchanged: restore this one, run `kafkalog repair --excise --apply` and `kafkalog redact` on the "
    "restored directory, and delete the backup"
)
CHANGED: Final = "the backups are unchanged: `kafkalog backup verify` reports all damage; delete this backup"
_STAGED: Final = "records that a write had staged: a commit to the restored directory appends them"
Content = tuple[int, str]
"""A content of a partition's segment: the partition's number, and the SHA-256 sum."""


class Request(NamedTuple):
    """The records of a topic wanted in backups, its partitions to search (none: all), and the change to the records."""

    topic: str
    wanted: Wanted
    change: Change
    partitions: frozenset[int]

    def segments(self, manifest: Manifest) -> Iterator[Segment]:
        """Yield the segments of a backup to search; IllegalState for one that was being replaced."""
        wanted = self.wanted
        for one in manifest.partitions:
            if one.topic != self.topic or (self.partitions and one.partition not in self.partitions):
                continue
            if not wanted.keys and wanted.where is None and not wanted.offsets.get(one.partition):
                continue
            directory = f"{manifest.directories[one.directory].name}/{one.topic_partition}"
            for file in manifest.files:
                head, _, name = file.path.rpartition("/")
                if head != directory:
                    continue
                if name.endswith(SWAP_SUFFIX):
                    raise IllegalState(
                        f"the backup {manifest.id} has a segment that was being replaced", path=file.path,
                        hint="restore the backup, redact the restored directory, back that up, and delete the backup",
                    )  # fmt: skip
                if is_log_file(name):
                    yield Segment(one.topic_partition, file, parse_base_offset(name) or 0)


class Segment(NamedTuple):
    """A segment of a backup."""

    topic_partition: TopicPartition
    file: StoredFile
    base_offset: int

    @property
    def content(self) -> Content:
        """Its content, which other backups may have too."""
        return self.topic_partition.partition, self.file.sha256

    @property
    def directory(self) -> str:
        """The partition's directory in the backup."""
        return os.path.dirname(self.file.path)

    @property
    def stem(self) -> str:
        """The path in the backup without its suffix, which the indexes share."""
        return self.file.path.removesuffix(LOG_SUFFIX)


class Found(NamedTuple):
    """A segment with records to redact, at `offsets`, rising."""

    segment: Segment
    offsets: array[int]


class ContentSearch:
    """Searches backups, oldest first; `keys` and `offsets` (by partition) are those of which there is a record.

    Nothing is changed. Threads: one at a time.
    """

    def __init__(self, request: Request, fs: FileSystem, progress: Advance = lambda size: None) -> None:
        self.keys: set[bytes] = set()
        self.offsets: dict[int, set[int]] = {}
        self.unseen: dict[str, Copy] = {}
        self._request = request
        self._fs = fs
        self._progress = progress
        self._searched: dict[Content, array[int]] = {}

    def unsearched(self, manifest: Manifest) -> list[Segment]:
        """Return the segments of a backup whose contents were not searched yet. IllegalState as `Request.segments`."""
        return [one for one in self._request.segments(manifest) if one.content not in self._searched]

    def run(self, path: str, manifest: Manifest) -> list[Found]:
        """Return the segments with records to redact in the backup at `path`, which has those that are unsearched.

        CorruptBackup for a file of another size than the one stored, which must not stand for the content of others;
        CorruptRecord and InvalidRecord for damage and values that do not decode; IllegalState, StorageError.
        """
        new: dict[str, list[Segment]] = {}
        for one in self.unsearched(manifest):
            new.setdefault(one.directory, []).append(one)
        for directory, segments in new.items():
            self._search(os.path.join(path, directory), segments)
        for file in manifest.files:
            if os.path.basename(file.path).startswith(STAGED_PREFIX):
                self.unseen[f"{manifest.id}/{file.path}"] = Copy(f"{manifest.id}/{file.path}", _STAGED)
        found = (Found(one, self._searched[one.content]) for one in self._request.segments(manifest))
        return [one for one in found if one.offsets]

    def _search(self, path: str, segments: list[Segment]) -> None:
        request, bases = self._request, frozenset(one.base_offset for one in segments)
        for one in segments:
            check_size(os.path.join(path, os.path.basename(one.file.path)), one.file, self._fs)
        place = KeyIndexPlace(path, None, self._fs)
        try:
            with LogView(path, fs=self._fs) as view:
                by_condition = where_offsets(path, request.wanted, self._fs)
                result = search(
                    view, request.wanted, request.change, place, more_offsets=by_condition, only=bases,
                    advance=self._progress,
                )  # fmt: skip
                if view.tail_damage is not None and view.segments[-1].base_offset in bases:
                    raise view.tail_damage
                self._note_unseen(view)
        except (CorruptRecord, InvalidRecord) as error:
            error.hint = DAMAGED if isinstance(error, CorruptRecord) else error.hint
            raise
        changed = {one.base_offset: one.offsets for one in result.segments}
        for one in segments:
            self._searched[one.content] = changed.get(one.base_offset, array("q"))
        self.keys |= result.keys
        self.offsets.setdefault(segments[0].topic_partition.partition, set()).update(result.offsets)

    def _note_unseen(self, view: LogView) -> None:
        first, start = view.segments[0].base_offset, view.log_start_offset
        if self._request.wanted.where is not None and first < start:
            what = f"offsets {first} to {start - 1} lie below the log start, where no condition is evaluated"
            self.unseen[view.path] = Copy(view.path, what)


def check_size(path: str, file: StoredFile, fs: FileSystem) -> None:
    """Raise CorruptBackup if a file of a backup is missing or of another size than the one stored; StorageError."""
    try:
        size = fs.stat(path).st_size
    except FileNotFoundError:
        raise CorruptBackup("a file of the backup is missing", path=path, hint=CHANGED) from None
    except OSError as error:
        raise StorageError.from_os(error, "examine", path=path) from error
    if size != file.size:
        raise CorruptBackup(f"the file has {size} bytes, but {file.size} were stored", path=path, hint=CHANGED)


def count_left(path: str, found: list[Found], request: Request, fs: FileSystem) -> int:
    """Search the rewritten segments below `path` again, and return the number of records that still hold something."""
    again, left = replace(request.wanted, where=None, offsets={}), 0
    for directory in dict.fromkeys(one.segment.directory for one in found):
        own = [one for one in found if one.segment.directory == directory]
        where = os.path.join(path, directory)
        offsets = array("q", sorted(offset for one in own for offset in one.offsets))
        bases = frozenset(one.segment.base_offset for one in own)
        with LogView(where, fs=fs) as view:
            place = KeyIndexPlace(where, None, fs)
            result = search(view, again, request.change, place, more_offsets=offsets, only=bases)
        left += sum(len(one.offsets) for one in result.segments)
    return left
