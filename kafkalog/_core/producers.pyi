from collections.abc import Iterable, Iterator
from typing import Any

from kafkalog._core.producer import ProducerState
from kafkalog._core.scan import BatchTable
from kafkalog._core.trace import ProducerTrace

ORIGIN_CLIENT: int
ORIGIN_COORDINATOR: int
ORIGIN_REPLICATION: int
FAULT_EPOCH: int
FAULT_SEQUENCE: int
FAULT_NO_TRANSACTION: int
FAULT_TRANSACTION_OPEN: int
FAULT_COORDINATOR: int
FAULT_MARKER: int
FAULT_VERIFIED_SEQUENCE: int
DUPLICATE: int

class CompletedTxn:
    """A transaction that a marker ended: its producer, its first offset, the marker's offset, and how it ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    is_aborted: bool

    def __init__(self, producer_id: int, first_offset: int, last_offset: int, is_aborted: bool) -> None: ...

class Staged:
    """What the batches of one append would change, or the rule that batch `row` breaks."""

    fault: int
    row: int
    duplicate: tuple[int, int, int] | None
    known: ProducerState | None
    completed: list[CompletedTxn]
    coordinator_epoch: int

    @property
    def producer_ids(self) -> list[int]: ...

class Producers:
    """The producers of one log by id, and their transactions. Threads: belongs to the lock of its log."""

    def __init__(self) -> None: ...
    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[ProducerState]: ...
    def __contains__(self, producer_id: object) -> bool: ...
    def get(self, producer_id: int) -> ProducerState | None: ...
    def clear(self) -> None: ...
    def load(self, states: Iterable[ProducerState]) -> None: ...
    def remove_expired(self, oldest_ms: int) -> list[int]: ...
    def stage(
        self,
        table: BatchTable,
        first: int,
        last: int,
        buffer: Any,
        *,
        base_position: int = 0,
        origin: int = ...,
        epoch_bumps: bool = False,
        verified: dict[int, Any] | None = None,
        guard: object = None,
        must_verify: bool = False,
    ) -> Staged | None: ...
    def take_over(self, trace: ProducerTrace) -> list[tuple[CompletedTxn, int]]: ...
    def apply(self, staged: Staged) -> None: ...
    def commit(self, staged: Staged, high_watermark: int) -> None: ...
    def completions(self, staged: Staged) -> list[tuple[CompletedTxn, int]]: ...
    def first_unstable_after(self, staged: Staged, high_watermark: int) -> int: ...
    def complete(self, txn: CompletedTxn) -> None: ...
    def replicated_to(self, high_watermark: int) -> None: ...
    @property
    def has_transactions(self) -> bool: ...
    @property
    def first_undecided_offset(self) -> int: ...
    @property
    def first_unstable_offset(self) -> int: ...
    @property
    def open_transactions(self) -> dict[int, int]: ...
