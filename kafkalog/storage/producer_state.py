"""The producers of a log and their files: known state, its end offset, and when it is written to disk.

The rules of sequences, epochs and transactions are in `_core/log/producer_checks.pyx`; this module adds errors and
snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.log.producer_checks import (
    FAULT_COORDINATOR,
    FAULT_EPOCH,
    FAULT_MARKER,
    FAULT_NO_TRANSACTION,
    FAULT_SEQUENCE,
    FAULT_TRANSACTION_OPEN,
    ORIGIN_CLIENT,
    ORIGIN_COORDINATOR,
    ORIGIN_REPLICATION,
    Producers,
)
from kafkalog._core.log.producer_state import ProducerState
from kafkalog._core.log.staged import CompletedTxn, Staged
from kafkalog._core.log.trace import ProducerTrace
from kafkalog.errors import (
    CoordinatorFenced,
    InvalidProducerEpoch,
    InvalidRecord,
    InvalidTxnState,
    KafkalogError,
    OutOfOrderSequence,
)
from kafkalog.storage.names import snapshot_file_name
from kafkalog.storage.snapshots import Snapshots
from kafkalog.util.fileio import OS, FileSystem

if TYPE_CHECKING:
    from kafkalog.util.buffers import Data

EXPIRATION_MS: Final = 86_400_000
"""`producer.id.expiration.ms`: time after which an idle producer is forgotten."""
LATE_TRANSACTION_MS: Final = 5 * 60_000
"""Extra time (ms) beyond the longest transaction before an open one counts as late (PSM-26)."""
_ORIGINS: Final = {"client": ORIGIN_CLIENT, "coordinator": ORIGIN_COORDINATOR}


class VerificationGuard:
    """Token for one request to a transaction coordinator; only the append that passes it may begin the transaction."""

    __slots__ = ()


class Verification(NamedTuple):
    """A transaction being verified by a coordinator, with the conditions for its first batch (PSM-27)."""

    guard: VerificationGuard
    lowest_sequence: int
    supports_epoch_bump: bool
    producer_epoch: int
    timestamp: int


class ProducerStateManager:
    """Producers of a log, up to `map_end_offset`, stored in snapshots. Threads: guarded by the log's lock."""

    __slots__ = (
        "_last_snapshot_offset",
        "expiration_ms",
        "map_end_offset",
        "producers",
        "snapshots",
    )

    def __init__(
        self,
        directory: str,
        *,
        fs: FileSystem = OS,
        expiration_ms: int = EXPIRATION_MS,
        verify_transactions: bool = False,
        names: Iterable[str] | None = None,
    ) -> None:
        """Create an empty map; `names` is a recent listing of the directory."""
        self.snapshots = Snapshots(directory, fs=fs, names=names)
        self.producers = Producers()
        self.producers.must_verify = verify_transactions
        self.map_end_offset = 0
        self._last_snapshot_offset = 0
        self.expiration_ms = expiration_ms

    def fresh(self, upto: int | None = None) -> ProducerStateManager:
        """Return an empty manager for the same directory, for recovery, which handles one segment at a time.

        With `upto` it does not know the snapshots above that offset, and so leaves them as they are.
        """
        snapshots = self.snapshots
        return ProducerStateManager(
            snapshots.directory,
            fs=snapshots.fs,
            expiration_ms=self.expiration_ms,
            verify_transactions=self.producers.must_verify,
            names=None if upto is None else [snapshot_file_name(o) for o in snapshots.offsets if o <= upto],
        )

    @property
    def verified(self) -> dict[int, Verification]:
        """Pending verifications, by producer id."""
        return self.producers.verified

    @property
    def is_empty(self) -> bool:
        """True if no producer and no transaction is known."""
        return not len(self.producers) and self.producers.first_unstable_offset < 0

    # Appends

    def stage(
        self,
        table: BatchTable,
        first: int,
        last: int,
        buffer: Data,
        *,
        base_position: int = 0,
        origin: str = "replication",
        epoch_bumps: bool = False,
        guard: VerificationGuard | None = None,
    ) -> Staged | None:
        """Return the changes that rows of an append would make; None without producers. Raise for a broken rule.

        A duplicate is not an error: the result then has `duplicate`. OutOfOrderSequence, InvalidProducerEpoch,
        InvalidTxnState, CoordinatorFenced, InvalidRecord (PSM-1 to PSM-12, LOG-60 to LOG-66).
        """
        staged = self.producers.stage(
            table,
            first,
            last,
            buffer,
            base_position,
            _ORIGINS.get(origin, ORIGIN_REPLICATION),
            epoch_bumps,
            guard,
        )
        if staged is not None and staged.fault and staged.duplicate is None:
            raise _refusal(table, staged)
        return staged

    def commit(self, staged: Staged, log_end_offset: int, high_watermark: int) -> None:
        """Apply staged changes that are now in the log; their producers need no further verification.

        A second call changes nothing.
        """
        self.producers.commit(staged, high_watermark)
        self.map_end_offset = log_end_offset
        if self.verified:
            for producer_id in staged.producer_ids:
                self.verified.pop(producer_id, None)

    def replay(
        self, table: BatchTable, data: Data, first: int = 0, last: int | None = None
    ) -> list[tuple[CompletedTxn, int]]:
        """Apply batches already in the log, rows `first` to `last`; `data` begins at the table's first batch.

        Return the transactions that end in them, each with the last stable offset right after its end.
        """
        completed: list[tuple[CompletedTxn, int]] = []
        if table.has_producers:
            staged = self.producers.stage(
                table, first, len(table) if last is None else last, data, base_position=table.position(0))
            if staged is not None:
                completed = self.producers.completions(staged)
                self.producers.commit(staged, 0)
        self.map_end_offset = table.last_offset + 1
        return completed

    def take_over(self, trace: ProducerTrace, last_offset: int) -> list[tuple[CompletedTxn, int]]:
        """Apply the result of a pass over batches up to `last_offset`; returns as `replay` does."""
        completed = self.producers.take_over(trace)
        self.map_end_offset = last_offset + 1
        return completed

    # Verification (PSM-27, PSM-28, PSM-34)

    def maybe_start_verification(
        self, producer_id: int, sequence: int, producer_epoch: int, supports_epoch_bump: bool, now_ms: int
    ) -> VerificationGuard | None:
        """Return the guard to verify this producer's transaction; None if it is open and needs no verification."""
        known = self.producers.get(producer_id)
        if known is not None and known.current_txn_first_offset >= 0 and known.producer_epoch == producer_epoch:
            return None
        before = self.verified.get(producer_id)
        if before is None:
            entry = Verification(VerificationGuard(), sequence, supports_epoch_bump, producer_epoch, now_ms)
        elif producer_epoch > before.producer_epoch:
            entry = before._replace(lowest_sequence=sequence, producer_epoch=producer_epoch)
        elif producer_epoch == before.producer_epoch and sequence < before.lowest_sequence:
            entry = before._replace(lowest_sequence=sequence)
        else:
            entry = before
        self.verified[producer_id] = entry
        return entry.guard

    # Transactions

    @property
    def first_unstable_offset(self) -> int:
        """Lowest first offset of a transaction that is undecided or not replicated; -1 if none (PSM-13)."""
        return self.producers.first_unstable_offset

    def on_high_watermark(self, high_watermark: int) -> None:
        """Forget completed transactions whose markers lie below the high watermark (PSM-14)."""
        self.producers.replicated_to(high_watermark)

    def has_late_transaction(self, now_ms: int, longest_ms: int) -> bool:
        """Return True if a transaction is open for more than `longest_ms` plus five minutes (PSM-26)."""
        oldest = now_ms - longest_ms - LATE_TRANSACTION_MS
        for producer_id in self.producers.open_transactions.values():
            known = self.producers.get(producer_id)
            if known is not None and known.last_timestamp < oldest:
                return True
        return False

    def remove_expired(self, now_ms: int) -> None:
        """Forget producers and pending verifications that have been idle too long (PSM-15)."""
        oldest = now_ms - self.expiration_ms
        self.producers.remove_expired(oldest)
        for producer_id in [p for p, asked in self.verified.items() if asked.timestamp <= oldest]:
            del self.verified[producer_id]

    # Files

    def take_snapshot(self, *, sync: bool = True) -> bool:
        """Write a snapshot of `map_end_offset` if it is newer than the last one; return True if written (PSM-16)."""
        if self.map_end_offset <= self._last_snapshot_offset:
            return False
        entries = sorted(state.entry() for state in self.producers)
        self.snapshots.write(self.map_end_offset, entries, sync=sync)
        self._last_snapshot_offset = self.map_end_offset
        return True

    def truncate_and_reload(self, log_start_offset: int, log_end_offset: int, now_ms: int) -> None:
        """Load the newest fitting snapshot, unless the state in memory already ends at `log_end_offset` (PSM-20)."""
        self.snapshots.remove_outside(log_start_offset, log_end_offset)
        if log_end_offset == self.map_end_offset:
            self.on_log_start_incremented(log_start_offset)
            return
        self.producers.clear()
        self._load(log_start_offset, now_ms)

    def _load(self, log_start_offset: int, now_ms: int) -> None:
        found = self.snapshots.read_latest()
        if found is None:
            self.map_end_offset = self._last_snapshot_offset = log_start_offset
            return
        offset, entries = found
        oldest = now_ms - self.expiration_ms
        kept = (e for e in entries if e.timestamp > oldest or e.current_txn_first_offset >= 0)
        self.producers.load(ProducerState(*entry) for entry in kept)
        self.map_end_offset = self._last_snapshot_offset = offset

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Forget everything and remove all snapshots; the map ends at `offset` (PSM-21)."""
        self.producers.clear()
        for old in self.snapshots.offsets:
            self.snapshots.remove(old)
        self._last_snapshot_offset = 0
        self.map_end_offset = offset

    def forget(self) -> None:
        """Forget everything; the snapshots stay."""
        self.producers.clear()
        self.snapshots.refresh()
        self.map_end_offset = self._last_snapshot_offset = 0

    def on_log_start_incremented(self, log_start_offset: int) -> None:
        """Move the map's end to at least the new log start, and treat it as on disk (LOG-84)."""
        self.producers.replicated_to(log_start_offset)
        self.map_end_offset = max(self.map_end_offset, log_start_offset)
        latest = self.snapshots.latest
        self._last_snapshot_offset = log_start_offset if latest is None else latest

    def __repr__(self) -> str:
        return f"<ProducerStateManager {self.producers!r} up to {self.map_end_offset}>"


