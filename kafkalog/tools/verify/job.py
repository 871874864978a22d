"""Check of one segment with all of its files, as one job for a thread."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from kafkalog.errors import StorageError
from kafkalog.storage import names
from kafkalog.tools.verify.deep import DeepCheck
from kafkalog.tools.verify.index import IndexBytes, check_index, read_index
from kafkalog.tools.verify.report import Findings, Severity, Sums
from kafkalog.tools.verify.segment import Progress, SegmentFacts, SegmentPass
from kafkalog.tools.verify.small_files import unreadable
from kafkalog.tools.verify.txn import TxnCheck
from kafkalog.util.fileio import File, FileSystem

MAX_SEGMENT_BYTES: Final = 2**31 - 1
TRIES: Final = 4
"""Maximum number of checks of files in use, while a problem remains."""
PAUSE_S: Final = 0.02


class State(NamedTuple):
    """State of a data directory: `is_live` while a process holds its lock, `is_clean` after a clean close.

    `log_start_offset` is one partition's, from its checkpoint if there is one: no one reads records below it.
    """

    is_live: bool = False
    is_clean: bool = False
    log_start_offset: int = 0


@dataclass(frozen=True)
class SegmentJob:
    """A segment to check. `is_last` of its partition; `with_indexes` False for a file that has none (a snapshot).

    `next_base_offset` is that of the next segment, None if there is none or it is unknown.
    """

    path: str
    base_offset: int
    size: int
    is_last: bool
    state: State
    with_indexes: bool = True
    require_indexes: bool = True
    next_base_offset: int | None = None

    def beside(self, suffix: str) -> str:
        """Return the path of another file of the same segment."""
        stem, _, rest = os.path.basename(self.path).partition(names.LOG_SUFFIX)
        return os.path.join(os.path.dirname(self.path), f"{stem}{suffix}{rest}")


class SegmentOutcome(NamedTuple):
    """Result of a job: the facts are None if the file could not be read; `files` is the number of checked files."""

    facts: SegmentFacts | None
    findings: Findings
    files: int

    @property
    def sums(self) -> Sums:
        """Amounts that the job checked; the caller counts segments, since not every file of batches is one."""
        facts = self.facts
        if facts is None:
            return Sums(files=self.files)
        return Sums(files=self.files, bytes=facts.size, batches=facts.batches, records=facts.records)


def check_segment(
    job: SegmentJob, *, deep: bool, check_crc: bool, fs: FileSystem, progress: Progress | None = None
) -> SegmentOutcome:
    """Check a segment and its indexes. Neither the files' content nor the system's refusal to read them raises.

    If the owner runs, it may truncate, roll and compact between two reads. A problem then counts only if a second check
    of the files finds it too.
    """
    outcome = _check_files(job, deep, check_crc, fs, progress)
    for attempt in range(1, TRIES):
        if not job.state.is_live or not outcome.findings.problems():
            break
        time.sleep(attempt * PAUSE_S)
        current_job = _refreshed(job, fs)
        if current_job is None:
            findings = Findings(job.path)
            findings.add(Severity.NOTE, "changed", "the segment was deleted while it was checked")
            return SegmentOutcome(None, findings, 0)
        before = outcome.findings
        outcome = _check_files(current_job, deep, check_crc, fs, None)
        outcome.findings.drop_unconfirmed(before)
    return outcome


def _refreshed(job: SegmentJob, fs: FileSystem) -> SegmentJob | None:
    """Return the job for the file as it is now; None if it is gone."""
    try:
        status = fs.stat(job.path)
        logs = sorted(name for name in fs.listdir(os.path.dirname(job.path) or ".") if names.is_log_file(name))
    except FileNotFoundError:
        return None
    except OSError:
        return job
    own_name = os.path.basename(job.path)
    following = next((name for name in logs if name > own_name), None)
    next_base = job.next_base_offset
    if next_base is not None:  # its owner may have truncated the log, and appended past the start of that one
        next_base = None if following is None else names.parse_base_offset(following)
    is_last = not job.with_indexes or logs[-1:] == [own_name]
    return replace(job, size=status.st_size, is_last=is_last, next_base_offset=next_base)


def _check_files(
    job: SegmentJob, deep: bool, check_crc: bool, fs: FileSystem, progress: Progress | None
) -> SegmentOutcome:
    findings = Findings(job.path)
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
                is_of_damage=facts.kept != facts.good,
            )  # fmt: skip
    try:
        txn = TxnCheck(job.beside(names.TXN_INDEX_SUFFIX), facts, findings, fs, job.next_base_offset)
        files += txn.run(is_live=job.is_last and job.state.is_live)
    except StorageError as error:
        unreadable(findings, error, job.path)
    return SegmentOutcome(facts, findings, files)


def _read_indexes(job: SegmentJob, findings: Findings, fs: FileSystem) -> list[IndexBytes | None]:
    """Read the offset and the time index before the log, which only grows from then on."""
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
    if length > MAX_SEGMENT_BYTES:
        findings.add(
            Severity.DAMAGE, "size", f"the file has {length} bytes, and a segment at most {MAX_SEGMENT_BYTES}",
            hint="it is not a Kafka segment: Kafka refuses to open it",
        )  # fmt: skip
    entries = [b"" if index is None else index.entries for index in indexes] or [b"", b""]
    has_room = bool(indexes) and indexes[0] is not None and indexes[0].has_room
    return SegmentPass(
        file, job.base_offset, findings, fs=fs, length=length, is_last=job.is_last, is_live=job.state.is_live,
        is_clean=job.state.is_clean, check_crc=check_crc, log_start_offset=job.state.log_start_offset,
        entries=(entries[0], entries[1]), has_room=has_room, next_base_offset=job.next_base_offset, progress=progress,
    ).run()  # fmt: skip
