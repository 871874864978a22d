"""`sync_topic`: write to a table the records that it lacks; each commit also stores the positions in the topic."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.dirs.open import open_dirs
from kafkalog.dirs.types import unknown_topic
from kafkalog.errors import IllegalArgument, IllegalState
from kafkalog.lake.appends import FileSource, FinishedFiles, local_shares
from kafkalog.lake.checksums import position_checksum
from kafkalog.lake.evolution import Evolution, lake_schema, plan_evolution
from kafkalog.lake.failures import TableChanged
from kafkalog.lake.files import FILE_BYTES, LEAST_FILE_BYTES, TableFiles, piece_bytes
from kafkalog.lake.partitioning import PartitionField, check_partitioning, parse_partitioning
from kafkalog.lake.positions import PartitionState, Positions, plan_ranges
from kafkalog.lake.renames import kept_numbers, plan_renames
from kafkalog.lake.rows import TopicRows, check_typed, fitted
from kafkalog.lake.table import CommitConflict, LiveFile
from kafkalog.lake.targets import DeltaTarget, open_table, parse_target
from kafkalog.lake.typical import typical_values
from kafkalog.lake.upserts import Latest, check_identity, rewrite_files
from kafkalog.reading.source import refresh
from kafkalog.storage.outside_data import refuse_data_directory
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.packages import needed

if TYPE_CHECKING:
    import os

    from kafkalog.dirs.log_dirs import LogDirs
    from kafkalog.log.log import Log
    from kafkalog.storage.damage import Skipped

    Path = str | os.PathLike[str]
    from kafkalog.lake.table import LakeTable

_LOG: Final = logging.getLogger(__name__)
NUMBERS: Final = "kafkalog.field_numbers"
"""Property with the Protobuf field numbers, by the paths of the table's columns."""
OWN: Final = "kafkalog.topic"
"""Property of tables that a sync created: a sync changes the columns of no others."""
UPSERT_BYTES: Final = 256 << 20
"""Memory limit, in bytes, for the latest rows of one commit of an upsert."""
MOST_CONFLICTS: Final = 20
"""Number of successive conflicts with other writers after which a sync gives up."""
COMMIT_EVERY_S: Final = 60.0
_POLL_MS: Final = 200
_KEYWORDS: Final = ("options", "partition_by", "target_file_bytes", "on_damage", "skipped")


class SyncCommit(NamedTuple):
    """One commit: the records read for it, files added and removed, bytes added, and the next offsets."""

    records: int
    files: int
    removed: int
    bytes: int
    undecodable: int
    snapshot: str
    next_offsets: Mapping[int, int]


class _Settings(NamedTuple):
    """The options of a sync."""

    typed: Mapping[str, Any]
    fields: tuple[PartitionField, ...]
    upsert: bool
    file_bytes: int
    on_damage: str


def sync_topic(
    dirs: Path | Iterable[Path] | LogDirs,
    topic: str,
    target: str,
    *,
    options: Mapping[str, str] | None = None,
    partition_by: Iterable[str] = (),
    upsert: bool = False,
    target_file_bytes: int = FILE_BYTES,
    on_damage: str = "raise",
    skipped: list[Skipped] | None = None,
    **typed: Any,
) -> list[SyncCommit]:
    """Write to a table the committed records of a topic that it lacks, and return the commits; none if it lacks none.

    `target` names the table (docs/lake.md), which is created if it is missing; `options` are properties of its catalog
    or store. `typed` are the keywords of a typed scan (docs/where.md), such as `value="json"`. With `upsert` a row
    replaces that of the same partition and key, and a tombstone deletes it. `partition_by` are the partitions of a
    new table: `day(timestamp)`, `hour(timestamp)`, or a field. Files have about `target_file_bytes`.

    The positions are part of each commit, so after a crash or any error the next sync continues with the next record,
    and each is in the table exactly once. Raises TableMismatch for columns that do not fit, TableChanged if another
    sync of the topic committed meanwhile, OffsetOutOfRange, IllegalState and InconsistentTopicId if the log no longer
    has what follows the table; InvalidRecord, CorruptRecord, IllegalArgument, StorageError, MissingPackage.

    >>> log.flush()
    >>> commit, = sync_topic("data", "orders", "delta:orders-table")
    >>> commit.records, commit.files, commit.next_offsets
    (2, 1, {0: 2})
    >>> sync_topic("data", "orders", "delta:orders-table")
    []
    """
    check_typed("sync_topic", typed, "upsert", *_KEYWORDS)
    settings = _settings(typed, partition_by, upsert, target_file_bytes, on_damage)
    table = _table(target, options or {}, topic)
    with _opened(dirs) as logs:
        return [*_Sync(logs, topic, table, settings, skipped).commits()]


