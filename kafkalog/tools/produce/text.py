"""Conversion of delimited text and whole files to record batches, which are appended to a topic's logs.

The layout of the batches depends on the input alone: a batch closes when the next record's exact size would take it
past the limit, before any compression. Only with an input that can be waited for (a pipe, a terminal) does a batch also
close by time.
"""

from __future__ import annotations

import os
import select
import stat
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from kafkalog._core.bytes.varint import encode_varint
from kafkalog._core.text.ingest import LineEncoder
from kafkalog.errors import RecordTooLarge
from kafkalog.records.packing import PLAIN, Compression
from kafkalog.tools.produce.queue import Sink, WriteQueue
from kafkalog.util.os_errors import os_errors

CHUNK_BYTES = 256 * 1024
READY_BYTES = 128 * 1024
_LONGEST_POLL_MS = 2**31 - 1


class Encoding(NamedTuple):
    """Rules for converting text to records; see `kafkalog produce --help` for each."""

    batch_bytes: int = 16_384
    delimiter: bytes = b"\n"
    key_delimiter: bytes | None = None
    null: bytes | None = None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


class Producer:
    """Encodes input into batches for `sinks`, one per partition, and appends them as they fill.

    Keyed records go to murmur2(key) mod the number of sinks; keyless ones stay on one partition until its batch closes.
    Compression runs in threads of its own (see WriteQueue), so that `close` is needed at the end. `max_record_bytes`
    bounds the memory for a line whose end has not come. `progress` is called with the size of every chunk of input
    bytes. Threads: belongs to one thread.
    """

    def __init__(
        self,
        sinks: Sequence[Sink],
        encoding: Encoding,
        *,
        milliseconds: Callable[[], int],
        compression: Compression = PLAIN,
        linger_ms: float = 5,
        max_record_bytes: int = 1_048_588,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        self._queue = WriteQueue(sinks, compression)
        self._partitions = range(len(sinks))
        self._encoder = LineEncoder(
            len(sinks),
            batch_bytes=encoding.batch_bytes,
            chunk_bytes=CHUNK_BYTES,
            delimiter=encoding.delimiter,
            key_delimiter=encoding.key_delimiter,
            null=encoding.null,
            key=encoding.key,
            encoded_headers=encode_headers(encoding.headers),
        )
        self._milliseconds = milliseconds
        self._linger_ms = linger_ms
        self._max_record_bytes = max_record_bytes
        self._progress = progress

    def read_lines(self, fd: int, name: str) -> None:
        """Read every delimited record of an open file, including a last one without a delimiter."""
        is_stream = not stat.S_ISREG(os.fstat(fd).st_mode)
        timer = _LingerTimer(fd, self._linger_ms) if is_stream else None
        encoder, milliseconds = self._encoder, self._milliseconds
        buffer = bytearray(CHUNK_BYTES)
        filled = 0
        while True:
            if filled == len(buffer):
                self._check_line(filled, name)
                buffer.extend(bytes(len(buffer)))
            if timer is not None:
                if self._queue.waiting and not timer.has_input():
                    self._queue.drain()
                if timer.passed():
                    self.flush()
                    continue
            read = _read_into(fd, buffer, filled, name)
            if read == 0:
                break
            filled += read
            used = encoder.feed(buffer, filled, milliseconds())
            if used:
                filled -= used
                buffer[:filled] = buffer[used : used + filled]
                self._write(0 if is_stream else READY_BYTES)
                if timer is not None:
                    timer.pending = True
            if self._progress is not None:
                self._progress(read)
        if filled:
            self._check_line(filled, name)
            encoder.feed(buffer, filled, milliseconds(), final=True)

    def read_whole(self, fd: int, name: str, key: bytes | None) -> None:
        """Read a file's content as one record."""
        parts = []
        size = 0
        while part := _read(fd, name):
            size += len(part)
            self._check_line(size, name)
            parts.append(part)
        self._encoder.add(b"".join(parts), key, self._milliseconds())
        self._write(READY_BYTES)
        if self._progress is not None:
            self._progress(size)

    def flush(self) -> None:
        """Close every open batch and append it; after a failed write append nothing, so that no gap arises."""
        if not self._queue.stopped:
            self._encoder.seal()
            self._write(0)
            self._queue.drain()

    def close(self) -> None:
        """End the compression threads, without a flush."""
        self._queue.close()

    def _write(self, at_least: int) -> None:
        encoder, queue = self._encoder, self._queue
        for number in self._partitions:
            if encoder.ready_bytes(number) > at_least:
                queue.stopped = True  # until the queue has the batches taken from the encoder
                queue.put(number, encoder.take(number))

    def _check_line(self, size: int, name: str) -> None:
        if size > self._max_record_bytes:
            raise RecordTooLarge(
                f"a record of more than {self._max_record_bytes} bytes (max.message.bytes)",
                path=name,
                hint="check the delimiter, or raise max.message.bytes of the topic",
            )


class _LingerTimer:
    """Detects when the wait for input has lasted so long that open batches close.

    Only waiting time counts, added up since the last close: a slow writer to the pipe delays its own records by at most
    `linger_ms`; a slow disk or a busy machine changes nothing.
    """

    def __init__(self, fd: int, linger_ms: float) -> None:
        self.pending = False  # records are pending in an open batch
        self._linger_ms = min(linger_ms, _LONGEST_POLL_MS)
        self._waited_ms = 0.0
        self._poll: select.poll | None = select.poll()
        self._poll.register(fd, select.POLLIN)

    def has_input(self) -> bool:
        """Return True if input can be read at once."""
        return self._poll is None or bool(self._poll.poll(0))

    def passed(self) -> bool:
        """Wait for input; return True if the linger time passed first while records were pending."""
        poll = self._poll
        if poll is None or not self.pending or poll.poll(0):
            return False
        began = time.monotonic()
        if poll.poll(max(0.0, self._linger_ms - self._waited_ms)):
            self._waited_ms += (time.monotonic() - began) * 1000
            return False
        self._waited_ms = 0.0
        self.pending = False
        return True


def encode_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """Return the header count and the headers in the format of a record's end (format.md section 2)."""
    out = [encode_varint(len(headers))]
    for name, value in headers:
        raw = name.encode()
        out += [encode_varint(len(raw)), raw, encode_varint(-1 if value is None else len(value)), value or b""]
    return b"".join(out)


def _read_into(fd: int, buffer: bytearray, at: int, name: str) -> int:
    with os_errors("read the input", name), memoryview(buffer) as view, view[at:] as rest:
        return os.readv(fd, [rest])


def _read(fd: int, name: str) -> bytes:
    with os_errors("read the input", name):
        return os.read(fd, CHUNK_BYTES)
