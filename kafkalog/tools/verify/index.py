"""Check of a segment's `.index` and `.timeindex`: their own bytes first, then each entry against the log.

Correct entries are defined in format.md section 7: an offset entry names a batch by its position and its last offset, a
time entry the first batch of the file whose largest timestamp is as large.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkalog._core.log.index import OffsetEntries, TimeEntries, growing_offset_entries, growing_time_entries
from kafkalog.errors import StorageError
from kafkalog.tools.verify.report import Findings, Severity
from kafkalog.util.fileio import FileSystem

OFFSET_ENTRY: Final = 8
TIME_ENTRY: Final = 12
CHUNK_ENTRIES: Final = 16 << 10
REBUILD: Final = "`kafkalog repair --rebuild-indexes --apply` rebuilds it from the log, as Kafka's recovery does"
_OF_DAMAGE: Final = "its segment is damaged: `kafkalog repair --excise --apply` removes the damage and rebuilds it"


class IndexBytes(NamedTuple):
    """An index file's content: the ascending entries, and the kind of bytes that follow them.

    `rest` is "" for nothing, "zeros", "old" for other bytes in a file that ends in zeros (it was not closed, so they
    are entries of a log that was truncated since: format.md section 14, B1), or "other".
    """

    path: str
    entries: bytes
    size: int
    rest: str
    is_missing: bool = False

    @property
    def entry_size(self) -> int:
        """8 for an offset index, 12 for a time index."""
        return TIME_ENTRY if self.path.endswith(".timeindex") else OFFSET_ENTRY

    @property
    def entry_count(self) -> int:
        """Number of ascending entries."""
        return len(self.entries) // self.entry_size

    @property
    def has_room(self) -> bool:
        """True if the file ends in free space."""
        return self.rest in ("zeros", "old")


def read_index(path: str, fs: FileSystem, log_size: int) -> IndexBytes:
    """Read an index file's ascending entries; StorageError, except for a missing file.

    At most as many are kept as an index of a log of `log_size` bytes can have.
    """
    entry_size = TIME_ENTRY if path.endswith(".timeindex") else OFFSET_ENTRY
    most = (log_size // 14 + 1) * entry_size
    parts: list[bytes] = []
    kept_bytes, rest = 0, ""
    try:
        with fs.open_file(path, "r") as file:
            size = file.size()
            at, whole = 0, size - size % entry_size
            while at < whole and rest != "other":
                data = file.pread(min(CHUNK_ENTRIES * entry_size, whole - at), at)
                if not data:
                    break
                if not rest:
                    last = parts[-1][-entry_size:] if parts else b""
                    ascending = _count_ascending(entry_size, data, last) * entry_size
                    if ascending and kept_bytes < most:
                        parts.append(data[:ascending])
                        kept_bytes += ascending
                    data, at = data[ascending:], at + ascending
                if data:
                    rest = "zeros" if data.count(0) == len(data) and rest != "other" else "other"
                at += len(data)
            if rest == "other" and not any(file.pread(entry_size, whole - entry_size)):
                rest = "old"
    except FileNotFoundError:
        return IndexBytes(path, b"", 0, "", True)
    except OSError as error:
        raise StorageError.from_os(error, "read the index", path=path) from error
    return IndexBytes(path, b"".join(parts), size, rest)


def _count_ascending(entry_size: int, data: bytes, last: bytes) -> int:
    if entry_size == TIME_ENTRY:
        return (
            growing_time_entries(data, *TimeEntries(last, 0, 1).entry(0)) if last else growing_time_entries(data)
        )
    return growing_offset_entries(data, *OffsetEntries(last, 0, 1).entry(0)) if last else growing_offset_entries(data)


def check_index(
    index: IndexBytes,
    result: tuple[int, int, int, int, int, int],
    findings: Findings,
    *,
    base_offset: int,
    log_size: int,
    is_open: bool,
    is_live: bool,
    is_of_damage: bool = False,
) -> None:
    """Report faults in an index, given the results of the pass over the log for its entries (`BatchCheck`).

    `is_open`: the segment is the last one and was not closed, so free space after the entries, and old entries in it,
    are normal; with `is_live`, of a log in use, also in an index that is full. `is_of_damage`: batches of the segment
    contradict each other, so a rebuilt index would be wrong too.
    """
    name = "time index" if index.entry_size == TIME_ENTRY else "offset index"
    add = _Adder(index.path, findings, _OF_DAMAGE if is_of_damage else REBUILD)
    if index.is_missing:
        if log_size and not is_live:
            add(Severity.REPAIRABLE, "index-missing", f"the {name} is missing")
        return
    if index.size % index.entry_size:
        whole = index.size // index.entry_size * index.entry_size
        add(Severity.REPAIRABLE, "index-size", f"{index.size} bytes are not a whole number of entries", whole)
    if index.rest == "zeros" and not is_open:
        room = index.size - len(index.entries)
        what = f"{room} bytes of free space follow {index.entry_count} entries: no close cut it off"
        add(Severity.NOTE, "index-room", what)
    elif index.rest in ("old", "other"):
        total = index.size // index.entry_size
        severity = Severity.NOTE if (index.rest == "old" or is_live) and is_open else Severity.REPAIRABLE
        what = f"the entries stop ascending after {index.entry_count} of {total}"
        add(severity, "index-order", what, len(index.entries))
    _check_entries(index, result, add, base_offset, log_size, is_open, is_live)


def _check_entries(
    index: IndexBytes,
    result: tuple[int, int, int, int, int, int],
    add: _Adder,
    base_offset: int,
    log_size: int,
    is_open: bool,
    is_live: bool,
) -> None:
    matched, wrong, unusual, first, stated, found = result
    by_time = index.entry_size == TIME_ENTRY
    if wrong:
        position = first * index.entry_size
        more = f" ({wrong} of {index.entry_count} entries are wrong)" if wrong > 1 else ""
        severity = Severity.NOTE if is_live and is_open else Severity.REPAIRABLE
        add(severity, "index-entry", _entry_text(index, first, base_offset, stated, found) + more, position)
    if unusual:
        what = f"{unusual} of {index.entry_count} entries cover many batches, as before Kafka 3.9.1: lookups are right"
        if by_time:
            what = f"{unusual} of {index.entry_count} entries name an offset inside a batch: lookups are right"
        add(Severity.NOTE, "index-odd", what)
    left = index.entry_count - matched
    if left > 0:
        what = f"{left} of {index.entry_count} entries point past the last batch, which ends at position {log_size}"
        severity = Severity.NOTE if is_open and (index.rest or is_live) else Severity.REPAIRABLE
        add(severity, "index-behind", what, matched * index.entry_size)


def _entry_text(index: IndexBytes, number: int, base_offset: int, stated: int, found: int) -> str:
    entry = index.entries[number * index.entry_size :][: index.entry_size]
    if index.entry_size == TIME_ENTRY:
        offset = base_offset + int.from_bytes(entry[8:], "big", signed=True)
        actual = "no batch ends at that offset" if found < 0 else f"the largest there is {found}"
        if found == stated:
            actual = "an earlier batch has that timestamp already"
        return f"entry {number} says timestamp {stated} at offset {offset}, but {actual}"
    position = int.from_bytes(entry[4:], "big", signed=True)
    actual = "no batch begins there" if found < 0 else f"the batch there ends at offset {found}"
    return f"entry {number} says offset {stated} at position {position}, but {actual}"


class _Adder:
    """Reports findings about an index file, each with a hint."""

    def __init__(self, path: str, findings: Findings, hint: str) -> None:
        self._path = path
        self._hint = hint
        self._findings = findings

    def __call__(self, severity: Severity, kind: str, what: str, position: int | None = None) -> None:
        hint = None if severity == Severity.NOTE else self._hint
        self._findings.add(severity, kind, what, position=position, path=self._path, hint=hint)
