"""Excision: the damaged bytes to leave out of a segment, and the index entries to keep for them."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog.errors import FormatError, StorageError
from kafkalog.storage.index.aborted_txns import AbortedTxn, parse_aborted_txns
from kafkalog.tools.verify.job import SegmentJob
from kafkalog.tools.verify.report import Finding, Severity
from kafkalog.tools.verify.segment import SegmentFacts
from kafkalog.util.fileio import FileSystem


def damaged_pieces(job: SegmentJob, facts: SegmentFacts, *, with_tail: bool) -> tuple[Finding, ...]:
    """Return the damaged places of a segment in the order of its bytes; none if nothing is to be left out.

    The torn end of the last segment is one of them only `with_tail`, and never alone: it is cut off. A segment in which
    the search for sound batches was abandoned has none, since the rest is unknown.
    """
    if not all(place.is_searched for place in facts.places):
        return ()
    tail = facts.tail.position if job.is_last and facts.tail is not None else None
    inner = [place for place in facts.places if place.position != tail]
    chosen = facts.places if inner and with_tail else inner
    return tuple(
        Finding(
            Severity.DAMAGE, one.kind, facts.path, one.what, one.offset, one.position, size=one.size,
            last_sound_offset=one.last_sound_offset, next_sound_offset=one.next_sound_offset,
        )
        for one in chosen
    )  # fmt: skip


def sound_ranges(pieces: Sequence[Finding], size: int) -> list[tuple[int, int]]:
    """Return the ranges of the first `size` bytes of the segment between the pieces."""
    starts = [0, *((one.position or 0) + (one.size or 0) for one in pieces)]
    ends = [*(one.position or 0 for one in pieces), size]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if start < end]


def with_lost_markers(found: bytes, path: str, pieces: Sequence[Finding], fs: FileSystem) -> bytes:
    """Return the entries `found` for the transaction index at `path`, with those of markers in the damaged pieces.

    The log no longer has these markers; without the entries, readers would get the records of aborted transactions.
    StorageError.
    """
    lost = [one.lost for one in pieces if one.lost is not None]
    if not lost:
        return found
    known = _known_entries(path, fs)
    lost_entries = [one for one in known if any(first <= one.last_offset < end_offset for first, end_offset in lost)]
    entries: list[AbortedTxn] = [*parse_aborted_txns(found, path), *lost_entries]
    entries.sort(key=lambda one: one.last_offset)
    return b"".join(one.packed() for one in entries)


def below_end(path: str, end_offset: int, fs: FileSystem) -> bytes | None:
    """Return the entries of the transaction index at `path` below the segment's new end; None if all are. StorageError.

    As after a truncation, a marker above it is no longer in this segment.
    """
    known = _known_entries(path, fs)
    kept = [one for one in known if one.last_offset < end_offset]
    return None if len(kept) == len(known) else b"".join(one.packed() for one in kept)


def _known_entries(path: str, fs: FileSystem) -> list[AbortedTxn]:
    try:
        return parse_aborted_txns(fs.read_file(path, 1 << 30), path) if fs.exists(path) else []
    except FormatError:
        return []
    except OSError as error:
        raise StorageError.from_os(error, "read the index", path=path) from error
