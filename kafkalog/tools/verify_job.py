"""The check of one segment with all of its files, as one piece of work for a thread."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final, NamedTuple

from kafkalog.errors import StorageError
from kafkalog.storage import names
from kafkalog.tools.verify_deep import DeepCheck
from kafkalog.tools.verify_files import unreadable
from kafkalog.tools.verify_index import IndexBytes, check_index, read_index
from kafkalog.tools.verify_report import Findings, Severity
from kafkalog.tools.verify_segment import Progress, SegmentFacts, SegmentPass
from kafkalog.tools.verify_txn import TxnCheck
from kafkalog.util.fileio import File, FileSystem

MOST_SEGMENT_BYTES: Final = 2**31 - 1
TRIES: Final = 3
"""How often a segment is looked at anew when its owner replaced its files meanwhile."""


class State(NamedTuple):
    """How a data directory stands: `is_live` while a process holds its lock, `is_clean` when it was closed well."""

    is_live: bool = False
    is_clean: bool = False


@dataclass(frozen=True)
class SegmentJob:
    """A segment to look at. `is_last` of its partition; `with_indexes` False for a file that has none (a snapshot)."""

    path: str
    base_offset: int
    size: int
    inode: int
    is_last: bool
    state: State
    with_indexes: bool = True
    require_indexes: bool = True

    def beside(self, suffix: str) -> str:
        """Another file of the same segment."""
        stem, _, rest = os.path.basename(self.path).partition(names.LOG_SUFFIX)
        return os.path.join(os.path.dirname(self.path), f"{stem}{suffix}{rest}")


class SegmentOutcome(NamedTuple):
    """What came of a job: the facts are None where the file could not be read; `files` is how many were looked at."""

    facts: SegmentFacts | None
    findings: Findings
    files: int


def check_segment(
    job: SegmentJob, *, deep: bool, check_crc: bool, fs: FileSystem, progress: Progress | None = None
) -> SegmentOutcome:
    """Looks at a segment and its indexes. Nothing is raised for what the files hold or for what the system refuses.

    Where a running owner replaced or deleted the files meanwhile, they are looked at anew.
    """
    for attempt in range(TRIES):
        findings = Findings(job.path)
        outcome = _look(job, findings, deep, check_crc, fs, progress if attempt == 0 else None)
        if outcome.facts is None or not any(map(findings.has, Severity)) or not _was_replaced(job, fs, outcome.facts):
            return outcome
    findings = Findings(job.path)
    findings.add(Severity.NOTE, "changed", "the files were replaced again and again while they were looked at")
    return SegmentOutcome(None, findings, 0)


def _look(
    job: SegmentJob, findings: Findings, deep: bool, check_crc: bool, fs: FileSystem, progress: Progress | None
) -> SegmentOutcome:
    indexes = _read_indexes(job, findings, fs)
    facts, files = None, 0
    try:
        with fs.open_file(job.path, "r") as file:
            files = 1
            facts = _pass(job, file, indexes, findings, check_crc, fs, progress)
            if deep:
                decoded = DeepCheck(file, findings)
                decoded.run(facts.good)
                facts.records = decoded.records
    except FileNotFoundError:
        findings.add(Severity.NOTE, "changed", "the segment was deleted before it could be read")
        return SegmentOutcome(None, findings, 0)
    except StorageError as error:
        unreadable(findings, error, job.path)
    except OSError as error:
        unreadable(findings, StorageError.from_os(error, "open", path=job.path), job.path)
    if facts is None or not job.with_indexes:
        return SegmentOutcome(facts, findings, files)
    for index in indexes:
        if index is not None and (job.require_indexes or not index.is_missing):
            files += not index.is_missing
            by_time = index.path.endswith(names.TIME_INDEX_SUFFIX)
            check_index(
                index, facts.time_result if by_time else facts.index_result, findings,
                base_offset=job.base_offset, log_size=facts.good_end,
                is_open=job.is_last and not job.state.is_clean, is_live=job.state.is_live,
            )  # fmt: skip
    try:
        txn = TxnCheck(job.beside(names.TXN_INDEX_SUFFIX), facts, findings, fs)
        files += txn.run(is_live=job.is_last and job.state.is_live)
    except StorageError as error:
        unreadable(findings, error, job.path)
    return SegmentOutcome(facts, findings, files)


def _read_indexes(job: SegmentJob, findings: Findings, fs: FileSystem) -> list[IndexBytes | None]:
    """The offset and the time index, as they are before the log is read: it only grows from then on."""
    found: list[IndexBytes | None] = []
    for suffix in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX) if job.with_indexes else ():
        try:
            found.append(read_index(job.beside(suffix), fs, job.size))
        except StorageError as error:
            unreadable(findings, error, job.path)
            found.append(None)
    return found


def _pass(
    job: SegmentJob,
    file: File,
    indexes: list[IndexBytes | None],
    findings: Findings,
    check_crc: bool,
    fs: FileSystem,
    progress: Progress | None,
) -> SegmentFacts:
    length = file.size()
    if length > MOST_SEGMENT_BYTES:
        findings.add(
            Severity.DAMAGE, "size", f"the file has {length} bytes, a segment at most {MOST_SEGMENT_BYTES}",
            hint="it is no Kafka segment: Kafka refuses to open it",
        )  # fmt: skip
    entries = [b"" if index is None else index.entries for index in indexes] or [b"", b""]
    return SegmentPass(
        file, job.base_offset, findings, fs=fs, length=length, is_last=job.is_last, is_live=job.state.is_live,
        is_clean=job.state.is_clean, check_crc=check_crc, entries=(entries[0], entries[1]), progress=progress,
    ).run()  # fmt: skip


def _was_replaced(job: SegmentJob, fs: FileSystem, facts: SegmentFacts) -> bool:
    """True when the name stands for other bytes by now: compaction put a new file there, or a truncation cut it."""
    if not job.state.is_live:
        return False
    try:
        status = fs.stat(job.path)
    except OSError:
        return True
    return status.st_size < facts.size or status.st_ino != job.inode
