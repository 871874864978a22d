"""Appending single records from many threads: `log.writer()`."""

from __future__ import annotations

import warnings
from datetime import datetime
from typing import TYPE_CHECKING, Never

from kafkalog._core.batch.encode import BadRecord
from kafkalog.errors import IllegalArgument, InvalidRecord, InvalidTimestamp, KafkalogError, RecordTooLarge
from kafkalog.log.accumulator import Accumulator, Headers
from kafkalog.log.pending import Pending
from kafkalog.records.packing import parse_compression
from kafkalog.storage.group_commit import Sync, again, check_sync
from kafkalog.util.closing import Closing
from kafkalog.util.keywords import unknown_keyword

if TYPE_CHECKING:
    from kafkalog.log.log import Log

LINGER_MS = 5
MAX_LINGER_MS = 2**31 - 1
BATCH_BYTES = 16_384
BUFFER_MEMORY = 32 * 1024 * 1024


class Writer(Closing):
    """Joins single records into batches and appends them; created by `log.writer()`.

    A batch closes when the next record would exceed `batch_bytes` (its exact encoded size, including the 61-byte
    header), or `linger_ms` after its first record (default 5; 0 with `sync=True`: it waits only for a sync in
    progress). The size of a compressed batch is estimated from the batches before it. At most `buffer_memory`
    uncompressed bytes are pending; `append` then blocks. Records of one thread keep their order. After a failed write
    every later call fails with the same error. As a context manager it writes everything when the block ends.

    >>> with log.writer() as writer:
    ...     handle = writer.append(b"value", key=b"k")
    >>> handle.result()
    2

    Threads: all methods may be called from any thread.
    """

    __slots__ = ("__weakref__", "_core", "_log")

    def __init__(
        self,
        log: Log,
        *,
        linger_ms: float | None = None,
        batch_bytes: int = BATCH_BYTES,
        buffer_memory: int = BUFFER_MEMORY,
        compression: str | None = None,
        sync: Sync | None = None,
    ) -> None:
        opened = log.opened_for_append()
        sync = opened.sync is True if sync is None else check_sync(sync)
        if linger_ms is None:
            linger_ms = 0 if sync is True else LINGER_MS
        if not 0 <= linger_ms <= MAX_LINGER_MS:
            raise IllegalArgument(f"linger_ms is {linger_ms}; it must be 0 to {MAX_LINGER_MS}")
        if batch_bytes < 0 or buffer_memory <= 0:
            hint = "batch_bytes must be at least 0, buffer_memory at least 1"
            raise IllegalArgument(f"batch_bytes is {batch_bytes} and buffer_memory {buffer_memory}", hint=hint)
        self._log = log  # keeps the log open while the writer exists
        self._core = Accumulator(
            opened,
            linger_ms=linger_ms,
            batch_bytes=batch_bytes,
            buffer_memory=buffer_memory,
            compression=None if compression is None else parse_compression(compression),
            sync=sync,
        )

    def append(
        self,
        value: bytes | bytearray | memoryview | None,
        key: bytes | bytearray | memoryview | None = None,
        timestamp: int | datetime | None = None,
        headers: Headers = (),
        **unknown: Never,
    ) -> Pending:
        """Add a record and return a handle whose `.result()` is the record's offset.

        `timestamp` is in milliseconds, or a datetime; None is the current time. A record that the topic would reject is
        rejected here, without an effect on other records: TypeError for a str, RecordTooLarge, InvalidTimestamp,
        InvalidRecord for a missing key on a compacted topic.
        """
        core = self._core
        if core.refusal is not None:
            raise again(core.refusal)
        if unknown:
            raise unknown_keyword("append", unknown, ("value", "key", "timestamp", "headers"))
        if timestamp is None:
            timestamp = core.milliseconds()
        else:
            timestamp = core.checked_timestamp(timestamp)
        if key is None and core.needs_key:
            core.refuse_missing_key()
        if headers:
            headers = _as_pairs(headers)
        try:
            while True:
                with core.lock:
                    batch = core.filling
                    if batch is None or not batch.builder.append(value, key, timestamp, headers):
                        batch = core.start_batch_locked(value, key, timestamp, headers)
                    if batch is not None:
                        return Pending(batch, batch.builder.count - 1)
                    gate = core.gates.wait_gate_locked()
                gate.acquire()
        except BadRecord as error:
            raise encoding_error(error, core.opened.path) from None

    def flush(self) -> None:
        """Wait until every record appended so far is written (and on disk, if `sync` is True).

        Raises the error of a failed write.

        >>> writer = log.writer(linger_ms=1000)
        >>> handles = [writer.append(b"value") for _ in range(3)]
        >>> writer.flush()
        >>> [handle.result() for handle in handles]
        [2, 3, 4]
        >>> writer.close()
        """
        core = self._core
        core.flush()
        if core.failed is not None:
            raise again(core.failed)

    def close(self) -> None:
        """Write the pending records and end the writer; the log stays open. Raises the error of a failed write.

        >>> writer = log.writer()
        >>> writer.close()
        >>> writer.closed
        True
        """
        core = self._core
        if core.closed:
            return
        core.close()
        if core.failed is not None:
            raise again(core.failed)

    @property
    def closed(self) -> bool:
        """True after `close()`."""
        return self._core.closed

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is not None and not core.closed:
            warnings.warn(f"unclosed writer of log {core.name}", ResourceWarning, source=self, stacklevel=2)
            core.request_close()

    def __repr__(self) -> str:
        state = "closed" if self._core.closed else "failed" if self._core.failed is not None else "open"
        return f"<Writer {self._core.name} {state}>"


def _as_pairs(headers: Headers) -> Headers:
    """Return the headers as a list of pairs.

    An iterator runs the caller's code, which may itself append, and can be read only once."""
    return [tuple(pair) for pair in (headers.items() if isinstance(headers, dict) else headers)]


def encoding_error(error: BadRecord, path: str) -> KafkalogError:
    """Return the public error for a record that the encoder rejected."""
    if error.field == "timestamp":
        return InvalidTimestamp(str(error), path=path, record_errors=[(error.index, str(error))])
    if error.field == "headers":
        return InvalidRecord(str(error), path=path, record_errors=[(error.index, str(error))])
    return RecordTooLarge(str(error), path=path, hint="a batch holds at most max.message.bytes, 1 MiB by default")