def sync_with(
    source: FileSource,
    dirs: Path | Iterable[Path],
    topic: str,
    target: str,
    *,
    options: Mapping[str, str] | None = None,
    partition_by: Iterable[str] = (),
    target_file_bytes: int = FILE_BYTES,
    on_damage: str = "raise",
    skipped: list[Skipped] | None = None,
    **typed: Any,
) -> list[SyncCommit]:
    """Return the commits of a sync whose files `source` writes; as `sync_topic` otherwise, but without upserts."""
    check_typed("sync", typed, *_KEYWORDS)
    settings = _settings(typed, partition_by, False, target_file_bytes, on_damage)
    table = _table(target, options or {}, topic)
    with _opened(dirs) as logs:
        return [*_Sync(logs, topic, table, settings, skipped, source).commits()]


def follow_topic(
    dirs: Path | Iterable[Path] | LogDirs,
    topic: str,
    target: str,
    *,
    commit_every_s: float = COMMIT_EVERY_S,
    is_stopped: Callable[[], bool] = lambda: False,
    options: Mapping[str, str] | None = None,
    partition_by: Iterable[str] = (),
    upsert: bool = False,
    target_file_bytes: int = FILE_BYTES,
    on_damage: str = "raise",
    skipped: list[Skipped] | None = None,
    **typed: Any,
) -> Iterator[SyncCommit]:
    """Yield the commits of syncs that begin every `commit_every_s` seconds, until `is_stopped()`; as `sync_topic`.

    Records that arrive in between become one commit, so that files are few; a sync without new records commits nothing.

    >>> log.flush()
    >>> done = []
    >>> for commit in follow_topic("data", "orders", "delta:orders-table", is_stopped=lambda: bool(done)):
    ...     done.append(commit.records)
    >>> done
    [2]
    """
    if not commit_every_s > 0:
        raise IllegalArgument(f"commit_every_s is {commit_every_s}", hint="give seconds, such as 60")
    check_typed("follow_topic", typed, "commit_every_s", "is_stopped", "upsert", *_KEYWORDS)
    settings = _settings(typed, partition_by, upsert, target_file_bytes, on_damage)
    table = _table(target, options or {}, topic)
    clock = SYSTEM_CLOCK
    with _opened(dirs) as logs:
        while not is_stopped():
            due_ms = clock.monotonic_ms() + 1000 * commit_every_s
            yield from _Sync(logs, topic, table, settings, skipped).commits()
            while not is_stopped() and (left_ms := due_ms - clock.monotonic_ms()) > 0:
                clock.sleep(min(left_ms, _POLL_MS))


def _table(text: str, options: Mapping[str, str], topic: str) -> LakeTable:
    """Return the table that `text` names; raise IllegalArgument if it would lie in a data directory."""
    target = parse_target(text, options)
    local = target.url if isinstance(target, DeltaTarget) else target.warehouse
    if local is not None and "://" not in local:
        refuse_data_directory(local, "a table")
    return open_table(target, topic)


