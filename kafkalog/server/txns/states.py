"""States of a transaction and the allowed transitions."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

CLASSIC: Final = 0
"""Transaction versions 0 and 1: a producer keeps its epoch and adds its partitions by AddPartitionsToTxn."""
EPOCH_BUMPS: Final = 2
"""Transaction version 2 (KIP-890): each end of a transaction bumps the epoch."""


class TransactionState(IntEnum):
    """State of a transaction, by the numbers in the records of `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """Name of the state in answers, such as `PrepareCommit`."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """True if the end is decided and its markers are not all written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """True if no transaction is open or being ended."""
        return self in IDLE


_S = TransactionState
IDLE: Final = frozenset({_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT})
PREVIOUS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset({_S.ONGOING}),
    _S.PREPARE_ABORT: IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset({_S.PREPARE_COMMIT}),
    _S.COMPLETE_ABORT: frozenset({_S.PREPARE_ABORT}),
    _S.DEAD: IDLE,
    _S.PREPARE_EPOCH_FENCE: frozenset({_S.ONGOING}),
}
"""Allowed predecessors of each state. A producer that aborts without a transaction goes from idle to PREPARE_ABORT."""
BY_TITLE: Final = {state.title: state for state in TransactionState}
