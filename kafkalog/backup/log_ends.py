"""A common moment at which all logs of a backup end, so that transactions match their coordinator's log.

If a transaction began after the coordinator's log was copied, the copies would have records of a transaction that no
one ends. Readers of committed records would stop there, and the producer's next transaction would commit them. The
lengths of all logs are read twice. If in between neither the coordinator's log changed nor any log got a batch of a
transaction, the first lengths are those of one moment, as a kill at that moment would leave them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Final, NamedTuple

from kafkalog._core.batch.scan import scan
from kafkalog.backup.listing import list_partition
from kafkalog.errors import PartitionNotFound, StorageError
from kafkalog.records.format import TRANSACTIONAL_BIT
from kafkalog.storage.names import LOG_SUFFIX, base_name
from kafkalog.types import TopicPartition
from kafkalog.util.clock import Clock
from kafkalog.util.fileio import FileSystem

COORDINATOR: Final = "__transaction_state"
MAX_TRIES: Final = 300
_PAUSE_MS: Final = 1
_MAX_READ_BYTES: Final = 1 << 20
_ATTRIBUTES_AT: Final = 22
Key = tuple[int, TopicPartition]


class Ending(NamedTuple):
    """The end of a log: the base offset of its last segment, that file's inode, and its length in bytes."""

    base_offset: int
    inode: int
    size: int


class _Last(NamedTuple):
    path: str
    base_offset: int
    inode: int


def one_moment(partitions: Mapping[Key, str], fs: FileSystem, clock: Clock) -> dict[Key, Ending] | None:
    """Return the ends of the logs in these directories at one moment; None if `MAX_TRIES` tries found none.

    The logs are examined in the order given. A partition without a segment, or one that was removed, is left out. The
    result is empty if no partition is a transaction coordinator's. StorageError.
    """
    if not any(key.topic == COORDINATOR for _, key in partitions):
        return {}
    last = _last_segments(partitions, fs)
    for _ in range(MAX_TRIES):
        before, after = _sizes(last, fs), _sizes(last, fs)
        now = _last_segments(partitions, fs)
        if now == last and before.keys() == last.keys() and _is_one_moment(last, before, after, fs):
            return {key: Ending(one.base_offset, one.inode, before[key]) for key, one in last.items()}
        last = now
        clock.sleep(_PAUSE_MS)
    return None


def _last_segments(partitions: Mapping[Key, str], fs: FileSystem) -> dict[Key, _Last]:
    found = {}
    for key, path in partitions.items():
        try:
            listing = list_partition(path, fs)
        except PartitionNotFound:
            continue
        if listing.segments:
            base = listing.segments[-1]
            name = base_name(base) + LOG_SUFFIX
            found[key] = _Last(os.path.join(path, name), base, listing.inodes[name])
    return found


def _sizes(last: Mapping[Key, _Last], fs: FileSystem) -> dict[Key, int]:
    """Return the lengths as fast as possible: one moment must lie between two calls. Missing files are omitted."""
    found, stat = {}, fs.stat
    for key, one in last.items():
        try:
            found[key] = stat(one.path).st_size
        except FileNotFoundError:
            continue
        except OSError as error:
            raise StorageError.from_os(error, "examine", path=one.path) from error
    return found


def _is_one_moment(
    last: Mapping[Key, _Last], before: Mapping[Key, int], after: Mapping[Key, int], fs: FileSystem
) -> bool:
    for key, size in before.items():
        end = after.get(key, -1)
        if end != size and (key[1].topic == COORDINATOR or not _has_plain_batches(last[key].path, size, end, fs)):
            return False
    return True


def _has_plain_batches(path: str, begin: int, end: int, fs: FileSystem) -> bool:
    """Return True if the bytes from `begin` to `end` are complete batches without any of a transaction."""
    if not 0 < end - begin <= _MAX_READ_BYTES:
        return False
    try:
        with fs.open_file(path, "r") as file:
            data = file.pread(end - begin, begin)
    except OSError:  # it is being removed: try again
        return False
    table = scan(data, file_mode=True, base_position=0)
    ends = [table.position(row) + table.size(row) for row in range(len(table))]
    if not ends or ends[-1] != len(data):
        return False
    return not any(data[at + _ATTRIBUTES_AT] & TRANSACTIONAL_BIT for at in (0, *ends[:-1]))