def _renamed(numbers: Mapping[str, int], renames: Mapping[str, str]) -> dict[str, int]:
    """Return the numbers by the paths that the fields have after the renames."""
    names = {there: path for path, there in renames.items()}
    return {names.get(path, path): number for path, number in numbers.items()}


def pause(conflicts: int) -> None:
    """Wait after a conflict, twice as long each time, up to a second."""
    SYSTEM_CLOCK.sleep(min(10 * 2**conflicts, 1000))


def _opened(dirs: Path | Iterable[Path] | LogDirs) -> Any:
    from contextlib import nullcontext

    from kafkalog.dirs.log_dirs import LogDirs

    return nullcontext(dirs) if isinstance(dirs, LogDirs) else open_dirs(dirs)


def _settings(
    typed: Mapping[str, Any], partition_by: Iterable[str], upsert: bool, file_bytes: int, on_damage: str
) -> _Settings:
    """Return the settings; raise IllegalArgument for wrong ones, MissingPackage without pyarrow."""
    needed("pyarrow", "tables need pyarrow ({})", "lake")
    if file_bytes < LEAST_FILE_BYTES:
        raise IllegalArgument(f"file size {file_bytes} is too small", hint=f"give at least {LEAST_FILE_BYTES} bytes")
    fields = parse_partitioning([partition_by] if isinstance(partition_by, str) else partition_by)
    return _Settings(typed, fields, upsert, file_bytes, on_damage)


