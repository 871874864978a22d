"""Complaints of the dump tool about its files: collected while it prints, written to stderr at the end (A8)."""

from __future__ import annotations

import os
from typing import BinaryIO, Final

from kafkalog.util.java_hash import java_hash

Pair = tuple[int, int]
_FEWEST_BUCKETS: Final = 16


class Complaints:
    """Pairs of numbers that should agree, by kind and file; `write` prints them in the reference's order."""

    def __init__(self) -> None:
        self.index_mismatches: dict[str, list[Pair]] = {}
        """(offset in the index, last offset of the batch at its position)"""
        self.time_mismatches: dict[str, list[Pair]] = {}
        """(timestamp in the index, largest timestamp of its batch)"""
        self.times_out_of_order: dict[str, list[Pair]] = {}
        """(timestamp, timestamp of the entry before it)"""
        self.offsets_not_found: dict[str, list[Pair]] = {}
        """(offset in the time index, last offset of the batch that should hold it; -1: there is none)"""
        self.non_consecutive: dict[str, list[Pair]] = {}
        """(offset, offset of the record after it)"""

    def write(self, err: BinaryIO) -> None:
        """Write all complaints, if there are any.

        As in the reference, mismatches of an offset index come by falling offset, and offsets that are not followed by
        the next one by rising offset. Of several with the same first number only the last one counts. Within each kind,
        files are in the order of a Java hash map.
        """
        for path, pairs in _by_file(self.index_mismatches):
            by_offset = sorted(dict(pairs).items(), reverse=True)
            _write_pairs(err, f"Mismatches in :{_absolute(path)}", "  Index offset: {}, log offset: {}", by_offset)
        for kind, title, line in _TIME_KINDS:
            for path, pairs in _by_file(getattr(self, kind)):
                _write_pairs(err, f"{title} in :{_absolute(path)}", line, pairs)
        for path, pairs in _by_file(self.non_consecutive):
            by_offset = sorted(dict(pairs).items())
            _write_pairs(err, f"Non-consecutive offsets in {_absolute(path)}", "  {} is followed by {}", by_offset)


_TIME_KINDS: Final = (
    ("time_mismatches", "Found timestamp mismatch", "  Index timestamp: {}, log timestamp: {}"),
    ("times_out_of_order", "Found out of order timestamp", "  Index timestamp: {}, Previously indexed timestamp: {}"),
    (
        "offsets_not_found",
        "The following indexed offsets are not found",
        "Indexed offset: {}, found log offset: {}",
    ),
)


def _absolute(path: str) -> str:
    """Return the path with the working directory in front, as the reference names files in complaints."""
    return os.path.join(os.getcwd(), path)


def _by_file(found: dict[str, list[Pair]]) -> list[tuple[str, list[Pair]]]:
    """Return the pairs of each file in the order of a Java hash map keyed by full names.

    Names that share a bucket come latest first: `computeIfAbsent` puts a new one at the bucket's head.
    """
    buckets = _FEWEST_BUCKETS
    while len(found) > buckets * 3 // 4:
        buckets *= 2
    latest_first = list(found.items())[::-1]
    return sorted(latest_first, key=lambda one: _spread(_absolute(one[0])) & (buckets - 1))


def _spread(text: str) -> int:
    """Return a string's hash in a Java hash map: its hash code, the high half mixed into the low one."""
    value = java_hash(text)
    return value ^ value >> 16


def _write_pairs(err: BinaryIO, title: str, line: str, pairs: list[Pair]) -> None:
    lines = "".join(f"{line.format(*pair)}\n" for pair in pairs)
    err.write(os.fsencode(f"{title}\n{lines}"))
