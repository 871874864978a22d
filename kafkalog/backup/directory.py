"""One data directory being backed up: the files beside its partitions, and checkpoints that match the copies.

A write by a commit (`landing`) that is decided, but not completely in the logs, has its other records in staged files.
They are copied too: the restored directory completes the write as the original would.

A checkpoint must be true of the copy. So checkpoint files are read before any partition: offsets that were on disk,
replicated and cleaned then are so in a later copy too. Log starts are read again afterwards, since records deleted
meanwhile may be missing from the copy. No offset exceeds the end of the copy.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kafkalog.backup.cut import read_whole
from kafkalog.backup.in_progress import BackupInProgress, Changed
from kafkalog.backup.listing import status_of
from kafkalog.backup.manifest import SET_ASIDE, StoredDirectory, StoredPartition
from kafkalog.backup.partition import Copied
from kafkalog.errors import CorruptCheckpoint
from kafkalog.manager.log_dir import is_locked
from kafkalog.storage.damage import lost_end
from kafkalog.storage.names import (
    BOOTSTRAP_FILE,
    CLEAN_SHUTDOWN_FILE,
    LOCK_FILE,
    META_PROPERTIES,
    METADATA_DIRECTORY,
)
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.tools.directories import PartitionPath, partitions
from kafkalog.tools.verify.checkpoints import LOST_END_HINT
from kafkalog.tools.verify.report import Finding, Severity
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    RECOVERY_POINT_FILE,
    OffsetCheckpoint,
)
from kafkalog.util.fileio import TMP_SUFFIX, FileSystem
from kafkalog.util.os_errors import os_errors

CHECKPOINTS: Final = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE)
_BROKERS: Final = frozenset({META_PROPERTIES, BOOTSTRAP_FILE})
_KAFKALOG_FILE: Final = re.compile(r"kafkalog(?:\.[\w.-]+|-import\.[\w-]+\.json)", re.ASCII)
LEDGER: Final = "kafkalog.spark-ledger.json"
"""File that names the writes that landed, and the staged files of one that is decided."""
_PLAN_START: Final = "kafkalog-import."
"""Beginning of the names of files that decide an import, and name its staged files."""
_STAGED: Final = re.compile(rb'"(kafkalog-stage\.[\w.-]+)"', re.ASCII)
_MAX_BYTES: Final = 1 << 30
METADATA: Final = TopicPartition("__cluster_metadata", 0)


class _Checkpoint(NamedTuple):
    """A checkpoint as it was when the backup began; `offsets` is None if it cannot be read."""

    status: os.stat_result
    offsets: dict[TopicPartition, int] | None


class DirectoryCopy:
    """The data directory `path`, copied as the backup's `name`. Threads: one at a time.

    `notes` lists irregularities. `lost_ends` are the logs that end before their recovery points: their last records
    were on disk once, and the copy's checkpoint no longer shows that.
    """

    def __init__(
        self, backup: BackupInProgress, path: str, name: str, fs: FileSystem, topics: frozenset[str] | None = None
    ) -> None:
        """Copy all partitions and files; with `topics` only those topics, their checkpoints and settings.

        With `topics`, no files of a broker or a server are copied.
        """
        self.path = path
        self.name = name
        self.notes: list[str] = []
        self.lost_ends: list[Finding] = []

        self._backup = backup
        self._fs = fs
        self._checkpoints: dict[str, _Checkpoint] = {}
        self._was_closed = False
        self._was_locked = True
        self._topics = topics
        self._others: set[str] = set()
        self._staged: set[str] = set()

    def is_closed(self) -> bool:
        """Return True while no process has the directory open, after a clean close. StorageError."""
        marker = status_of(os.path.join(self.path, CLEAN_SHUTDOWN_FILE), self._fs)
        return marker is not None and not is_locked(self.path, fs=self._fs)

    def begin(self) -> list[PartitionPath]:
        """Copy the files beside the partitions; return the partitions, a controller's log last.

        PartitionNotFound, IllegalArgument, StorageError.
        """
        partitions([self.path], fs=self._fs)  # its errors come before anything is written
        self._backup.begin_directory(self.name)
        self._backup.block_writers(self.name)
        self._was_closed = self.is_closed()
        self._was_locked = is_locked(self.path, fs=self._fs)
        for name in self._names():
            if name in CHECKPOINTS:
                self._read_checkpoint(name)
            elif self._topics is None and name != LEDGER:
                self._copy_file(name)
        if self._topics is None:
            self._copy_file(LEDGER)  # after the plans, and also if the end of an import has just created it
        self.notes += (
            f"{os.path.join(self.path, name)}: skipped, not a file of a data directory"
            for name in sorted(self._others - self._staged)
        )
        found = partitions([self.path], fs=self._fs)  # also those created by writes that the files name as done
        if self._topics is not None:
            return [one for one in found if one.topic_partition.topic in self._topics]
        metadata = os.path.join(self.path, METADATA_DIRECTORY)
        return [*found, PartitionPath(METADATA, metadata)] if os.path.isdir(metadata) else found

    def _names(self) -> Iterator[str]:
        with os_errors("read the data directory", self.path), self._fs.entries(self.path) as entries:
            files = sorted(entry.name for entry in entries if entry.is_file())
        for name in files:
            if name in CHECKPOINTS or name in _BROKERS or _KAFKALOG_FILE.fullmatch(name):
                if not name.endswith(TMP_SUFFIX):
                    yield name
            elif name not in (LOCK_FILE, CLEAN_SHUTDOWN_FILE) and not name.endswith(TMP_SUFFIX):
                self._others.add(name)

    def _copy_file(self, name: str) -> None:
        """Copy a file that is always replaced as a whole; it may have been removed."""
        try:
            content, status = read_whole(os.path.join(self.path, name), self._fs, _MAX_BYTES)
        except Changed:
            return
        stored = name + SET_ASIDE if name == META_PROPERTIES else name
        self._backup.put(f"{self.name}/{stored}", content, status)
        is_plan = name.startswith(_PLAN_START)
        if (is_plan or name == LEDGER) and not self._copy_staged(content) and is_plan:
            self._backup.drop(f"{self.name}/{stored}")

    def _copy_staged(self, content: bytes) -> bool:
        """Copy the staged files that a ledger or a plan names; return False if one is gone.

        Then the write is in the logs by now, which are copied later.
        """
        for name in map(bytes.decode, _STAGED.findall(content)):
            try:
                self._backup.store(os.path.join(self.path, name), f"{self.name}/{name}")
            except Changed:
                return False
            self._staged.add(name)
        return True

    def _read_checkpoint(self, name: str) -> None:
        path = os.path.join(self.path, name)
        try:
            content, status = read_whole(path, self._fs, _MAX_BYTES)
        except Changed:
            return
        self._backup.put(f"{self.name}/{name}", content, status)
        offsets = None
        try:
            offsets = OffsetCheckpoint(self._backup.path_of(f"{self.name}/{name}"), fs=self._fs).read()
        except CorruptCheckpoint as error:
            self.notes.append(f"{path}: {error.message}; copied unchanged")
        self._checkpoints[name] = _Checkpoint(status, offsets)

    def finish(self, copied: Mapping[TopicPartition, Copied]) -> StoredDirectory:
        """Adjust the checkpoints to the copies, and copy the clean-shutdown marker if the directory is still closed.

        StorageError.
        """
        before = self._checkpoints.pop(LOG_START_FILE, None)
        self._read_checkpoint(LOG_START_FILE)  # records deleted meanwhile may be missing from the copies too
        now = self._checkpoints.get(LOG_START_FILE)
        if before is not None and before.offsets and now is not None and now.offsets is not None:
            now.offsets.update({key: max(at, now.offsets.get(key, 0)) for key, at in before.offsets.items()})
        if not self._was_locked and not is_locked(self.path, fs=self._fs):
            self.lost_ends = self._find_lost_ends(copied)
        for name, checkpoint in self._checkpoints.items():
            if checkpoint.offsets is not None:
                clamped = clamp_offsets(name, checkpoint.offsets, copied)
                if clamped != OffsetCheckpoint(self._backup.path_of(f"{self.name}/{name}"), fs=self._fs).read():
                    self._backup.put(f"{self.name}/{name}", _encode_checkpoint(clamped), checkpoint.status)
        is_clean = self._was_closed and self.is_closed()
        if is_clean:
            self._copy_file(CLEAN_SHUTDOWN_FILE)
        return StoredDirectory(self.name, self.path, is_clean)

    def _find_lost_ends(self, copied: Mapping[TopicPartition, Copied]) -> list[Finding]:
        points = self._checkpoints.get(RECOVERY_POINT_FILE)
        ends = {key: copied[key].end.next_offset for key in copied if key != METADATA}
        return [
            Finding(
                Severity.DAMAGE, "log-end", os.path.join(self.path, str(key)), offset=ends[key],
                what=lost_end(self.path, at, ends[key]).message, hint=LOST_END_HINT,
            )
            for key, at in sorted((points and points.offsets or {}).items())
            if at > ends.get(key, at)
        ]  # fmt: skip

    def describe(self, key: TopicPartition, number: int, copied: Copied) -> StoredPartition:
        """Return the manifest entry of a copied partition. StorageError."""
        end = copied.end.next_offset
        start, mark = (self._offset(name, key) for name in (LOG_START_FILE, HIGH_WATERMARK_FILE))
        try:
            topic_id = read_partition_metadata(self._fs, self._backup.path_of(f"{self.name}/{key}"))
        except CorruptCheckpoint as error:
            self.notes.append(f"{os.path.join(self.path, str(key))}: {error.message}; copied unchanged")
            topic_id = None
        return StoredPartition(
            key.topic, key.partition, number, topic_id,
            start_offset=min(max(copied.first_offset, start or 0), end),
            end_offset=end,
            high_watermark=None if mark is None else min(mark, end),
            segments=copied.segments,
            size=copied.size,
        )  # fmt: skip

    def _offset(self, name: str, key: TopicPartition) -> int | None:
        checkpoint = self._checkpoints.get(name)
        return None if checkpoint is None or checkpoint.offsets is None else checkpoint.offsets.get(key)


def clamp_offsets(
    name: str, offsets: Mapping[TopicPartition, int], copied: Mapping[TopicPartition, Copied]
) -> dict[TopicPartition, int]:
    """Return a checkpoint's `offsets` for the copied partitions, none above its copy's end.

    A log start is omitted if it is not above the first segment's base offset.
    """
    found = {key: min(at, copied[key].end.next_offset) for key, at in offsets.items() if key in copied}
    if name == LOG_START_FILE:
        return {key: at for key, at in found.items() if at > copied[key].first_offset}
    return found


def _encode_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    lines = [f"{key.topic} {key.partition} {offset}" for key, offset in sorted(offsets.items())]
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()
