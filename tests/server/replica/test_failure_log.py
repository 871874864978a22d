"""Failures of the operating system in the server's log: each is named, and none floods it."""

import errno
import os

import pytest

from kafkalog.errors import StorageError
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica import append_results
from kafkalog.server.replica.failure_log import QUIET_MS, FailureLog
from kafkalog.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def failure(code: int, path: str) -> StorageError:
    return StorageError.from_os(OSError(code, os.strerror(code)), "write", path=path)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [one.getMessage() for one in caplog.records]
    caplog.clear()
    return found


def test_one_line_a_minute_for_each_directory_and_errno(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = [5]
    log = FailureLog(lambda: now_ms[0])
    full = os.strerror(errno.ENOSPC)
    log.failed("append to", T0, failure(errno.ENOSPC, "/disk/a/t-0/0.log"))
    [line] = lines(caplog)
    assert line.startswith(f"cannot append to t-0: cannot write: {full} (file /disk/a/t-0/0.log)")
    log.failed("append to", T1, failure(errno.ENOSPC, "/disk/a/t-1/0.log"))
    now_ms[0] += QUIET_MS - 1
    log.failed("append to", T0, failure(errno.ENOSPC, "/disk/a/t-0"))
    assert lines(caplog) == []
    log.failed("append to", T1, failure(errno.ENOSPC, "/disk/b/t-1/0.log"))
    log.failed("append to", T0, failure(errno.EMFILE, "/disk/a/t-0/0.log"))
    log.failed("read", T0, failure(errno.ENOSPC, "/disk/a/t-0/0.log"))
    assert len(lines(caplog)) == 3
    now_ms[0] += 1
    log.failed("append to", T1, failure(errno.ENOSPC, "/disk/a/t-1/0.log"))
    assert len(lines(caplog)) == 1


def test_a_failed_read_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_results, "FAILURES", FailureLog())
    code = append_results.code_for_reader(failure(errno.EMFILE, "/disk/a/t-0/0.log"), T0)
    assert code == ErrorCode.KAFKA_STORAGE_ERROR
    [line] = lines(caplog)
    assert line.startswith("cannot read t-0: ") and os.strerror(errno.EMFILE) in line


def test_an_error_of_the_system_in_an_append_keeps_its_traceback(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(append_results, "FAILURES", FailureLog())
    for _ in range(2):
        result = append_results.refused(T0, OSError(errno.EIO, os.strerror(errno.EIO), "/disk/a/t-0/0.log"), None)
        assert result.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    [record] = caplog.records
    assert record.exc_info
