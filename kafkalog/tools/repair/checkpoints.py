"""Repair of checkpoints: those of a data directory from its logs, a partition's leader epochs from its log.

Readable lines of a malformed file are kept. An offset above the end of its log is lowered to it, since the records
above were lost. A log start above it is dropped, since an opening would otherwise discard the whole log (LOAD-13).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafkalog.errors import CorruptCheckpoint
from kafkalog.storage.leader_epoch import EpochEntry, LeaderEpochCache, read_epochs
from kafkalog.storage.names import LEADER_EPOCH_CHECKPOINT
from kafkalog.tools.repair.plan import Change
from kafkalog.tools.verify.segment import SegmentFacts
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import (
    CLEANER_OFFSET_FILE,
    HIGH_WATERMARK_FILE,
    LOG_START_FILE,
    MAX_FILE_BYTES,
    RECOVERY_POINT_FILE,
    OffsetCheckpoint,
    parse_offset,
    text_lines,
)
from kafkalog.util.fileio import FileSystem
from kafkalog.util.os_errors import os_errors

_FILES: Final = (RECOVERY_POINT_FILE, LOG_START_FILE, HIGH_WATERMARK_FILE, CLEANER_OFFSET_FILE)
_MAGIC_AT: Final = 16
"""Byte of a batch that names its format."""
Offsets = dict[TopicPartition, int]


def plan_checkpoints(directory: str, ends: Mapping[TopicPartition, int], fs: FileSystem) -> list[Change]:
    """Return the changes to a data directory's checkpoints; `ends` are the log ends that are certain.

    StorageError for a file that cannot be read.
    """
    changes = []
    for name in _FILES:
        path = os.path.join(directory, name)
        with os_errors("get the status of the checkpoint file", path):
            if not fs.exists(path):
                continue
        offsets, faults = _read(path, fs)
        for partition, offset in list(offsets.items()):
            end = ends.get(partition)
            if end is None or offset <= end:
                continue
            if name == LOG_START_FILE:
                del offsets[partition]
                faults.append(f"{partition} starts at {offset} but ends at {end}: it will start with its first segment")
            else:
                offsets[partition] = end
                faults.append(f"{partition} has {offset} but ends at {end}: lowered, the records above are lost")
        if faults:
            entries = [(*partition, offset) for partition, offset in offsets.items()]
            changes.append(_change(path, "; ".join(faults), _text(entries), fs))
    return changes


def _read(path: str, fs: FileSystem) -> tuple[Offsets, list[str]]:
    """Return the offsets of a file, of a malformed one those of its sound lines, and its faults."""
    try:
        return dict(OffsetCheckpoint(path, fs=fs).read()), []
    except CorruptCheckpoint as error:
        kept = _lines(path, fs)
        count = f"{len(kept)} entr{'y' if len(kept) == 1 else 'ies'}"
        return kept, [f"{error.message}; {count} can be read and kept"]


def _lines(path: str, fs: FileSystem) -> Offsets:
    """Return the readable entries of a malformed checkpoint."""
    with os_errors("read the checkpoint file", path):
        content = fs.read_file(path, MAX_FILE_BYTES)
    found: Offsets = {}
    for line in text_lines(content.decode("utf-8", "replace")):
        try:
            key, offset = parse_offset(line.split())
        except ValueError:
            continue
        if offset >= 0 and "\ufffd" not in line:
            found[key] = offset
    return found


def plan_epochs(partition: str, facts: Sequence[SegmentFacts], fs: FileSystem) -> Change | None:
    """Return the change that makes `leader-epoch-checkpoint` match the batches; None if it needs none.

    A malformed one is built from the batches alone; epochs of a sound file stay. Once an epoch is added, those that
    begin before the last batch of an older format are left out, as an append does (LOG-59).
    """
    path = os.path.join(partition, LEADER_EPOCH_CHECKPOINT)
    entries: tuple[EpochEntry, ...] = ()
    faults = []
    try:
        entries = read_epochs(partition, fs=fs)
    except CorruptCheckpoint as error:
        faults.append(error.message)
    after, old_end = _after_old_formats(facts, fs)
    cache = LeaderEpochCache(partition, fs=fs)
    cache.extend(entry for entry in entries if entry.start_offset >= old_end)
    latest = cache.latest_epoch
    new_epochs: list[EpochEntry] = []
    for one, epoch, position in after:
        if epoch > latest:
            latest = epoch
            new_epochs.append(EpochEntry(epoch, max(_base_offset(one.path, position, fs), one.base_offset)))
    cache.extend(new_epochs)
    added = len(set(cache.entries).difference(entries))
    if added:
        faults.append(f"{added} leader epoch{'' if added == 1 else 's'} from the batches")
    if not faults:
        return None
    return _change(path, "; ".join(faults), _text(cache.entries), fs)


def _after_old_formats(
    facts: Sequence[SegmentFacts], fs: FileSystem
) -> tuple[list[tuple[SegmentFacts, int, int]], int]:
    """Return the runs after the last batch of format v0 or v1, as (segment, epoch, position), and that batch's end.

    The end is an offset, 0 without such a batch.
    """
    runs: list[tuple[SegmentFacts, int, int]] = []
    for one in reversed(facts):
        for epoch, position, _, last_offset in reversed(one.epoch_runs):
            if epoch < 0 and _has_old_format(one.path, position, fs):
                return runs[::-1], last_offset + 1
            runs.append((one, epoch, position))
    return runs[::-1], 0


def _has_old_format(path: str, position: int, fs: FileSystem) -> bool:
    """Return True if the batch has format v0 or v1, which have no epoch; some of v2 lack theirs."""
    with os_errors("read", path, position), fs.open_file(path, "r") as file:
        return file.pread(_MAGIC_AT + 1, position)[_MAGIC_AT:] in (b"\0", b"\1")


def _base_offset(path: str, position: int, fs: FileSystem) -> int:
    with os_errors("read", path, position), fs.open_file(path, "r") as file:
        return int.from_bytes(file.pread(8, position), "big", signed=True)


def _text(entries: Iterable[tuple[object, ...]]) -> bytes:
    """Return a checkpoint file's content: a line for each entry."""
    lines = [" ".join(map(str, fields)) for fields in entries]
    return "".join(f"{line}\n" for line in ("0", str(len(lines)), *lines)).encode()


def _change(path: str, what: str, data: bytes, fs: FileSystem) -> Change:
    size = fs.stat(path).st_size if fs.exists(path) else -1
    return Change("rebuild", path, what, size, len(data), data=data)
