"""Commit: writes a staged batch to its logs exactly once, through any crash.

    [lock]  ledger -> roll forward what is open -> landed before? -> intent -> append, sync -> mark -> sweep

Only this module writes to logs. Before the intent is written nothing is decided, and an error leaves everything
unchanged. Afterwards the batch will land, by this call or by the next commit to the directory. For a batch that keeps
its offsets, the plan of an import (`import_plan`) takes the place of the intent.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

from kafkalog.dirs.create import check_name_is_free
from kafkalog.errors import CorruptStagedFile, DirectoryLocked, IllegalState, KafkalogError, StorageError
from kafkalog.landing.import_plan import ImportPlan, KeptTarget, has_plans, read_plans, remove_plan, write_plan
from kafkalog.landing.kept_offsets import check_targets, land_plan
from kafkalog.landing.ledger import Intent, Ledger, Producer, Target, fresh_producer, read_ledger, write_ledger
from kafkalog.landing.partition_logs import PartitionLogs
from kafkalog.landing.staging import ONLY_BATCH, Job, StagedFile, StagedName, StageReader, sweep
from kafkalog.landing.topic_layout import read_layout
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.topics import TopicStore
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem

_LOG: Final = logging.getLogger(__name__)
_committing: Final = threading.Lock()  # one commit at a time in a process
LOCK_WAIT_MS: Final = 60_000
STAGING_AGE_MS: Final = 86_400_000
_LOCK_RETRY_MS: Final = 50
_DECIDED: Final = (
    "the batch is decided: records not yet in the logs are staged, and the next write to this directory appends them; "
    "do not write these records again under another id"
)


class StagedTopic(NamedTuple):
    """A topic as a task found it: its number of partitions, and the settings its batches were made for."""

    partitions: int
    rules: tuple[str, ...]


class StagedTask(NamedTuple):
    """Report of a task to the commit: its file, None without records, and the topics in it."""

    file: StagedFile | None
    topics: Mapping[str, StagedTopic]


class Committed(NamedTuple):
    """Result of a commit: `landed` is False if the batch was in the logs already, `records` is what this call added."""

    landed: bool
    records: int


class Committer:
    """Commits to one data directory, one at a time: a lock of the process and the directory's lock guard it."""

    def __init__(
        self,
        directory: str,
        *,
        lock_wait_ms: int = LOCK_WAIT_MS,
        staging_age_ms: int = STAGING_AGE_MS,
        fs: FileSystem = OS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.directory = os.path.realpath(directory)
        self._lock_wait_ms = lock_wait_ms
        self._staging_age_ms = staging_age_ms
        self._fs = fs
        self._clock = clock

    def commit(self, job: Job, batch_id: int, tasks: Sequence[StagedTask], *, keep: bool = True) -> Committed:
        """Write the batch `batch_id` of `job` to the logs, synced; skip a batch that landed before.

        Partitions get the tasks' records in the order of `tasks`. With `keep` the ledger remembers the batch, for a job
        that may run again. Raises DirectoryLocked if the lock was not free in time; CorruptStagedFile, IllegalState,
        StorageError. If the hint says that the batch is decided, it lands at the next commit; otherwise nothing was
        changed.
        """
        with self._hold_lock():
            ledger = self._finish_decided()
            if ledger.landed(job, batch_id):
                self._sweep(job, batch_id)
                _LOG.info("batch %d of %s is already in %s: nothing to append", batch_id, job, self.directory)
                return Committed(False, 0)
            records = self._land(ledger, job, batch_id, tasks, keep)
            self._sweep(job, batch_id)
        return Committed(True, records)

    def commit_kept(
        self, job: Job, targets: Sequence[KeptTarget], partitions: Mapping[str, int], *, keep: bool = True
    ) -> Committed:
        """Commit records that keep their offsets to empty partitions; see `commit`.

        `partitions` is the number of partitions that each topic must have. Raises IllegalState if a target is no longer
        empty, and TopicExists; nothing is changed then. Raises StorageError; once the plan is written, the remainder
        lands with the next commit. Raises FormatError for the damaged plan of another import, IllegalState if that
        import's partitions were written to.
        """
        with self._hold_lock():
            ledger = self._finish_decided()
            if ledger.landed(job, ONLY_BATCH):
                self._sweep(job, ONLY_BATCH)
                return Committed(False, 0)
            check_targets(self.directory, targets, partitions, fs=self._fs)
            plan = ImportPlan(job, tuple(targets), partitions, keep)
            write_plan(self.directory, plan, fs=self._fs)
            self._land_kept(ledger, plan)
            self._sweep(job, ONLY_BATCH)
        return Committed(True, sum(one.file.records for one in targets))

    def roll_forward(self) -> bool:
        """Finish decided batches and return True if there were any; errors as for `commit`."""
        with self._hold_lock():
            was_open = self._intent() is not None or has_plans(self.directory, fs=self._fs)
            self._finish_decided()
        return was_open

    def abort(self, job: Job, batch_id: int) -> None:
        """Delete what was staged for a batch, unless it is decided; files that cannot be deleted expire by age."""
        try:
            with _committing, LogDir.acquire(self.directory, fs=self._fs):
                intent = self._intent()
                keep = frozenset[str]() if intent is None else frozenset(one.name for one in intent.files)
                keep = keep.union(*(plan.files for plan in read_plans(self.directory, fs=self._fs)))
                sweep(self.directory, landed=StagedName(job, batch_id), keep=keep, fs=self._fs)
        except (KafkalogError, OSError) as error:
            _LOG.warning("cannot delete the staged files of %s, which will expire by age: %s", job, error)

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the directory's lock, which is retried until the lock wait ends."""
        deadline = self._clock.monotonic_ms() + self._lock_wait_ms
        with _committing:  # the directory's lock belongs to the process, so it does not exclude other threads
            with self._acquire_lock(deadline):
                yield

    def _acquire_lock(self, deadline: int) -> LogDir:
        while True:
            try:
                return LogDir.acquire(self.directory, fs=self._fs)
            except DirectoryLocked as error:
                if self._clock.monotonic_ms() >= deadline:
                    raise DirectoryLocked(
                        f"{error.message}; the commit waited {self._lock_wait_ms} ms for the lock and appended nothing",
                        path=error.path,
                        hint="stop the broker or the application that writes there; Spark's sink waits longer with a "
                        "greater lockWait",
                    ) from None
            self._clock.sleep(_LOCK_RETRY_MS)

    def _sweep(self, job: Job, batch_id: int) -> None:
        old_s = (self._clock.milliseconds() - self._staging_age_ms) / 1000
        sweep(self.directory, landed=StagedName(job, batch_id), before_s=old_s, fs=self._fs)

    def _land(self, ledger: Ledger, job: Job, batch_id: int, tasks: Sequence[StagedTask], keep: bool) -> int:
        files = tuple(task.file for task in tasks if task.file is not None)
        counts = self._records_by_partition(files)
        with ExitStack() as stack:
            logs = stack.enter_context(PartitionLogs(self.directory, fs=self._fs, clock=self._clock))
            make = self._required_partitions(tasks, counts)
            existing = [key for key in counts if logs.open_existing(key)]
            targets = tuple(Target(key, logs.end(key), 0, count) for key, count in counts.items())
            producer = ledger.producer.next()
            if any(logs.has_later_epoch(key, producer) for key in existing):
                producer = fresh_producer()
            intending = ledger.intending(Intent(job, batch_id, keep, producer, files, targets, make))
            self._decide(intending)
            rest = stack.pop_all()
            with _hint_decided(), rest:
                self._finish(intending, logs)
                rest.close()
                self._mark(intending)
        return sum(counts.values())

    def _intent(self) -> Intent | None:
        return read_ledger(self.directory, fs=self._fs).intent

    def _finish_decided(self) -> Ledger:
        """Return the ledger after everything decided has been written to the logs."""
        ledger = self._rolled_forward(read_ledger(self.directory, fs=self._fs))
        for plan in read_plans(self.directory, fs=self._fs):
            _LOG.warning("resuming the incomplete import of %s into %s", plan.job, self.directory)
            ledger = self._land_kept(ledger, plan)
            sweep(self.directory, landed=StagedName(plan.job, ONLY_BATCH), fs=self._fs)
        return ledger

    def _land_kept(self, ledger: Ledger, plan: ImportPlan) -> Ledger:
        """Write a plan's records to the logs and return the ledger."""
        land_plan(self.directory, plan, fs=self._fs, clock=self._clock)
        if plan.keep:
            ledger = ledger.marked(plan.job, ONLY_BATCH, self._clock.milliseconds())
            write_ledger(self.directory, ledger, fs=self._fs)
        remove_plan(self.directory, plan, fs=self._fs)
        return ledger

    def _rolled_forward(self, ledger: Ledger) -> Ledger:
        """Write the open intent, if any, to the logs and return the ledger."""
        intent = ledger.intent
        if intent is None:
            return ledger
        _LOG.warning("rolling forward incomplete batch %d of %s in %s", intent.batch_id, intent.job, self.directory)
        with _hint_decided(), ExitStack() as stack:
            logs = stack.enter_context(PartitionLogs(self.directory, fs=self._fs, clock=self._clock))
            targets = []
            for target in intent.targets:
                logs.open_existing(target.topic_partition)
                landed = logs.landed(target, intent.producer)
                targets.append(target._replace(start_offset=logs.end(target.topic_partition), landed=landed))
            ledger = ledger.intending(intent._replace(targets=tuple(targets)))
            write_ledger(self.directory, ledger, fs=self._fs)
            self._finish(ledger, logs)
            stack.close()
            return self._mark(ledger)

    def _decide(self, ledger: Ledger) -> None:
        """Write an intent; a StorageError says that the batch is decided if the ledger has it, or may have it."""
        try:
            write_ledger(self.directory, ledger, fs=self._fs)
        except StorageError as error:
            if self._may_be_decided(ledger.intent):
                _add_decided_hint(error)
            raise

    def _may_be_decided(self, intent: Intent | None) -> bool:
        try:
            return read_ledger(self.directory, fs=self._fs).intent == intent
        except KafkalogError:
            return True

    def _mark(self, ledger: Ledger) -> Ledger:
        done = ledger.done(self._clock.milliseconds())
        write_ledger(self.directory, done, fs=self._fs)
        return done

    def _records_by_partition(self, files: Sequence[StagedFile]) -> dict[TopicPartition, int]:
        """Return the records that each partition will get; raise CorruptStagedFile if a file changed since its task."""
        counts: dict[TopicPartition, int] = {}
        for staged in files:
            with StageReader(self.directory, staged, fs=self._fs) as reader:
                for section in reader.sections:
                    counts[section.topic_partition] = counts.get(section.topic_partition, 0) + section.records
        return dict(sorted(counts.items()))

    def _required_partitions(self, tasks: Sequence[StagedTask], counts: Iterable[TopicPartition]) -> dict[str, int]:
        """Return the partitions that each topic must have; raise IllegalState if its settings changed since staging.

        Raises TopicExists for a new topic whose name collides with another's.
        """
        make: dict[str, int] = {}
        for topic, number in counts:
            make[topic] = max(number + 1, make.get(topic, 0))
        for topic in make:
            found = [task.topics[topic] for task in tasks if topic in task.topics]
            layout = read_layout(self.directory, topic, fs=self._fs)
            if not layout.partitions:
                check_name_is_free([self.directory], topic, self.directory, self._fs, beside=make)
            if any(one.rules != layout.rules for one in found):
                raise IllegalState(
                    f"the settings of topic {topic} changed while the batch was staged", path=self.directory,
                    hint="run the write again: nothing was appended",
                )  # fmt: skip
            make[topic] = max([make[topic], layout.partitions, *(one.partitions for one in found)])
        return make

    def _finish(self, ledger: Ledger, logs: PartitionLogs) -> None:
        """Create missing partitions and append what is not in the logs yet."""
        intent = ledger.intent
        assert intent is not None
        for topic, count in intent.make.items():
            self._create_missing(topic, count, logs)
        if all(target.landed == target.records for target in intent.targets):
            return
        appender = _Appender(self.directory, intent, logs, self._fs)
        for staged in intent.files:
            appender.append(staged)
        appender.check()

    def _create_missing(self, topic: str, count: int, logs: PartitionLogs) -> None:
        missing = [key for key in (TopicPartition(topic, n) for n in range(count)) if not logs.exists(key)]
        if missing:
            TopicStore(self.directory, fs=self._fs).ensure(topic, partitions=count)
        for key in missing:
            logs.open_or_create(key)


class _Appender:
    """The records of an intent while they are appended to its logs."""

    def __init__(self, directory: str, intent: Intent, logs: PartitionLogs, fs: FileSystem) -> None:
        self._directory = directory
        self._producer: Producer = intent.producer
        self._targets = {target.topic_partition: target for target in intent.targets}
        self._passed = dict.fromkeys(self._targets, 0)
        self._logs = logs
        self._fs = fs
        for target in intent.targets:
            end = logs.end(target.topic_partition)
            if end != target.start_offset:
                raise IllegalState(
                    f"{target.topic_partition} ends at {end}, but the batch must begin at {target.start_offset}",
                    path=directory,
                    hint="another part of this process appends there: close its log while Spark writes here",
                )

    def append(self, staged: StagedFile) -> None:
        """Append the records of a staged file, except those that landed before."""
        with StageReader(self._directory, staged, fs=self._fs) as reader:
            for section in reader.sections:
                key = section.topic_partition
                target = self._targets.get(key)
                if target is None:
                    raise CorruptStagedFile(f"the staged file has records for {key}, the batch none", path=reader.path)
                passed = self._passed[key]
                self._passed[key] = passed + section.records
                if passed + section.records > target.landed:
                    batches = reader.read(section)
                    skip = max(target.landed - passed, 0)
                    self._logs.append(key, batches, skip, passed + skip, self._producer, reader.path, section.position)

    def check(self) -> None:
        """Raise IllegalState or CorruptStagedFile unless every partition got what the intent says."""
        for key, target in self._targets.items():
            if self._passed[key] != target.records:
                raise CorruptStagedFile(
                    f"{target.records} records were staged for {key}, but the files have {self._passed[key]}",
                    path=self._directory,
                )
            end = self._logs.end(key)
            if end != target.start_offset + target.records - target.landed:
                raise IllegalState(
                    f"{key} ends at {end} after {target.records - target.landed} records were appended at "
                    f"{target.start_offset}",
                    path=self._directory,
                )


@contextmanager
def _hint_decided() -> Iterator[None]:
    """Add to an error's hint that the batch is decided and will land."""
    try:
        yield
    except KafkalogError as error:
        _add_decided_hint(error)
        raise


def _add_decided_hint(error: KafkalogError) -> None:
    error.hint = f"{error.hint}; {_DECIDED}" if error.hint else _DECIDED


def give_up(directory: str, *, fs: FileSystem = OS) -> Intent | None:
    """Discard the open intent of a directory and return it, or None if there was none.

    For a batch whose staged files are lost. Records that landed stay, and the batch counts as not landed: run again
    under the same id, all of it lands. Raises DirectoryLocked, CorruptCheckpoint, StorageError.
    """
    real = os.path.realpath(directory)
    with _committing, LogDir.acquire(real, fs=fs):
        ledger = read_ledger(real, fs=fs)
        if ledger.intent is not None:
            write_ledger(real, ledger._replace(intent=None), fs=fs)
        return ledger.intent
