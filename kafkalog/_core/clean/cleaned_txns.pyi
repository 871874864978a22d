from collections.abc import Iterable
from typing import final

from typing_extensions import Buffer

from kafkalog._core.batch.scan import BatchTable

@final
class CleanedTxns:
    count: int
    def add_aborted(self, transactions: Iterable[tuple[int, int, int, int, int]]) -> None: ...
    def take_retained(self) -> list[tuple[int, int, int, int, int]]: ...
    def feed(self, batch: Buffer, table: BatchTable, i: int) -> bool: ...