class _Sync:
    """One pass over a topic: what the table lacks as of its beginning, written in one or more commits."""

    def __init__(
        self, dirs: LogDirs, topic: str, table: LakeTable, settings: _Settings, skipped: list[Skipped] | None,
        source: FileSource = local_shares,
    ) -> None:  # fmt: skip
        self._topic = topic
        self._table = table
        self._settings = settings
        self._source = source
        self._skipped = [] if skipped is None and settings.on_damage == "skip" else skipped
        self._logs: dict[int, Log] = {log.partition: log for log in dirs.logs(topic)}
        known = dirs.topics.get(topic)  # looked up in each pass: the topic may have been recreated
        if known is None:  # deleted since
            raise unknown_topic(topic, [*dirs])
        self._topic_id = known.topic_id
        self._positions = Positions(self._topic_id, {}, {})
        self._snapshot = "none"

    def commits(self) -> Iterator[SyncCommit]:
        """Yield the commits; after a conflict with another writer, retry on that writer's snapshot."""
        conflicts = 0
        while True:
            try:
                for commit in self._pass():
                    conflicts = 0
                    yield commit
                return
            except CommitConflict as error:
                conflicts += 1
                if conflicts == MOST_CONFLICTS:
                    raise TableChanged(
                        f"other writers committed {conflicts} times before this sync could: {error}",
                        path=self._table.name, hint="run the sync again, or at another time",
                    ) from None  # fmt: skip
                _LOG.info("%s: another writer committed, trying again: %s", self._table.name, error)
                pause(conflicts)

    def _pass(self) -> Iterator[SyncCommit]:
        exists = self._table.load()
        kept = self._table.positions([*self._logs]) if exists else None
        ranges = plan_ranges(kept, self._topic_id, self._states(kept))
        if not ranges:
            return
        self._snapshot = self._table.snapshot if exists else "none"
        rolled_back_from = self._table.rolled_back_from if exists else None
        if rolled_back_from is not None:
            _LOG.warning(
                "%s: the table was rolled back to snapshot %s from snapshot %s, and gets the records after it again",
                self._table.name, self._snapshot, rolled_back_from,
            )  # fmt: skip
        self._positions = kept or self._positions
        if self._positions.topic_id is None:
            self._positions = self._positions._replace(topic_id=self._topic_id)
        typed = self._settings.typed
        rows = TopicRows(
            self._topic, self._logs, ranges, typed, on_damage=self._settings.on_damage,
            skipped=self._skipped, batch_bytes=piece_bytes(self._settings.file_bytes), topic_id=self._topic_id,
            typical=typical_values(typed, self._table.schema) if exists else {},
        )  # fmt: skip
        self._fit_table(rows, exists)
        yield from (self._upserts(rows) if self._settings.upsert else self._appends(rows))

    def _states(self, kept: Positions | None) -> Iterator[PartitionState]:
        for number, log in self._logs.items():
            source = log._source
            refresh(source)
            first = None if kept is None else kept.next_offsets.get(number)
            known = None if kept is None else kept.checksums.get(number)
            checksum = None if first is None else position_checksum(source, first, known)
            yield PartitionState(
                number, source.log_start_offset, source.last_stable_offset, source.log_end_offset, source.path, checksum
            )

    def _fit_table(self, rows: TopicRows, exists: bool) -> None:
        """Create the table or change its columns to fit the rows; this comes before any write."""
        table = self._table
        kept = kept_numbers(table.name, table.properties.get(NUMBERS, "{}")) if exists else {}
        renames = plan_renames(table.name, kept, rows.numbers)
        rows.names = renames  # until the table has the new names
        schema = lake_schema(rows.schema, has_time_of_day=table.has_time_of_day)
        if self._settings.upsert:
            check_identity(schema, self._settings.typed.get("project"))
        if not exists:
            check_partitioning(self._settings.fields, schema)
            table.create(schema, self._settings.fields, {OWN: json.dumps(self._topic)})
        is_own = OWN in table.properties
        change = plan_evolution(table.name, table.schema, schema, is_own=is_own)
        numbers = {**kept, **{renames.get(path, path): number for path, number in rows.numbers.items()}}
        if renames and table.has_renames:
            after = json.dumps(_renamed(numbers, renames))
            table.evolve(Evolution(table.schema, (), ()), renames, {NUMBERS: after})
            return self._fit_table(rows, True)
        if change or (is_own and numbers != kept):
            _LOG.info("%s: adding %s, widening %s", table.name, change.added, change.widened)
            table.evolve(change, properties={NUMBERS: json.dumps(numbers)} if numbers != kept else {})
        self._check_alone()

    # Appends

    def _appends(self, rows: TopicRows) -> Iterator[SyncCommit]:
        shares = self._source(rows, self._table, self._settings.file_bytes)
        try:
            for share in shares:
                yield self._commit_rows(share.files, share.records, share.reached, rows)
        finally:
            shares.close()

    def _commit_rows(
        self, files: FinishedFiles, records: int, reached: Mapping[int, int], rows: TopicRows
    ) -> SyncCommit:
        """Commit the finished files; retry with the same files on a newer snapshot with the same positions."""
        positions = self._moved(reached)
        layout, conflicts = self._table.layout, 0
        while True:
            self._check_alone()
            try:
                self._commit(files, (), positions)
                break
            except CommitConflict as error:
                conflicts += 1
                if self._reload(files, positions):
                    break
                if conflicts == MOST_CONFLICTS or self._table.layout != layout:
                    raise CommitConflict(str(error)) from None  # the files have another layout and must be rewritten
                pause(conflicts)
        return self._committed(files, records, positions, rows)

    def _commit(self, files: FinishedFiles, removed: Sequence[LiveFile], positions: Positions) -> None:
        """Commit the finished files; keep them after an error that leaves open whether the commit succeeded."""
        try:
            self._table.commit(files.finished, removed, positions)
        except CommitConflict:
            raise
        except BaseException:
            files.take()
            raise

    def _check_alone(self) -> None:
        """Raise TableChanged if the snapshot that is loaded has other positions than those that this sync continues.

        A commit is based on the loaded snapshot, so nothing can come between this check and the commit.
        """
        found = self._table.positions([*self._logs])
        if (found.next_offsets if found is not None else {}) != self._positions.next_offsets:
            after = self._table.snapshot
            is_rollback = self._table.rolled_back_from is not None
            what = "it was rolled back" if is_rollback else f"another sync of {self._topic} committed"
            raise TableChanged(
                f"{what} meanwhile: this one continued snapshot {self._snapshot}, and now there is {after}",
                before=self._snapshot, after=after, path=self._table.name,
                hint="run the sync again: it continues with the positions that the table has now",
            )  # fmt: skip

    def _reload(self, files: FinishedFiles, positions: Positions, removed: Sequence[LiveFile] = ()) -> bool:
        """Load the newest snapshot after a conflict; return True if it has this very commit.

        A store that repeats a request after a lost answer finds its own commit and reports it as a conflict. Files
        that may be part of a commit stay. A commit without files is recognized by its positions: another sync that
        reached them found no rows either.
        """
        written = {one.path for one in files.finished}
        found, live, is_moved = None, set[str](), False
        try:
            exists = self._table.load()
            found = self._table.positions([*self._logs]) if exists else None
            if found is not None and found.next_offsets != self._positions.next_offsets:
                live = {one.path for one in self._table.live_files()}
                is_moved = True
        except IllegalState:  # files with deleted rows, by another writer
            files.take()
        except BaseException:
            files.take()
            raise
        if not exists:
            raise TableChanged(
                "the table was dropped meanwhile", path=self._table.name, before=self._snapshot, after="none",
                hint="run the sync again: it creates the table",
            )  # fmt: skip
        if is_moved and found == positions and written <= live and live.isdisjoint(one.path for one in removed):
            return True
        if written & live:  # another commit followed
            files.take()
        return False

    # Upserts

    def _upserts(self, rows: TopicRows) -> Iterator[SyncCommit]:
        latest, reached = Latest(), dict[int, int]()
        for one in rows.ranges:
            for piece in rows.pieces(one):
                latest.add(piece, fitted(piece.rows, self._table.schema))
                reached[one.number] = piece.next_offset
                if latest.nbytes >= UPSERT_BYTES:
                    yield self._commit_upsert(latest, reached, rows)
                    latest, reached = Latest(), {}
            reached[one.number] = one.stop
        yield self._commit_upsert(latest, reached, rows)

    def _commit_upsert(self, latest: Latest, reached: dict[int, int], rows: TopicRows) -> SyncCommit:
        """Commit the latest rows in place of their keys' old rows; start over after a conflict."""
        positions = self._moved(reached)
        conflicts = 0
        while True:
            self._check_alone()
            schema = self._table.schema
            files = TableFiles(self._table.writer, self._settings.file_bytes)
            try:
                removed = rewrite_files(self._table, latest.keys(), files) if latest.rows else []
                for batch in latest.kept():
                    files.add(batch)
                files.close()
                self._commit(files, removed, positions)
                return self._committed(files, latest.rows, positions, rows, len(removed))
            except CommitConflict as error:
                conflicts += 1
                if self._reload(files, positions, removed):
                    return self._committed(files, latest.rows, positions, rows, len(removed))
                if conflicts == MOST_CONFLICTS or self._table.schema != schema:
                    raise CommitConflict(str(error)) from None
                pause(conflicts)
            finally:
                files.abandon()

    # Both

    def _moved(self, reached: Mapping[int, int]) -> Positions:
        checksums = {}
        for number, offset in reached.items():
            checksum = position_checksum(self._logs[number]._source, offset)
            if checksum is not None:
                checksums[number] = checksum
        return self._positions.moved(reached, checksums)

    def _committed(
        self, files: FinishedFiles, records: int, positions: Positions, rows: TopicRows, removed: int = 0
    ) -> SyncCommit:
        self._positions = positions
        self._snapshot = self._table.snapshot
        written = files.finished
        files.take()
        undecodable, rows.selection.undecodable = rows.selection.undecodable, 0
        commit = SyncCommit(
            records, len(written), removed, sum(one.size for one in written), undecodable, self._table.snapshot,
            dict(positions.next_offsets),
        )  # fmt: skip
        _LOG.info("%s: snapshot %s, %d records", self._table.name, commit.snapshot, records)
        return commit


