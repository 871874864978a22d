"""Data directories to back up, and their content: each record's value is its offset."""

import os
from pathlib import Path

import kafkalog

LOCK = ".lock"


def fill(data: Path, topic: str = "orders", partitions: int = 1, records: int = 600, **settings: object) -> None:
    """A topic of segments of about 40 records; record n of a partition has the value `value n`."""
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic(topic, partitions, {"segment.bytes": 2000, "index.interval.bytes": 200, **settings})
        for number in range(partitions):
            append(dirs[topic, number], records)


def append(log: kafkalog.Log, records: int) -> None:
    """So many records more, five in a batch."""
    for first in range(log.end_offset, log.end_offset + records, 5):
        log.append([(b"key %d" % (n % 7), b"value %d" % n, 1000 + n) for n in range(first, first + 5)])


def files(directory: Path) -> dict[str, bytes]:
    """All files below a directory but lock files, by their paths in it."""
    found = sorted(path for path in directory.rglob("*") if path.is_file() and path.name != LOCK)
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def offsets(partition: Path) -> list[int]:
    """The offsets in a partition directory; each record has to be the one that belongs there."""
    with kafkalog.open(partition) as log:
        found = [(record.offset, record.value) for record in log.records()]
    assert all(value == b"value %d" % offset for offset, value in found)
    return [offset for offset, _ in found]


def inodes(directory: Path) -> dict[str, int]:
    """The inode of each file below a directory."""
    return {str(p.relative_to(directory)): os.stat(p).st_ino for p in directory.rglob("*") if p.is_file()}
