"""`redact`: empty records of a topic in data directories without a running broker; a dry run by default."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kafkalog._core.clean.redact_rows import EMPTY, TOMBSTONE
from kafkalog.config.topic import LogConfig
from kafkalog.errors import IllegalArgument, UnknownTopicOrPartition
from kafkalog.keys.place import KeyIndexPlace
from kafkalog.manager.log_dir import LogDir
from kafkalog.reading.source import retried_if_replaced
from kafkalog.redact.copies import copies_of, leftovers_in, staged_in
from kafkalog.redact.report import Copy, RedactedSegment, RedactReport
from kafkalog.redact.rewrite import Rewritten, redact_log
from kafkalog.redact.search import Advance, Result, search, where_offsets
from kafkalog.redact.wanted import MODES, Change, Wanted
from kafkalog.storage.names import INTERNAL_TOPICS
from kafkalog.storage.readonly.view import LogView
from kafkalog.tiered.metadata_topic import TOPIC
from kafkalog.tiered.topics import is_tiered
from kafkalog.tools.directories import Path
from kafkalog.tools.offline_partition import OfflinePlan, in_locked_directories, open_offline
from kafkalog.tools.offline_survey import OfflineSurvey
from kafkalog.util.clock import SYSTEM_CLOCK, Clock
from kafkalog.util.fileio import OS, FileSystem
from kafkalog.util.os_errors import list_names

if TYPE_CHECKING:
    from kafkalog.redact.tiered import InStore

_UNSEARCHED = "segments in remote storage, which may hold such records; name their store: --tiered FILE"


@dataclass(frozen=True)
class RedactPlan(OfflinePlan):
    """A partition to search, what is wanted of it, and what becomes of that."""

    wanted: Wanted
    change: Change
    key_index: KeyIndexPlace


@dataclass(frozen=True)
class _Done:
    """The result for one partition."""

    segments: tuple[RedactedSegment, ...]
    found: Result
    copies: tuple[Copy, ...]
    left: int


def redact(
    paths: Path | Iterable[Path],
    topic: str,
    *,
    keys: Iterable[bytes] = (),
    offsets: Mapping[int, Iterable[int]] | None = None,
    where: str | None = None,
    typed: Mapping[str, Any] | None = None,
    partitions: Sequence[int] = (),
    change: str | None = None,
    erase_key: bool = False,
    remove_kept: bool = False,
    key_index: Path | None = None,
    tiered: Path | None = None,
    apply: bool = False,
    progress: Advance = lambda size: None,
    fs: FileSystem = OS,
    clock: Clock = SYSTEM_CLOCK,
) -> RedactReport:
    """Report which records of a topic are to be redacted; with `apply`, redact them and search again.

    A record is wanted if its key is one of `keys`, if its offset is in `offsets` (by partition), or if `where` is true
    for it; `typed` are the decoders of `where`, as keywords of `log.scan`. `partitions` restricts the search (none:
    all). `change` is "tombstone" (null value) or "empty" (value of 0 bytes; a null stays null), by default a tombstone
    in a compacted topic and else empty. Headers go in both; keys go with `erase_key`. Offsets, timestamps, producers,
    transactions, format and codec stay. `remove_kept` removes records that recovery kept, if they may be wanted.
    `key_index` is the directory of key indexes, by default they lie beside the segments. `progress` is called with the
    bytes of each segment searched. `tiered` is the store with the topic's tiered segments: its URL, or a file that
    describes it. They are redacted too: each with wanted records is replaced, by events in `__remote_log_metadata`.

    Without `apply` nothing is locked or changed, and a broker may run. With it the data directory is locked, and each
    segment with such records is replaced: an error or a crash leaves every record as it was or redacted, and another
    call completes the rest.

    IllegalArgument for no records, an internal topic, unknown settings without `change`, and `erase_key` in a compacted
    topic; UnknownTopicOrPartition, PartitionNotFound; InvalidRecord for a value that `where` cannot decode;
    CorruptRecord for damage, before the segment is changed; with `apply` DirectoryLocked, StorageError.

    >>> from kafkalog.redact import redact
    >>> print(redact(log.path, "orders", keys=[b"u-1"], change="empty").summary())
    1 record in 1 segment of 1 partition, ... bytes to rewrite, with empty: nothing was changed, give --apply
    """
    check_topic(topic)
    wanted = Wanted.of(keys, offsets or {}, where, typed or {})
    check_offsets(wanted, partitions)
    survey = OfflineSurvey.of(paths, [topic], fs=fs, clock=clock)
    config = survey.config_of(topic)
    made = change_of(change, erase_key, config, survey.known.settings_of(topic) is not None)
    plans = [
        RedactPlan(
            one, config, survey.now_ms, survey.mark_is_end(one), wanted, made, KeyIndexPlace(one.path, key_index, fs)
        )
        for one in survey.found
        if not partitions or one.topic_partition.partition in partitions
    ]
    check_partitions(topic, {plan.place.topic_partition.partition for plan in plans}, {*partitions, *wanted.offsets})
    in_store = []
    if tiered is not None:
        from kafkalog.redact.tiered_rewrite import redact_tiered

        in_store = redact_tiered([plan.place for plan in plans], wanted, made, tiered, apply, progress, fs, clock)
    if apply:
        done = in_locked_directories(
            plans, lambda log_dir, plan: _redact(log_dir, plan, remove_kept, fs, clock, progress), fs
        )
    else:
        done = [_look(plan, fs, progress) for plan in plans]
    unsearched = _UNSEARCHED if tiered is None and _may_be_tiered(survey, topic, fs) else None
    staged = [one for place in dict.fromkeys(plan.directory for plan in plans) for one in staged_in(place, topic, fs)]
    return _report(plans, done, in_store, staged, apply, unsearched)


def _report(
    plans: Sequence[RedactPlan],
    done: Sequence[_Done],
    in_store: Sequence[InStore],
    staged: Sequence[Copy],
    applied: bool,
    unsearched: str | None,
) -> RedactReport:
    held = tuple(segment for one in in_store for segment in one.held)
    is_proven = applied and unsearched is None
    copies = [copy for found in (done, in_store) for one in found for copy in one.copies]
    left = sum(one.left for one in done) + sum(one.left for one in in_store) + sum(one.records for one in held)
    return RedactReport(
        tuple(segment for found in (in_store, done) for one in found for segment in one.segments),
        _missing(plans, done, in_store, plans[0].wanted),
        (*copies, *staged),
        len(plans),
        plans[0].change.name,
        applied,
        left if is_proven else None,
        held=held,
        unsearched=unsearched,
    )


def _may_be_tiered(survey: OfflineSurvey, topic: str, fs: FileSystem) -> bool:
    """Return True for a tiered topic, and for one with unknown settings beside the metadata of tiered segments."""
    known = is_tiered(survey.known, topic)
    if known is not None:
        return known
    directories = {os.path.dirname(one.path) for one in survey.found}
    return any(name.startswith(f"{TOPIC}-") for one in directories for name in list_names(one, fs))


def change_of(name: str | None, erase_key: bool, config: LogConfig, is_known: bool) -> Change:
    """Return what becomes of the records of a topic with these settings; IllegalArgument if that is not clear."""
    if name is not None and name not in MODES:
        raise IllegalArgument(f"records cannot be redacted with {name!r}", hint=f"choose {' or '.join(MODES)}")
    if name is None and not is_known:
        raise IllegalArgument(
            "the topic's settings are unknown, so it may be compacted", hint="give --with tombstone or --with empty"
        )
    if erase_key and config.compact:
        raise IllegalArgument(
            "the topic is compacted: without their keys, records of several keys would replace each other",
            hint="omit --erase-key, and let compaction remove the tombstones",
        )
    value = MODES[name] if name is not None else TOMBSTONE if config.compact else EMPTY
    return Change(value, erase_key)


def check_topic(topic: str) -> None:
    """Raise IllegalArgument for an internal topic."""
    if topic in INTERNAL_TOPICS:
        raise IllegalArgument(
            f"{topic} has the state of groups or transactions, which a broker could not read with emptied records",
            hint="delete the group, or name a topic of records",
        )


def check_offsets(wanted: Wanted, partitions: Sequence[int]) -> None:
    """Raise IllegalArgument for offsets of a partition that is not searched."""
    outside = sorted(wanted.offsets.keys() - {*partitions}) if partitions else []
    if outside:
        raise IllegalArgument(
            f"offsets of partition {outside[0]} are named, but partition {outside[0]} is not searched",
            hint="omit the partitions, or include it",
        )


def check_partitions(topic: str, existing: set[int], named: set[int]) -> None:
    """Raise UnknownTopicOrPartition if a named partition does not exist."""
    absent = sorted(named - existing)
    if absent:
        numbers = ", ".join(map(str, sorted(existing)))
        raise UnknownTopicOrPartition(f"topic {topic} has no partition {absent[0]}", hint=f"it has {numbers}")


def _missing(
    plans: Sequence[RedactPlan], done: Sequence[_Done], in_store: Sequence[InStore], wanted: Wanted
) -> tuple[str, ...]:
    found: dict[int, set[int]] = {}
    results = [*(one.found for one in done), *(one.found for one in in_store)]
    for plan, result in zip([*plans, *(plans if in_store else ())], results, strict=True):
        found.setdefault(plan.place.topic_partition.partition, set()).update(result.offsets)
    return missing_names(wanted, {key for result in results for key in result.keys}, found)


def missing_names(wanted: Wanted, keys: set[bytes], offsets: Mapping[int, set[int]]) -> tuple[str, ...]:
    """Return the keys and offsets wanted of which there is no record: neither in `keys` nor in `offsets`."""
    names = [f"key {key.decode('utf-8', 'backslashreplace')!r}" for key in sorted(wanted.keys - keys)]
    for partition, rising in sorted(wanted.offsets.items()):
        found = offsets.get(partition, set())
        names += [f"offset {offset} of partition {partition}" for offset in rising if offset not in found]
    return tuple(names)


def _look(plan: RedactPlan, fs: FileSystem, progress: Advance) -> _Done:
    """Return what a redaction of a partition would change; nothing is locked or changed."""
    with LogView(plan.place.path, fs=fs) as view:  # a broker may clean the log meanwhile
        found, unseen = retried_if_replaced(view, lambda: _search(view, plan, progress))
    copies = copies_of(plan.place, plan.wanted, fs, remove=False)
    topic, number = plan.place.topic_partition
    segments = [
        RedactedSegment(topic, number, one.path, one.base_offset, len(one.offsets), one.size, None)
        for one in found.segments
    ]
    return _Done(tuple(segments), found, (*unseen, *copies), 0)


def _search(view: LogView, plan: RedactPlan, progress: Advance) -> tuple[Result, list[Copy]]:
    """Return the result of a search, and what it did not see."""
    by_condition = where_offsets(plan.place.path, plan.wanted, view.fs)
    result = search(
        view, plan.wanted, plan.change, plan.key_index, more_offsets=by_condition, advance=progress
    )
    first, start = view.segments[0].base_offset, view.log_start_offset
    unseen = []
    if plan.wanted.where is not None and first < start:
        what = f"offsets {first} to {start - 1} lie below the log start, where no condition is evaluated"
        unseen.append(Copy(plan.place.path, what))
    return result, unseen


def _redact(
    log_dir: LogDir, plan: RedactPlan, remove_kept: bool, fs: FileSystem, clock: Clock, progress: Advance
) -> _Done:
    """Redact a partition, whose data directory is locked; then search what was rewritten again."""
    path = plan.place.path
    with LogView(path, fs=fs) as view:
        found, unseen = _search(view, plan, progress)
    offsets = array("q", sorted({offset for one in found.segments for offset in one.offsets}))
    rewritten: list[Rewritten] = []
    if offsets or leftovers_in(path, fs):
        with open_offline(log_dir, plan, fs, clock) as log:
            rewritten += redact_log(log, offsets, plan.change, plan.key_index)
    left = 0
    if rewritten:
        bases = frozenset(one.base_offset for one in rewritten)
        again = replace(plan.wanted, where=None)
        with LogView(path, fs=fs) as view:
            after = search(view, again, plan.change, plan.key_index, more_offsets=offsets, only=bases)
        left = sum(len(one.offsets) for one in after.segments)
    copies = copies_of(plan.place, plan.wanted, fs, remove=remove_kept)
    topic, number = plan.place.topic_partition
    segments = [
        RedactedSegment(topic, number, one.path, one.base_offset, one.records, one.size, one.size_after)
        for one in rewritten
    ]
    return _Done(tuple(segments), found, (*unseen, *copies), left)
