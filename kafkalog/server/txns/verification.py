"""Error codes for a producer that writes to a partition outside of its transaction (FLOW-9)."""

from __future__ import annotations

from typing import Final

from kafkalog.server.error_codes import ErrorCode

PRODUCE_ADDS: Final = 12
"""First version of Produce that adds its partitions to the transaction."""
PRODUCE_ABORTABLE: Final = 11
"""First version of Produce whose clients know TRANSACTION_ABORTABLE."""
COMMIT_ADDS: Final = 5
COMMIT_ABORTABLE: Final = 4
_RETRIED: Final = frozenset({
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR,
})  # fmt: skip


def verification_error(code: ErrorCode, knows_abortable: bool) -> ErrorCode:
    """Convert the coordinator's error code to one that clients of the version know."""
    if code == ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code == ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        return ErrorCode.INVALID_TXN_STATE
    return code


def produce_error(code: ErrorCode, version: int) -> ErrorCode:
    """Convert the coordinator's error code for Produce. A transient error becomes one that every client retries."""
    if code in _RETRIED or (code == ErrorCode.CONCURRENT_TRANSACTIONS and version < PRODUCE_ADDS):
        return ErrorCode.NOT_ENOUGH_REPLICAS
    return verification_error(code, version >= PRODUCE_ABORTABLE)
