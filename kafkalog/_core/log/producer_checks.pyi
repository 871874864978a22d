from collections.abc import Iterable, Iterator
from typing import Any

from typing_extensions import Buffer

from kafkalog._core.batch.scan import BatchTable
from kafkalog._core.log.producer_state import ProducerState
from kafkalog._core.log.staged import CompletedTxn, Staged
from kafkalog._core.log.trace import ProducerTrace

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

class Producers:
    """The producers of one log by id, and their transactions. Threads: belongs to the lock of its log."""

    verified: dict[int, Any]
    must_verify: bool

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
        buffer: Buffer,
        base_position: int = 0,
        origin: int = ...,
        epoch_bumps: bool = False,
        guard: object = None,
    ) -> Staged | None: ...
    def stage_simple(self, table: BatchTable) -> Staged | None: ...
    def take_over(self, trace: ProducerTrace) -> list[tuple[CompletedTxn, int]]: ...
    def apply(self, staged: Staged) -> None: ...
    def commit(self, staged: Staged, high_watermark: int) -> None: ...
    def completions(self, staged: Staged) -> list[tuple[CompletedTxn, int]]: ...
    def first_unstable_after(self, staged: Staged, high_watermark: int) -> int: ...
    def complete(self, txn: CompletedTxn) -> None: ...
    def replicated_to(self, high_watermark: int) -> None: ...
    has_transactions: bool
    first_unstable_offset: int
    open_transactions: dict[int, int]
