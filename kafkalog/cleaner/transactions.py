"""Transactions over the batches of a clean: the reference's CleanedTransactionMetadata (CLN-14 to CLN-22)."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog._core.clean.cleaned_txns import CleanedTxns
from kafkalog.storage.index.aborted_txns import AbortedTxn


class CleanedTransactions:
    """Transaction state at the current offset of a clean; one for each of its two passes.

    `core` reads the batches in offset order, without a break between segments or groups: a transaction may have its
    data in one group and its marker in the next (CLN-22). Threads: belongs to the clean.
    """

    __slots__ = ("core",)

    def __init__(self) -> None:
        self.core = CleanedTxns()

    def add_aborted(self, transactions: Iterable[AbortedTxn]) -> None:
        """Add the aborted transactions that reach into the next segment; adding one twice is allowed."""
        self.core.add_aborted(transactions)

    def take_retained(self) -> list[AbortedTxn]:
        """Return the new index entries: transactions with data whose markers came since the last call (CLN-21)."""
        return [AbortedTxn(*fields) for fields in self.core.take_retained()]
