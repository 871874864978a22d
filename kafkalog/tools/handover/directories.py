"""`handover`: hand the topics in a broker's data directories over to the broker.

A KRaft broker renames every partition directory whose topic id its metadata does not know to `-stray`. A handover
writes topics, settings, partitions and ids into the metadata of a stopped node that is broker and controller in one.
They go into its metadata log or, if no controller has begun one, into the file that it will begin with. The partitions
stay where they are. Without `apply` nothing on disk changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from kafkalog.errors import (
    CorruptCheckpoint,
    CorruptRecord,
    IllegalState,
    KafkalogError,
    NotAPartition,
    UnknownTopicOrPartition,
)
from kafkalog.manager.log_dir import LogDir, is_locked
from kafkalog.manager.producer_ids import read_next_producer_id
from kafkalog.manager.topics import TopicEntry, TopicStore
from kafkalog.storage.names import (
    CLEAN_SHUTDOWN_FILE,
    MAX_NAME_LENGTH,
    STRAY_DIR_SUFFIX,
    lacks_base_offset,
    parse_dir,
)
from kafkalog.tools.directories import partitions
from kafkalog.tools.handover import journal as handover_journal
from kafkalog.tools.handover.apply import apply_plan, undo_changes
from kafkalog.tools.handover.expiry import broker_defaults, guard_records
from kafkalog.tools.handover.journal import Journal
from kafkalog.tools.handover.node import find_metadata, read_node
from kafkalog.tools.handover.plan import Found, HandoverPlan, Problem, make_plan, to_problem
from kafkalog.tools.handover.report import HandoverReport
from kafkalog.tools.handover.survey import TRANSACTION_STATE, PartitionSurvey, survey
from kafkalog.tools.verify.checkpoints import stops_a_broker
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import os_errors

__all__ = ["HandoverOptions", "HandoverReport", "handover", "undo_handover"]


@dataclass(frozen=True)
class HandoverOptions:
    """Options of a handover.

    topics: those to hand over, all by default; keep_records: remove the limits of age and size from topics whose
    records the broker would delete at once; let_expire: allow that; adopt: move partitions to the id that the broker
    has for a topic of that name; settings: the broker's own, where its server.properties differ from Kafka's defaults.
    """

    topics: Sequence[str] = ()
    keep_records: bool = False
    let_expire: bool = False
    adopt: bool = False
    settings: Mapping[str, object] | None = None


def handover(
    dirs: Sequence[str | os.PathLike[str]],
    *,
    apply: bool = False,
    metadata_dir: str | os.PathLike[str] | None = None,
    options: HandoverOptions = HandoverOptions(),
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
) -> HandoverReport:
    """Hand the topics in `dirs` over to the broker that the directories are formatted for; a dry run without `apply`.

    `dirs` has all of the broker's data directories with partitions of kafkalog's; `metadata_dir` is given if its
    metadata is in none of them. Everything is checked before anything changes; with a problem in the report nothing
    has changed. A repeated or interrupted handover does only the rest.

    With `apply` the locks of all directories are held: DirectoryLocked while a broker runs there. IllegalArgument for
    directories that are not formatted, or of several brokers; UnknownTopicOrPartition, NotAPartition,
    CorruptCheckpoint, CorruptRecord, StorageError.
    """
    homes = [os.path.realpath(path) for path in dirs]
    where = None if metadata_dir is None else os.path.realpath(metadata_dir)
    with ExitStack() as locks:
        if apply:
            find_metadata(homes, where, fs)  # before a lock file is made anywhere
            read_node(homes, fs)
            for path in dict.fromkeys([*homes, *([where] if where else [])]):
                locks.enter_context(LogDir.acquire(path, fs=fs))
        plan = _make_plan(homes, where, options, fs, clock)
        if not apply:
            busy = [path for path in homes if is_locked(path, fs=fs)]
            plan.notes += [f"{path} is in use: stop the broker before --apply" for path in busy]
        elif not plan.problems and not plan.is_done:
            apply_plan(plan, clock.milliseconds(), fs)
            _check_done(homes, where, options, plan, fs, clock)
        elif not plan.problems:  # the one before may have been interrupted at its very end
            handover_journal.mark_done(plan.metadata, fs)
        return HandoverReport(plan, apply and not plan.problems)


def _make_plan(
    homes: Sequence[str], where: str | None, options: HandoverOptions, fs: FileSystem, clock: Clock
) -> HandoverPlan:
    node = read_node([*homes, *([where] if where and where not in homes else [])], fs)
    metadata = find_metadata(homes, where, fs)
    entries: dict[str, TopicEntry] = {}
    deleted: dict[str, str] = {}
    for directory in reversed(homes):
        topics_here = TopicStore(directory, fs=fs).topics()
        entries |= topics_here
        deleted |= {name: directory for name, entry in topics_here.items() if entry.is_deleted}
    has_coordinator = TRANSACTION_STATE in metadata.main.image.topics
    selected = options.topics and [*options.topics, *[TRANSACTION_STATE] * has_coordinator]
    found, broken = _survey_partitions(homes, selected, fs)
    names = set(options.topics) or {*found, *entries}
    missing = sorted(names - {*found, *entries})
    if missing:
        raise UnknownTopicOrPartition(
            f"there is no topic {missing[0]}",
            path=os.pathsep.join(homes),
            hint=f"topics here: {', '.join(sorted({*found, *entries})[:8]) or 'none'}",
        )
    topics = {name: Found(entries.get(name), found.get(name, ())) for name in names}
    given = max(read_next_producer_id(path, fs=fs) for path in homes)
    ended = frozenset(end for one in found.get(TRANSACTION_STATE, ()) for end in one.ends)
    plan = make_plan(
        node, metadata, topics, home=homes[0], adopt=options.adopt, next_producer_id=given, ended=ended
    )
    plan.problems += [*(to_problem(error) for error in broken), *_foreign_problems(homes, fs)]
    for name in sorted(names & deleted.keys()):
        plan.refuse(
            f"the delete of topic {name} in {deleted[name]} was interrupted",
            "`kafkalog topics delete --apply` completes it; or name the topics to hand over with -t",
        )
    if any(found.values()):
        plan.notes += [
            f"{path} was not closed cleanly: the broker will recover its partitions"
            for path in homes
            if not fs.exists(os.path.join(path, CLEAN_SHUTDOWN_FILE))
        ]
    plan.notes += _stray_notes(homes, options.topics, fs)
    defaults = broker_defaults(plan, options.settings or {})
    guard_records(
        plan, defaults, clock.milliseconds(), fs, keep=options.keep_records, let_expire=options.let_expire
    )
    return plan


def _survey_partitions(
    homes: Sequence[str], topics: Sequence[str], fs: FileSystem
) -> tuple[dict[str, list[PartitionSurvey]], list[KafkalogError]]:
    """Return the partitions by topic, and the errors of those that a broker cannot use."""
    found: dict[str, list[PartitionSurvey]] = {}
    broken: list[KafkalogError] = []
    for topic_partition, path in partitions(homes, fs=fs):
        if topics and topic_partition.topic not in topics:
            continue
        try:
            found.setdefault(topic_partition.topic, []).append(survey(topic_partition, path, fs))
        except (CorruptRecord, CorruptCheckpoint, NotAPartition) as error:
            broken.append(error)
    return found, broken


def _foreign_problems(homes: Sequence[str], fs: FileSystem) -> list[Problem]:
    """Return a problem for each directory, and each file of a partition, with which no broker starts."""
    problems = []
    hint = "move it out of the data directory"
    for home in homes:
        for path in (os.path.join(home, name) for name in sorted(fs.names(home))):
            if not fs.is_directory(path):
                continue
            if stops_a_broker(os.path.basename(path)):
                problems.append(Problem(f"{path} is no partition directory: the broker would not start", hint))
                continue
            with os_errors("list the directory", path):
                names = fs.names(path)
            for name in sorted(filter(lacks_base_offset, names)):
                file = os.path.join(path, name)
                if not fs.is_directory(file):
                    problems.append(Problem(f"{file} has no base offset in its name: the broker would not start", hint))
    return problems


def _stray_notes(homes: Sequence[str], topics: Sequence[str], fs: FileSystem) -> list[str]:
    """Return a note for each directory that a broker renamed as unknown, and how to restore it."""
    notes = []
    for home in homes:
        for name in sorted(fs.names(home)):
            try:
                (topic, number), kind = parse_dir(name)
            except NotAPartition:
                continue
            if kind != STRAY_DIR_SUFFIX or (topics and topic not in topics) or len(name) >= MAX_NAME_LENGTH:
                continue
            live = f"{topic}-{number}"
            conflict = "; a newer directory has its name" if fs.exists(os.path.join(home, live)) else ""
            path = os.path.join(home, name)
            notes.append(f"{path} was set aside by a broker{conflict}: to hand it over, rename it to {live} first")
    return notes


def _check_done(
    homes: Sequence[str], where: str | None, options: HandoverOptions, plan: HandoverPlan, fs: FileSystem, clock: Clock
) -> None:
    """Read the directories again; IllegalState if anything is left to do."""
    new_plan = _make_plan(homes, where, options, fs, clock)
    if not new_plan.is_done:
        raise IllegalState(
            "the handover was written, but reading it back gives another result",
            path=plan.metadata.path,
            hint="`kafkalog handover --undo` reverts it; please report this",
        )


def undo_handover(
    dirs: Sequence[str | os.PathLike[str]],
    *,
    metadata_dir: str | os.PathLike[str] | None = None,
    fs: FileSystem = OS,
) -> Journal:
    """Undo the newest handover if the broker has not run since, and return its journal.

    IllegalState if it has, or if there is no handover to undo; DirectoryLocked, CorruptCheckpoint, StorageError.
    """
    homes = [os.path.realpath(path) for path in dirs]
    where = None if metadata_dir is None else os.path.realpath(metadata_dir)
    with ExitStack() as locks:
        find_metadata(homes, where, fs)
        for path in dict.fromkeys([*homes, *([where] if where else [])]):
            locks.enter_context(LogDir.acquire(path, fs=fs))
        metadata = find_metadata(homes, where, fs)
        for metadata_copy in (metadata.main, *metadata.twins):
            if (journal := handover_journal.read(metadata_copy, fs)) is not None:
                undo_changes(metadata, metadata_copy, journal, fs)
                return journal
        raise IllegalState("there is no handover to undo", path=handover_journal.path_of(metadata.main))
