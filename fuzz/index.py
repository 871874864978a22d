"""Side files: offset and time index, transaction index, producer snapshot, checkpoints, partition.metadata."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from kafkalog._core.bytes.crc import crc32c
from kafkalog._core.log import index
from kafkalog._core.text.listing import list_entries
from kafkalog._core.text.text_buffer import TextBuffer
from kafkalog.errors import CorruptCheckpoint, CorruptSnapshot, FormatError
from kafkalog.storage.index.aborted_txns import parse_aborted_txns
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.storage.producer_snapshot import parse_snapshot
from kafkalog.util.checkpoint import OffsetCheckpoint

SEALS = False
TARGETS = [-(2**63), 0, 5, 2**62, 2**63 - 1]
MANY = array("q", TARGETS * 30)
FIRST = {b"0", b"1", b"+", b"-", b" ", b"v", b"\xc3", b""}  # what a text file may begin with
TEXT = TextBuffer()


class OneFile:
    """A file system whose only file holds the data, under any name."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def read_file(self, path: str, limit: int) -> bytes:
        """The data."""
        return self.content

    def open_file(self, path: str, mode: str) -> "OneFile":
        """The file is there already."""
        return self

    def close(self) -> None:
        """Nothing was opened."""


def run(data: memoryview) -> None:
    """Searches in entries that are in no order end inside them; the readers give entries or a typed error."""
    content = bytes(data)
    kind = data[-1] % 4 if len(data) else 3
    if content[:1] in FIRST:
        texts(OneFile(content))
    elif kind < 2:
        entries(data, *((index.OffsetEntries, 8), (index.TimeEntries, 12))[kind])
    elif kind == 2:
        parsed(parse_aborted_txns, content)
    else:
        parsed(parse_snapshot, content)
        parsed(parse_snapshot, content[:2] + crc32c(data[6:]).to_bytes(4, "big") + content[6:])


def parsed(parse: Callable[[bytes, str], Sequence[object]], content: bytes) -> None:
    """Parse a binary side file."""
    try:
        assert len(parse(content, "f")) <= len(content)
    except (CorruptSnapshot, FormatError) as error:
        assert error.path == "f"


def entries(data: memoryview, kind: Any, size: int) -> None:
    """Entries of one kind, searched one at a time and many at once, and listed."""
    base = int(data[-1] >> 2) << 57
    count = len(data) // size
    found = kind(data, base, count)
    for target in TARGETS:
        found.lookup(target)
        assert 0 <= found.count_below(target) <= count
    first, second = found.lookup_many(MANY if count > 9 else MANY[:9])
    assert len(first) == len(second)
    found.close()
    growing = index.growing_offset_entries if size == 8 else index.growing_time_entries
    assert 0 <= growing(data) <= count
    list_entries(TEXT, data[: count * size], base, times=size == 12, first=True)
    TEXT.clear()


def texts(fs: OneFile) -> None:
    """The small text files of a data directory."""
    for read in (
        lambda: OffsetCheckpoint("f", fs=fs).read(),  # type: ignore[arg-type]
        lambda: LeaderEpochCache.open("f", fs=fs),  # type: ignore[arg-type]
        lambda: read_partition_metadata(fs, "f"),  # type: ignore[arg-type]
    ):
        try:
            read()
        except CorruptCheckpoint as error:
            assert error.path
