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
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.topics import TopicStore
from kafkalog.spark.import_plan import ImportPlan, KeptTarget, has_plans, read_plans, remove_plan, write_plan
from kafkalog.spark.kept_offsets import check_targets, land_plan
from kafkalog.spark.ledger import Intent, Ledger, Producer, Target, fresh_producer, read_ledger, write_ledger
from kafkalog.spark.partition_logs import PartitionLogs
from kafkalog.spark.staging import ONLY_BATCH, Job, StagedFile, StagedName, StageReader, sweep
from kafkalog.spark.topic_layout import read_layout
from kafkalog.types import TopicPartition
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem

_LOG: Final = logging.getLogger(__name__)
_committing: Final = threading.Lock()  # one commit at a time in a process
LOCK_WAIT_MS: Final = 60_000
STAGING_AGE_MS: Final = 86_400_000
_LOOK_AGAIN_MS: Final = 50
_DECIDED: Final = (
    "the batch is decided: what did not land is staged, and lands at the next write to this directory; "
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
        with self._held():
            ledger = self._ready()
            if ledger.landed(job, batch_id):
                self._sweep(job, batch_id)
                _LOG.info("batch %d of %s is in %s already: nothing is appended", batch_id, job, self.directory)
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
        with self._held():
            ledger = self._ready()
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
        with self._held():
            was_open = self._intent() is not None or has_plans(self.directory, fs=self._fs)
            self._ready()
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
            _LOG.warning("staged files of %s stay until they are swept by age: %s", job, error)

    @contextmanager
    def _held(self) -> Iterator[None]:
        """Hold the directory's lock, which is retried until the lock wait ends."""
        deadline = self._clock.monotonic_ms() + self._lock_wait_ms
        with _committing:  # the directory's lock belongs to the process, so it does not exclude other threads
            with self._locked(deadline):
                yield

    def _locked(self, deadline: int) -> LogDir:
        while True:
            try:
                return LogDir.acquire(self.directory, fs=self._fs)
            except DirectoryLocked as error:
                if self._clock.monotonic_ms() >= deadline:
                    raise DirectoryLocked(
                        f"{error.message}; the commit waited {self._lock_wait_ms} ms for it, nothing was appended",
                        path=error.path,
                        hint="stop the broker or the application that writes there, or raise the option lockWait",
                    ) from None
            self._clock.sleep(_LOOK_AGAIN_MS)

    def _sweep(self, job: Job, batch_id: int) -> None:
        old_s = (self._clock.milliseconds() - self._staging_age_ms) / 1000
        sweep(self.directory, landed=StagedName(job, batch_id), before_s=old_s, fs=self._fs)

    def _land(self, ledger: Ledger, job: Job, batch_id: int, tasks: Sequence[StagedTask], keep: bool) -> int:
        files = tuple(task.file for task in tasks if task.file is not None)
        wanted = self._wanted(files)
        with ExitStack() as stack:
            logs = stack.enter_context(PartitionLogs(self.directory, fs=self._fs, clock=self._clock))
            make = self._to_make(tasks, wanted)
            there = [key for key in wanted if logs.open_if_there(key)]
            targets = tuple(Target(key, logs.end(key), 0, count) for key, count in wanted.items())
            producer = ledger.producer.next()
            if any(logs.knows_later(key, producer) for key in there):
                producer = fresh_producer()
            intending = ledger.intending(Intent(job, batch_id, keep, producer, files, targets, make))
            self._decide(intending)
            rest = stack.pop_all()
            with _decided(), rest:
                self._finish(intending, logs)
                rest.close()
                self._mark(intending)
        return sum(wanted.values())

    def _intent(self) -> Intent | None:
        return read_ledger(self.directory, fs=self._fs).intent

    def _ready(self) -> Ledger:
        """Return the ledger after everything decided has been written to the logs."""
        ledger = self._rolled_forward(read_ledger(self.directory, fs=self._fs))
        for plan in read_plans(self.directory, fs=self._fs):
            _LOG.warning("the import of %s did not land whole in %s: it goes on", plan.job, self.directory)
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
        _LOG.warning("batch %d of %s did not land whole in %s: it is rolled forward", intent.batch_id, intent.job,
                     self.directory)  # fmt: skip
        with _decided(), ExitStack() as stack:
            logs = stack.enter_context(PartitionLogs(self.directory, fs=self._fs, clock=self._clock))
            targets = []
            for target in intent.targets:
                logs.open_if_there(target.topic_partition)
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
                _tell_decided(error)
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

    def _wanted(self, files: Sequence[StagedFile]) -> dict[TopicPartition, int]:
        """Return the records that each partition will get; raise CorruptStagedFile if a file changed since its task."""
        wanted: dict[TopicPartition, int] = {}
        for staged in files:
            with StageReader(self.directory, staged, fs=self._fs) as reader:
                for section in reader.sections:
                    wanted[section.topic_partition] = wanted.get(section.topic_partition, 0) + section.records
        return dict(sorted(wanted.items()))

    def _to_make(self, tasks: Sequence[StagedTask], wanted: Iterable[TopicPartition]) -> dict[str, int]:
        """Return the partitions that each topic must have; raise IllegalState if its settings changed since staging.

        Raises TopicExists for a new topic whose name collides with another's.
        """
        make: dict[str, int] = {}
        for topic, number in wanted:
            make[topic] = max(number + 1, make.get(topic, 0))
        for topic in make:
            found = [task.topics[topic] for task in tasks if topic in task.topics]
            layout = read_layout(self.directory, topic, fs=self._fs)
            if not layout.partitions:
                check_name_is_free([self.directory], topic, self.directory, self._fs)
            if any(one.rules != layout.rules for one in found):
                raise IllegalState(
                    f"the settings of topic {topic} changed while the batch was staged", path=self.directory,
                    hint="run the write again: nothing of it was appended",
                )  # fmt: skip
            make[topic] = max([make[topic], layout.partitions, *(one.partitions for one in found)])
        return make

    def _finish(self, ledger: Ledger, logs: PartitionLogs) -> None:
        """Create missing partitions and append what is not in the logs yet."""
        intent = ledger.intent
        assert intent is not None
        for topic, count in intent.make.items():
            self._make(topic, count, logs)
        if all(target.landed == target.records for target in intent.targets):
            return
        appender = _Appender(self.directory, intent, logs, self._fs)
        for staged in intent.files:
            appender.append(staged)
        appender.check()

    def _make(self, topic: str, count: int, logs: PartitionLogs) -> None:
        missing = [key for key in (TopicPartition(topic, n) for n in range(count)) if not logs.is_there(key)]
        if missing:
            TopicStore(self.directory, fs=self._fs).ensure(topic, partitions=count)
        for key in missing:
            logs.make(key)


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
                    f"{target.topic_partition} ends at {end}, the batch was to begin at {target.start_offset}",
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
                    raise CorruptStagedFile(f"the batch has nothing for {key}, the staged file has", path=reader.path)
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
                    f"{target.records} records are staged for {key}, the files have {self._passed[key]}",
                    path=self._directory,
                )
            end = self._logs.end(key)
            if end != target.start_offset + target.records - target.landed:
                raise IllegalState(
                    f"{key} ends at {end} after {target.records - target.landed} records from "
                    f"{target.start_offset} on were appended",
                    path=self._directory,
                )


@contextmanager
def _decided() -> Iterator[None]:
    """Add to an error's hint that the batch is decided and will land."""
    try:
        yield
    except KafkalogError as error:
        _tell_decided(error)
        raise


def _tell_decided(error: KafkalogError) -> None:
    error.hint = f"{error.hint}; {_DECIDED}" if error.hint else _DECIDED


def give_up(directory: str, *, fs: FileSystem = OS) -> Intent | None:
    """Discard the open intent of a directory and return it, or None if there was none.

    For a batch whose staged files are lost. Records that landed stay, and the batch counts as not landed: run again
    under the same id, all of it lands. Raises DirectoryLocked, CorruptCheckpoint, StorageError.
    under the same id, all of it lands. DirectoryLocked, CorruptCheckpoint, StorageError.
    """
    real = os.path.realpath(directory)
    with _committing, LogDir.acquire(real, fs=fs):
        ledger = read_ledger(real, fs=fs)
        if ledger.intent is not None:
            write_ledger(real, ledger._replace(intent=None), fs=fs)
        return ledger.intent
