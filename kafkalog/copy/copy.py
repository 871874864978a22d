"""`copy_topics` and `follow_topics`: one copy, or one after the other while the source grows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from kafkalog.copy.ends import Ends
from kafkalog.copy.plan import ISOLATIONS, OFFSETS
from kafkalog.copy.report import CopyReport
from kafkalog.copy.run import CopyRun, Options
from kafkalog.errors import IllegalArgument
from kafkalog.server.running import loop_factory
from kafkalog.storage.names import validate_topic
from kafkalog.util.clock import SYSTEM_CLOCK

POLL_EVERY_S: Final = 1.0
_LOOK_MS: Final = 100
_REFRESH_MS: Final = 24 * 3600 * 1000
"""Maximum time between two copies, so that the markers in a cluster do not expire."""


def copy_topics(
    source: str | Sequence[str],
    target: str,
    topics: Iterable[str] = (),
    *,
    groups: Iterable[str] | None = None,
    offsets: str = "auto",
    isolation: str = "read_uncommitted",
    tiered: str | None = None,
    to_tiered: str | None = None,
    settings: Mapping[str, str] | None = None,
    apply: bool = False,
    progress: Callable[[int], object] = lambda size: None,
) -> CopyReport:
    """Copy topics with their settings, records and groups' offsets; return what was copied and what is not kept.

    `source` is a cluster (`kafka://HOST:PORT,...`), data directories, a backup, a directory of backups, or a tiered
    store; `target` is a cluster, a data directory or a directory of backups (`backup:PATH`). Without `topics`, all but
    internal ones are copied; without `groups`, the offsets of all groups. Without `apply` nothing is written. After
    a kill or an error, the same call continues; every record is written once.

    `offsets`: "auto" keeps them as far as the target allows, "keep" requires that, "new" appends after other records
    of a topic in a cluster. `isolation` "read_committed" leaves out aborted records and markers of transactions in a
    directory; a cluster gets only committed records. `tiered` is the store with the tiered segments of a source of
    files: its URL, or a file that describes it (docs/tiered.md). `to_tiered` is a store that gets the closed segments
    of a target directory, too. `settings` are those of Kafka's clients, for one side
    with the prefix `source.` or `target.`. `progress` is called with the bytes written.

    Raises IllegalArgument, UnknownTopicOrPartition; TopicExists, IllegalState, InconsistentTopicId if the target has
    other records; CorruptRecord, OffsetOutOfRange, PeerError for the source, StorageError, DirectoryLocked, PeerError,
    Unauthorized and other errors of brokers for the target. Batches copied before an error are complete.

    >>> log.flush()
    >>> print(copy_topics("data", "copied"))
    orders-0: offsets 0 to 2, 2 to copy
    everything is kept
    1 topic, 1 partition, 0 groups: nothing was written, give --apply
    >>> copy_topics("data", "copied", apply=True).records
    2
    """
    options = _checked_options(topics, groups, offsets, isolation, tiered, apply, progress)
    options = options._replace(to_tiered=to_tiered)
    with asyncio.Runner(loop_factory=loop_factory()) as runner, Ends(runner, source, target, settings, options) as ends:
        return runner.run(CopyRun(*ends.opened, options).run())


def follow_topics(
    source: str | Sequence[str],
    target: str,
    topics: Iterable[str] = (),
    *,
    groups: Iterable[str] | None = None,
    offsets: str = "auto",
    isolation: str = "read_uncommitted",
    tiered: str | None = None,
    to_tiered: str | None = None,
    settings: Mapping[str, str] | None = None,
    progress: Callable[[int], object] = lambda size: None,
    poll_every_s: float = POLL_EVERY_S,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[CopyReport]:
    """Copy topics, then new records and new offsets of groups, until `is_stopped()`; yield the report of each copy.

    The source is polled every `poll_every_s` seconds, and copied if its end or a group's offset moved. Without
    `topics`, new topics are copied too. A stop ends a copy after the current batch: the target has only whole batches,
    and its groups are at or before the same records.

    Arguments and errors as for `copy_topics`; IllegalArgument also for backups, which do not grow.

    >>> log.flush()
    >>> done = []
    >>> for report in follow_topics("data", "copied", is_stopped=lambda: bool(done)):
    ...     done.append(report.records)
    >>> done
    [2]
    """
    if not poll_every_s > 0:
        raise IllegalArgument(f"poll_every_s is {poll_every_s}", hint="give seconds, such as 1")
    options = _checked_options(topics, groups, offsets, isolation, tiered, True, progress, is_stopped)
    options = options._replace(to_tiered=to_tiered)
    clock, before, refresh_ms = SYSTEM_CLOCK, None, 0.0
    with asyncio.Runner(loop_factory=loop_factory()) as runner, Ends(runner, source, target, settings, options) as ends:
        ends.check_growing()
        while not is_stopped():
            due_ms = clock.monotonic_ms() + 1000 * poll_every_s
            run = CopyRun(*ends.opened, options, surveys=before is None)
            state = runner.run(run.state())
            if state != before or clock.monotonic_ms() >= refresh_ms:
                report = runner.run(run.run())
                refresh_ms = clock.monotonic_ms() + _REFRESH_MS
                if state != before:
                    yield report
                before = state
            while not is_stopped() and (left_ms := due_ms - clock.monotonic_ms()) > 0:
                clock.sleep(min(left_ms, _LOOK_MS))


def _checked_options(
    topics: Iterable[str],
    groups: Iterable[str] | None,
    offsets: str,
    isolation: str,
    *more: Any,
) -> Options:
    if offsets not in OFFSETS or isolation not in ISOLATIONS:
        raise IllegalArgument(f"offsets {offsets!r}, isolation {isolation!r}", hint=f"{OFFSETS} and {ISOLATIONS}")
    chosen = None if groups is None else tuple(groups)
    return Options(tuple(map(validate_topic, topics)), chosen, offsets, isolation, *more)
