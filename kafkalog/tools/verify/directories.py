"""`verify`: check that a data directory, a partition directory or a file is sound for a broker, also at URLs.

Files are opened for reading only, no lock is taken, and nothing is mapped: a broker may write, truncate and delete them
meanwhile. Damage never raises; it is in the report.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Final

from kafkalog._core.bytes import crc
from kafkalog.errors import IllegalArgument, IllegalState, NotAPartition, PartitionNotFound, StorageError
from kafkalog.storage import names
from kafkalog.tiered.open import located
from kafkalog.tools.directories import Path, path_list
from kafkalog.tools.verify.checkpoints import (
    BOOTSTRAP_FILE,
    METADATA_LOG,
    Checkpoints,
    check_directory_files,
    check_missing_partitions,
    compare_with_log,
    list_partitions,
    read_checkpoints,
    state_of,
)
from kafkalog.tools.verify.job import SegmentJob, SegmentOutcome, State, check_segment
from kafkalog.tools.verify.partition import (
    CHECKPOINT_SUFFIX,
    PartitionOutcome,
    PartitionPlan,
    join_partition,
    make_job,
    plan_partition,
)
from kafkalog.tools.verify.report import Finding, Findings, Report, Severity, Sums
from kafkalog.tools.verify.segment import Progress
from kafkalog.tools.verify.small_files import check_epochs, check_snapshot, check_topic_id, unreadable
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import list_names
from kafkalog.util.readahead import usable_cores

__all__ = ["Finding", "Report", "Severity", "is_partition", "total_bytes", "verify", "verify_elsewhere"]

MAX_THREADS: Final = 256
LookAll = Callable[[Sequence[SegmentJob]], Iterable[SegmentOutcome]]


def verify(
    paths: Path | Iterable[Path],
    *,
    deep: bool = False,
    indexes_only: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
    fs: FileSystem | None = None,
    tiered: Path | None = None,
) -> Report:
    """Check data directories, partition directories and files, or their URLs in one store; return a report.

    `deep` decodes every record too; `indexes_only` skips checksums and compares indexes with batch headers. `threads`
    is one for each core by default; `progress` is called with the bytes checked, from any thread. With `tiered`, the
    URL or description of a tiered store (docs/tiered.md), partitions are checked whole.

    Raises PartitionNotFound for a missing path, NotAPartition for a path without files of Kafka, IllegalArgument for
    fewer than 1 thread, and for directories among URLs; MissingPackage; StorageError if the store cannot be reached;
    IllegalState if this machine computes wrong checksums. Damaged or unreadable data is a finding in the report and
    never raised.

    >>> log.flush()
    >>> print(verify("data", deep=True))
    1 partition, 1 segment, 92 bytes, 1 batch, 2 records: sound
    """
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise IllegalArgument(f"threads is {threads}: give 1 to {MAX_THREADS}")
    if deep and indexes_only:
        raise IllegalArgument("deep and indexes_only are both given", hint="omit one of them")
    fs, given = _located(paths, fs, tiered)
    return _Run(deep, not indexes_only, progress, fs).report(given, threads or usable_cores())


def _located(
    paths: Path | Iterable[Path], fs: FileSystem | None, tiered: Path | None = None
) -> tuple[FileSystem, list[str]]:
    """Return the file system and the paths in it: `fs` if given, else as `located` does."""
    given = path_list(paths)
    return located(given, tiered) if fs is None else (fs, given)


def verify_elsewhere(
    paths: Iterable[Path], look_all: LookAll, *, deep: bool = False, indexes_only: bool = False, fs: FileSystem = OS
) -> Report:
    """Return the same report as `verify`, with all batch files checked by one call of `look_all`.

    It gets the jobs, largest files first, and returns the result of `check_segment` for each, in their order. The rest,
    listing directories and combining results, is done here. Errors as for `verify`.
    """
    return _Run(deep, not indexes_only, None, fs, look_all).report(list(paths), 1)


class _Run:
    """One call of `verify`: its options, and the work of all threads."""

    def __init__(
        self, deep: bool, check_crc: bool, progress: Progress | None, fs: FileSystem, look_all: LookAll | None = None
    ) -> None:
        self.deep = deep
        self.check_crc = check_crc
        self.progress = progress
        self.fs = fs
        self._look_all = look_all
        self._jobs: list[SegmentJob] = []
        self._done: dict[SegmentJob, SegmentOutcome] = {}

    def report(self, paths: Sequence[Path], threads: int) -> Report:
        """Verify the paths and return the report."""
        check_checksums()
        targets = [self.target(os.fspath(path)) for path in paths]
        self.work(threads)
        findings, sums = Findings(""), Sums()
        for target in targets:
            target.finish()
            findings.extend(target.findings)
            sums.add(target.sums)
        return Report(tuple(findings.all()), sums)

    def target(self, path: str) -> _Target:
        """Return the part for a path."""
        path = path.rstrip("/") or path
        if not self.fs.exists(path):
            raise PartitionNotFound("there is no such file or directory", path=path, hint="check the path")
        if not self.fs.is_directory(path):
            return _FileTarget(self, path)
        if is_partition(path, self.fs):
            return _DirectoryTarget(self, os.path.dirname(os.path.abspath(path)), [path])
        return _DirectoryTarget(self, path, None)

    def add(self, jobs: Sequence[SegmentJob]) -> None:
        """Add jobs; a file given twice is checked once."""
        self._jobs += jobs

    def work(self, threads: int) -> None:
        """Run all jobs, large files first, so that no large one is left for the end, when other threads are idle."""
        jobs = sorted(dict.fromkeys(self._jobs), key=lambda one: -one.size)
        if self._look_all is not None:
            self._done = dict(zip(jobs, self._look_all(jobs), strict=True))
            return
        if threads == 1 or len(jobs) < 2:
            self._done = {job: self.look(job) for job in jobs}
            return
        with ThreadPoolExecutor(min(threads, len(jobs), MAX_THREADS), "kafkalog-verify") as pool:
            try:
                self._done = dict(zip(jobs, pool.map(self.look, jobs), strict=True))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def look(self, job: SegmentJob) -> SegmentOutcome:
        """Run one job."""
        return check_segment(job, deep=self.deep, check_crc=self.check_crc, fs=self.fs, progress=self.progress)

    def outcomes(self, jobs: Sequence[SegmentJob]) -> list[SegmentOutcome]:
        """Return the results of the jobs."""
        return [self._done[job] for job in jobs]


class _Target:
    """The result for one given path; `finish` fills findings and sums once the jobs are done."""

    def __init__(self, run: _Run) -> None:
        self.run = run
        self.findings: list[Finding] = []
        self.sums = Sums()

    def finish(self) -> None:
        """Combine the results of the jobs."""
        raise NotImplementedError


class _DirectoryTarget(_Target):
    """A data directory with all of its partitions, or with given ones (then its own files are not reported)."""

    def __init__(self, run: _Run, directory: str, partitions: list[str] | None) -> None:
        super().__init__(run)
        self._directory = directory
        self._own = Findings(directory)
        self._state = state_of(directory, run.fs)
        self._checkpoints: Checkpoints = read_checkpoints(directory, None if partitions else self._own, run.fs)
        self._files: list[SegmentJob] = []
        if partitions is None:
            partitions = self._list_partitions()
        self._plans = [plan for plan in map(self._plan, partitions) if plan is not None]
        for plan in self._plans:
            run.add(plan.jobs)

    def _list_partitions(self) -> list[str]:
        fs = self.run.fs
        found = list_partitions(self._directory, self._own, fs)
        bootstrap = os.path.join(self._directory, BOOTSTRAP_FILE)
        if not found and not fs.exists(os.path.join(self._directory, names.META_PROPERTIES)):
            raise NotAPartition(
                "there is no partition in the directory", path=self._directory,
                hint="give a data directory, a partition directory (<topic>-<number>) or files of one",
            )  # fmt: skip
        check_directory_files(self._directory, self._state, self._own, fs)
        if not self._state.is_live:
            check_missing_partitions(self._directory, self._checkpoints, self._own, fs)
        if fs.exists(bootstrap):
            job = make_job(bootstrap, State(), True, fs, base_offset=0, with_indexes=False)
            self._files = [job] if job is not None else []
            self.run.add(self._files)
        return [os.path.join(self._directory, name) for name in found]

    def _plan(self, path: str) -> PartitionPlan | None:
        key = _partition_of(os.path.basename(path))
        start = 0 if key is None else self._checkpoints.log_start.get(key, 0)
        try:
            return plan_partition(path, self._state._replace(log_start_offset=start), self.run.fs)
        except StorageError as error:
            if not isinstance(error.__cause__, FileNotFoundError):  # a partition deleted meanwhile is no finding
                unreadable(self._own, error, path)
            return None

    def finish(self) -> None:
        fs = self.run.fs
        for plan in self._plans:
            name = os.path.basename(plan.path)
            is_compacted = _partition_of(name) in self._checkpoints.cleaner
            outcome = join_partition(plan, self.run.outcomes(plan.jobs), is_compacted=is_compacted, fs=fs)
            if self._state.is_live and plan.findings.problems():
                outcome = self._check_again(plan, is_compacted) or outcome
            self.findings += outcome.findings
            self.sums.add(outcome.sums)
            if not self._state.is_live:
                compare_with_log(self._directory, name, outcome, self._checkpoints, self._own)
        for outcome_of_file in self.run.outcomes(self._files):
            self.findings += outcome_of_file.findings.all()
            self.sums.files += outcome_of_file.files
        self.findings += self._own.all()

    def _check_again(self, plan: PartitionPlan, is_compacted: bool) -> PartitionOutcome | None:
        """Check a partition again whose files do not match: its owner may have changed them between two reads.

        Problems that the second check does not find are dropped.
        """
        new_plan = self._plan(plan.path)
        if new_plan is None:
            return None
        outcomes = [self.run.look(job) for job in new_plan.jobs]
        outcome = join_partition(new_plan, outcomes, is_compacted=is_compacted, fs=self.run.fs)
        seen, all_problems = plan.findings.problems(), new_plan.findings.problems()
        transient = all_problems - seen
        return outcome._replace(
            findings=[one for one in outcome.findings if (one.path, one.kind, one.position) not in transient]
        )


class _FileTarget(_Target):
    """One file of a partition directory; an index is compared with the log beside it."""

    def __init__(self, run: _Run, path: str) -> None:
        super().__init__(run)
        self._own = Findings(path)
        self._path = path
        self._jobs: list[SegmentJob] = []
        name, directory = os.path.basename(path), os.path.dirname(os.path.abspath(path))
        base, state = names.parse_base_offset(name), state_of(os.path.dirname(directory), run.fs)
        log = os.path.join(os.path.dirname(path), name.partition(".")[0] + names.LOG_SUFFIX)
        if base is not None and names.LOG_SUFFIX in (name[-4:], name[20:24]):
            self._add(path, state)  # also one pending deletion, or just cleaned
        elif name.endswith(names.INDEX_SUFFIXES) and base is not None:
            if not run.fs.exists(log):
                raise PartitionNotFound(
                    "the log of this index is missing", path=log, hint="an index is compared with its log"
                )
            self._add(log, state)
        elif name.endswith(CHECKPOINT_SUFFIX):
            job = make_job(path, State(), True, run.fs, base_offset=0, with_indexes=False)
            self._jobs = [job] if job is not None else []
            run.add(self._jobs)
        elif not self._check_small_file(name, path, directory):
            raise NotAPartition(
                "this is not a file of a partition directory", path=path,
                hint="a .log, .index, .timeindex, .txnindex, .snapshot or .checkpoint file can be verified",
            )  # fmt: skip

    def _add(self, log: str, state: State) -> None:
        fs = self.run.fs
        logs = sorted(name for name in fs.listdir(os.path.dirname(log) or ".") if names.is_log_file(name))
        is_last = os.path.basename(log) not in logs[:-1]
        job = make_job(log, state, is_last, fs, require_indexes=False)
        self._jobs = [job] if job is not None else []
        self.run.add(self._jobs)

    def _check_small_file(self, name: str, path: str, directory: str) -> bool:
        fs = self.run.fs
        if name.endswith(names.SNAPSHOT_SUFFIX):
            check_snapshot(path, None, self._own, fs)
        elif name == names.LEADER_EPOCH_CHECKPOINT:
            check_epochs(directory, self._own, fs)
        elif name == names.PARTITION_METADATA:
            check_topic_id(directory, self._own, fs)
        else:
            return False
        self.sums.files += 1
        return True

    def finish(self) -> None:
        only = self._path if self._path.endswith(names.INDEX_SUFFIXES) else None
        for outcome in self.run.outcomes(self._jobs):
            self.findings += [one for one in outcome.findings.all() if only in (None, one.path)]
            self.sums.add(outcome.sums)
            self.sums.segments += outcome.facts is not None
        self.findings += self._own.all()


def is_partition(path: str, fs: FileSystem) -> bool:
    """Return True if a directory holds segments, or has a partition's name and neither directories nor meta.properties.
    """
    listed = list_names(path, fs)
    if any(names.is_log_file(name) for name in listed):
        return True
    if names.META_PROPERTIES in listed or any(fs.is_directory(os.path.join(path, name)) for name in listed):
        return False
    try:
        names.parse_dir(os.path.basename(os.path.abspath(path)))
    except NotAPartition:
        return False
    return True


def total_bytes(
    paths: Path | Iterable[Path], fs: FileSystem | None = None, tiered: Path | None = None
) -> int:
    """Return the bytes of all segment files below the paths or URLs, for a progress bar; unreadable files count as 0.
    """
    total = 0
    fs, given = _located(paths, fs, tiered)
    for path in given:
        try:
            if not fs.is_directory(path):
                total += fs.stat(path).st_size
                continue
            for name in fs.listdir(path):
                below = os.path.join(path, name)
                if name.endswith(names.LOG_SUFFIX):
                    total += fs.stat(below).st_size
                elif "-" in name and fs.is_directory(below):
                    total += sum(
                        fs.stat(os.path.join(below, one)).st_size
                        for one in fs.listdir(below)
                        if one.endswith(names.LOG_SUFFIX)
                    )
        except OSError:
            continue
    return total


def _partition_of(name: str) -> TopicPartition | None:
    """Return the partition in a directory's name that checkpoints may have; None for others."""
    topic, _, number = name.rpartition("-")
    return TopicPartition(topic, int(number)) if number.isdigit() and name != METADATA_LOG else None


_SAMPLE: Final = bytes(range(256)) * 40 + b"end"
_LENGTHS: Final = (3, 100, 700, len(_SAMPLE))  # each takes another way through the widest kernel


@cache  # once for each process: the processor and the build stay what they are
def check_checksums() -> None:
    """Raise IllegalState if a kernel's checksum differs from that of the `crc32c` package or of zlib.

    Such a processor, or such a build, would report sound batches as damaged.
    """
    import crc32c

    for size in _LENGTHS:
        data = _SAMPLE[:size]
        for name, ours, theirs in (
            ("CRC-32C", crc.crc32c(data), crc32c.crc32c(data)),
            ("CRC-32", crc.crc32(data), zlib.crc32(data)),
        ):
            if ours != theirs:
                raise IllegalState(
                    f"the kernel {crc.implementation()} computes the {name} {ours} of {size} bytes, "
                    f"another implementation {theirs}",
                    hint="set KAFKALOG_CPU=portable, which uses no special instructions, and check the machine",
                )
