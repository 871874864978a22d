"""Access to single batches of a `.log` file by position, for comparison with index entries."""

from __future__ import annotations

import os
from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

from kafkalog._core.batch.scan import BatchTable
from kafkalog.errors import CorruptIndex, CorruptRecord, IllegalArgument
from kafkalog.records.format import BATCH_OVERHEAD_BYTES, LOG_OVERHEAD_BYTES, MAGIC_V2
from kafkalog.storage.file_slice import HEADER_BYTES, FileSlice
from kafkalog.tools.dump.batch_records import largest_timestamp
from kafkalog.tools.render_errors import MIN_SIZE, size_error
from kafkalog.util.fileio import File, FileSystem
from kafkalog.util.os_errors import os_errors

_HEAD_BYTES: Final = 27  # up to the last offset delta of a v2 batch
_LAST_DELTA_AT: Final = 23
_BY_HEADER: Final = range(MAGIC_V2, 128)
_HINT: Final = "the index does not point to a batch: `kafkalog repair --rebuild-indexes --apply` rebuilds it"


class BatchPlace(NamedTuple):
    """A batch's position and size in its file, and the offset of its last record."""

    position: int
    size: int
    last_offset: int


class Chain:
    """Adjacent batches, as columns; the last one is complete."""

    def __init__(self) -> None:
        self.positions = array("q")
        self.last_offsets = array("q")
        self.end = 0

    def add(self, table: BatchTable) -> None:
        """Append the batches of a table, which come next in the file."""
        self.positions.frombytes(memoryview(table.positions).tobytes())
        self.last_offsets.frombytes(memoryview(table.last_offsets).tobytes())
        self.end = table.stop_position

    def find(self, position: int) -> int:
        """Return the number of the batch that begins at `position`; -1 if there is none."""
        at = bisect_left(self.positions, position)
        return at if at < len(self.positions) and self.positions[at] == position else -1

    def place(self, n: int) -> BatchPlace:
        """Return batch number n."""
        position = self.positions[n]
        after = self.positions[n + 1] if n + 1 < len(self.positions) else self.end
        return BatchPlace(position, after - position, self.last_offsets[n])


class LogPeek:
    """A `.log` file open for reading single batches, or the chain of batches from a position."""

    def __init__(self, path: str, fs: FileSystem) -> None:
        with os_errors("open the log of this index", path):
            self._file: File = fs.open_file(path, "r")
            self.size = self._file.size()
        self.path = path

    def __enter__(self) -> LogPeek:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def check_position(self, position: int) -> None:
        """Raise CorruptIndex for a position outside the file."""
        if not 0 <= position <= self.size:
            raise CorruptIndex(
                f"an entry points to position {position}, but the log has {self.size} bytes",
                path=self.path,
                position=position,
                hint=_HINT,
            )

    def batch_at(self, position: int, limit: int) -> BatchPlace | None:
        """Return the batch that begins at `position`; None without a complete one of at most `limit` bytes.

        CorruptIndex for a position outside the file, CorruptRecord for an impossible size.
        """
        if limit < 0:
            raise IllegalArgument(f"--max-message-size must be at least 0, not {limit}", path=self.path)
        self.check_position(position)
        end = min(self.size, position + limit)
        if end - position <= HEADER_BYTES:
            return None
        head = FileSlice(self._file, position, _HEAD_BYTES).read()
        field = int.from_bytes(head[8:12], "big", signed=True)
        if field < MIN_SIZE:
            raise size_error(field, self.path, position, _HINT)
        size = LOG_OVERHEAD_BYTES + field
        if size > end - position:
            return None
        base_offset = int.from_bytes(head[:8], "big", signed=True)
        if head[HEADER_BYTES - 1] not in _BY_HEADER:
            return BatchPlace(position, size, base_offset)
        if self.size - position < BATCH_OVERHEAD_BYTES:
            raise CorruptRecord("the log ends inside a batch header", path=self.path, position=position)
        last_delta = int.from_bytes(head[_LAST_DELTA_AT:], "big", signed=True)
        return BatchPlace(position, size, base_offset + last_delta)

    def chain(self, position: int) -> Chain:
        """Return the adjacent batches from `position` to the end of the file, with their sizes and last offsets.

        CorruptRecord for an impossible size anywhere in the chain: the reference reads all of them.
        """
        chain = Chain()
        try:
            for table in FileSlice(self._file, position, self.size - position).tables():
                chain.add(table)
        except CorruptRecord as error:
            # the reference ignores a size field with so few bytes after it
            if error.position is None or self.size - error.position > HEADER_BYTES:
                raise
        return chain

    def largest_timestamp(self, place: BatchPlace) -> int:
        """Return the largest timestamp among the records of a batch, -1 if it has none."""
        batch = FileSlice(self._file, place.position, place.size).read()
        return largest_timestamp(batch, path=self.path, offset=place.last_offset, position=place.position)


def sibling_path(index_path: str, suffix: str) -> str:
    """Return the path of the same segment's file with another suffix."""
    return os.path.join(os.path.dirname(index_path), os.path.basename(index_path).split(".")[0] + suffix)
