"""Results of a produce request for a partition: a finished append or an error (FLOW-7, FLOW-8)."""

from __future__ import annotations

import logging
from typing import Final, TypeGuard

from kafkalog.errors import (
    CorruptRecord,
    KafkalogError,
    LogClosed,
    NotLeaderOrFollower,
    RecordBatchTooLarge,
    RecordRefused,
    RecordTooLarge,
    StorageError,
    UnknownTopicOrPartition,
)
from kafkalog.server.error_codes import ErrorCode, code_of
from kafkalog.server.replica.failure_log import FAILURES
from kafkalog.server.replica.partition import Partition
from kafkalog.server.replica.results import AppendResult, new_result
from kafkalog.types import LogAppendInfo, TopicPartition

_LOG: Final = logging.getLogger(__name__)
_WITHOUT_LOG_START: Final = (
    UnknownTopicOrPartition, NotLeaderOrFollower, RecordTooLarge, RecordBatchTooLarge, CorruptRecord, StorageError,
    LogClosed,
)  # fmt: skip


def appended(info: LogAppendInfo) -> AppendResult:
    """Return the result of an append, or of a duplicate of an earlier one."""
    return new_result((0, info.first_offset, info.log_append_time, info.log_start_offset, (), None, info.last_offset))


def refused(key: TopicPartition, error: Exception, partition: Partition | None) -> AppendResult:
    """Return the result of a failed append.

    It has the log start if the error is about the records themselves, and a text if single records were rejected or
    the disk failed. Failures of the operating system are logged, and errors without a code of their own.
    """
    code = code_of(error)
    if _is_system_failure(error):
        FAILURES.failed("append to", key, error)
    elif code == ErrorCode.UNKNOWN_SERVER_ERROR and not isinstance(error, KafkalogError):
        _LOG.error("cannot append to %s", key, exc_info=error)
    if partition is None or isinstance(error, _WITHOUT_LOG_START):
        return AppendResult(code, message=error.message if isinstance(error, StorageError) else None)
    start = partition.log.log_start_offset
    if isinstance(error, RecordRefused) and error.record_errors:
        return AppendResult(code, log_start_offset=start, record_errors=error.record_errors, message=error.message)
    return AppendResult(code, log_start_offset=start)


def code_for_reader(error: Exception, key: TopicPartition) -> int:
    """Return the error code for a failed read; log failures of the operating system, and unexpected errors."""
    if _is_system_failure(error):
        FAILURES.failed("read", key, error)
    elif not isinstance(error, KafkalogError):
        _LOG.error("cannot read %s", key, exc_info=error)
    return code_of(error)


def _is_system_failure(error: Exception) -> TypeGuard[OSError]:
    return isinstance(error, OSError) and error.errno is not None
