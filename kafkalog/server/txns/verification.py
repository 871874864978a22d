"""What a producer is told where its transaction does not have a partition it writes to (FLOW-9)."""

from __future__ import annotations

from typing import Final

from kafkalog.server.error_codes import ErrorCode

PRODUCE_ADDS: Final = 12
"""The first version of Produce that adds its partitions to the transaction by itself."""
PRODUCE_ABORTABLE: Final = 11
"""The first one whose clients know TRANSACTION_ABORTABLE."""
COMMIT_ADDS: Final = 5
COMMIT_ABORTABLE: Final = 4
_RETRIED: Final = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
})  # fmt: skip


def verification_error(code: ErrorCode, knows_abortable: bool) -> ErrorCode:
    """The coordinator's answer as clients of that version expect it."""
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


def produce_error(code: ErrorCode, version: int) -> ErrorCode:
    """The same for Produce, where what will pass is told as an error that every client tries again."""
    if code in _RETRIED or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < PRODUCE_ADDS):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return verification_error(code, version >= PRODUCE_ABORTABLE)