def _refusal(table: BatchTable, staged: Staged) -> KafkalogError:
    """Return the typed error for the rule that a batch breaks."""
    batch = table[staged.row]
    where: dict[str, Any] = {"offset": batch.base_offset, "position": batch.position}
    known, who = staged.known, f"producer {batch.producer_id}"
    epoch = -1 if known is None else known.producer_epoch
    if staged.fault == FAULT_EPOCH:
        return InvalidProducerEpoch(
            f"{who} sent epoch {batch.producer_epoch}; its current epoch is {epoch}",
            hint="a newer producer with this id took over, or the transaction was ended with a newer epoch",
            **where,
        )
    if staged.fault == FAULT_NO_TRANSACTION:
        return InvalidTxnState(
            f"{who} has no open transaction here, and none was verified", hint="begin it at its coordinator", **where
        )
    if staged.fault == FAULT_TRANSACTION_OPEN:
        return InvalidTxnState(f"{who} has an open transaction, but the batch is not transactional", **where)
    if staged.fault == FAULT_COORDINATOR:
        return CoordinatorFenced(
            f"the marker for {who} has coordinator epoch {staged.coordinator_epoch}; the current epoch is "
            f"{-1 if known is None else known.coordinator_epoch}",
            **where,
        )
    if staged.fault == FAULT_MARKER:
        return InvalidRecord("the control batch of a producer has no readable transaction marker", **where)
    what = f"{who}, epoch {batch.producer_epoch}: the batch begins with sequence {batch.base_sequence}"
    if staged.fault == FAULT_SEQUENCE:
        last = -1 if known is None else known.last_sequence
        return OutOfOrderSequence(f"{what}; the last one in the log is {last} of epoch {epoch}", **where)
    return OutOfOrderSequence(f"{what}; the transaction was verified with a lower one, or must begin with 0", **where)
