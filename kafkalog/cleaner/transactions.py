"""Transactions over the batches of a clean: the reference's CleanedTransactionMetadata (CLN-14 to CLN-22)."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog._core.cleaned_txns import CleanedTxns
from kafkalog.storage.aborted_txns import AbortedTxn

__all__ = ["CleanedTransactions"]


class CleanedTransactions:
    """What a clean knows of transactions at the place that it reached; one for each of its two passes.

    `core` goes over the batches, in the order of their offsets and without a break between segments or groups: a
    transaction may have its data in one group and its marker in the next (CLN-22). Threads: belongs to the clean.
    """

    __slots__ = ("core",)

    def __init__(self) -> None:
        self.core = CleanedTxns()

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """Adds those of the segment that comes next, all that reach into it; one may be added again."""
        self.core.add_aborted(transactions)

    def take_retained(self) -> list[AbortedTxn]:
        """Those whose markers were met since the last call and which have data before them: the new index (CLN-21)."""
        return [AbortedTxn(*fields) for fields in self.core.take_retained()]
