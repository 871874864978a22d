"""Outgoing responses: buffers are gathered into one call, file ranges are sent by sendfile if possible.

Nothing blocks here: unsent pieces are kept as they are (a file range stays one) until the socket is writable again. A
range that is not in memory is reported, so that a thread reads it while the loop continues.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Any, Final

from kafkalog.errors import StorageError
from kafkalog.server.net.frames import LENGTH_BYTES
from kafkalog.server.wire.pieces import Records
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.lazy_file import LazyFile
from kafkalog.util.fileio import File
from kafkalog.util.system_calls import CANNOT

CHUNK_BYTES: Final = 1 << 20
"""Maximum bytes of a file sent in one call, for fairness to other connections."""
COPY_BYTES: Final = 1 << 17
"""Maximum bytes read into memory at once if sendfile is not possible."""
JOIN_BYTES: Final = 1 << 16
"""A response up to this size whose file ranges are in memory is sent in one call."""
_MAX_BUFFERS: Final = 64
"""Maximum number of buffers in one call; the system's own limit, IOV_MAX, is 1024 on Linux and macOS."""
_NOT_SENDFILE: Final = CANNOT | {errno.ENOTSOCK, errno.EBADF}


class Progress(Enum):
    """State of sending a response."""

    DONE = 1
    BLOCKED = 2  # the socket's buffer is full
    WANTS_READ = 3  # TLS must read before it writes
    COLD = 4  # the next bytes are not in memory
    MORE = 5  # continue in the loop's next iteration


class Outgoing:
    """The unsent part of a connection's response; one response at a time."""

    __slots__ = ("_copied", "_is_warmed", "_may_sendfile", "_pieces", "_sock", "held_bytes", "sent_bytes")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._pieces: deque[memoryview | FileSlice] = deque()
        self._may_sendfile = not isinstance(sock, ssl.SSLSocket) and hasattr(os, "sendfile")
        self._copied: memoryview | None = None  # unsent copy of the first range, without sendfile
        self._is_warmed = False
        self.sent_bytes = 0
        self.held_bytes = 0  # memory of unsent pieces; file ranges use none

    @property
    def is_empty(self) -> bool:
        """True once everything is sent."""
        return not self._pieces

    def send(self, pieces: Sequence[bytes | Records]) -> bool:
        """Prefix a response with its length and send it; return True if all was sent, else call `write` for the rest.

        Raises as `write`.
        """
        buffers: list[Any] = [b"", *pieces]
        size = 0
        for at, piece in enumerate(pieces, 1):
            if isinstance(piece, bytes):
                size += len(piece)
                continue
            copy = _in_memory(piece) if self._may_sendfile and piece.size <= JOIN_BYTES - size else None
            if copy is None:
                self._add(pieces)
                return False
            buffers[at] = copy
            size += piece.size
        if size > JOIN_BYTES:
            self._add(pieces)
            return False
        buffers[0] = size.to_bytes(LENGTH_BYTES, "big")
        joined = b""
        try:
            if self._may_sendfile and len(buffers) <= _MAX_BUFFERS:
                sent = self._sock.sendmsg(buffers)
            else:  # with TLS, or more buffers than the system takes in one call
                joined = b"".join(buffers)
                sent = self._sock.send(joined)
        except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            sent = 0
        self.sent_bytes += sent
        if sent == size + LENGTH_BYTES:
            return True
        if joined:  # TLS that was blocked has to be given the same bytes again, not only the first of them
            self._pieces.append(memoryview(joined))
            self.held_bytes += len(joined)
        else:
            self._add(pieces)
        self._skip(sent)
        return False

    def _add(self, pieces: Sequence[bytes | Records]) -> None:
        size = sum([len(piece) if isinstance(piece, bytes) else piece.size for piece in pieces])
        first, *others = pieces
        head = size.to_bytes(LENGTH_BYTES, "big")
        if isinstance(first, bytes) and len(first) < JOIN_BYTES:
            self._pieces.append(memoryview(head + first))
        else:
            self._pieces.append(memoryview(head))
            others = list(pieces)
        self.held_bytes += len(self._pieces[-1])
        for piece in others:
            if isinstance(piece, bytes):
                self.held_bytes += len(piece)
                if piece:  # sending 0 bytes would be retried forever
                    self._pieces.append(memoryview(piece))
            else:
                assert isinstance(piece, FileSlice)
                if piece.size:
                    self._pieces.append(piece)

    def write(self) -> Progress:
        """Write as much as the socket takes. Raise OSError for a lost connection, StorageError for a file."""
        budget = CHUNK_BYTES
        try:
            while self._pieces:
                if budget <= 0:
                    return Progress.MORE
                first = self._pieces[0]
                if isinstance(first, memoryview):
                    budget -= self._send_buffers()
                elif self._copied is not None:
                    budget -= self._send_copy(first)
                else:
                    file = _open_file(first)
                    if not self._is_warmed and not _is_warm(file, first.position, min(first.size, CHUNK_BYTES)):
                        self._is_warmed = True  # no second check: a thread reads it next
                        return Progress.COLD
                    self._is_warmed = False
                    budget -= self._send_range(first, file)
        except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError):
            return Progress.BLOCKED
        except ssl.SSLWantReadError:
            return Progress.WANTS_READ
        return Progress.DONE

    def cold_range(self) -> FileSlice:
        """Return the range that a thread must read with `warm` after COLD."""
        first = self._pieces[0]
        assert isinstance(first, FileSlice)
        return first.slice(0, CHUNK_BYTES)

    def clear(self) -> None:
        """Release all pieces."""
        self._pieces.clear()
        self.held_bytes = 0
        self._copied = None

    def _send_buffers(self) -> int:
        buffers: list[memoryview] = []
        for piece in self._pieces:
            if not isinstance(piece, memoryview) or len(buffers) == _MAX_BUFFERS:
                break
            buffers.append(piece)
        is_tls = isinstance(self._sock, ssl.SSLSocket)
        sent = self._sock.send(buffers[0]) if len(buffers) == 1 or is_tls else self._sock.sendmsg(buffers)
        self.sent_bytes += sent
        self._skip(sent)
        return sent

    def _skip(self, sent: int) -> None:
        """Remove `sent` bytes from the front of the pieces."""
        remaining = sent
        while remaining:
            first = self._pieces[0]
            if not isinstance(first, memoryview):
                if remaining < first.size:
                    self._pieces[0] = first.slice(remaining, first.size - remaining)
                    break
                remaining -= first.size
            elif remaining < len(first):
                self._pieces[0] = first[remaining:]
                break
            else:
                remaining -= len(first)
                self.held_bytes -= memoryview(first.obj).nbytes  # counted until its last byte is sent
            self._pieces.popleft()

    def _send_range(self, piece: FileSlice, file: File) -> int:
        count = min(piece.size, CHUNK_BYTES)
        if self._may_sendfile:
            try:
                sent = os.sendfile(self._sock.fileno(), file.fileno(), piece.position, count)
            except (BlockingIOError, InterruptedError):
                raise
            except OSError as error:
                if error.errno not in _NOT_SENDFILE:
                    raise
                self._may_sendfile = False  # not supported by this socket or file system
            else:
                if sent == 0:
                    raise _truncated(piece)
                self._advance(piece, sent)
                return sent
        copy = memoryview(piece.slice(0, COPY_BYTES).read())
        if not copy:
            raise _truncated(piece)
        self._copied = copy
        return self._send_copy(piece)

    def _send_copy(self, piece: FileSlice) -> int:
        copied = self._copied
        assert copied is not None
        sent = self._sock.send(copied)
        self._copied = copied[sent:] if sent < len(copied) else None
        self._advance(piece, sent)
        return sent

    def _advance(self, piece: FileSlice, sent: int) -> None:
        self.sent_bytes += sent
        if sent == piece.size:
            self._pieces.popleft()
        else:
            self._pieces[0] = piece.slice(sent, piece.size - sent)


def warm(piece: FileSlice) -> None:
    """Read a range to bring its pages into memory. Call it in a thread."""
    buffer = bytearray(COPY_BYTES)
    done = 0
    while done < piece.size:
        count = piece.slice(done, COPY_BYTES).read_into(buffer)
        if not count:
            return  # reported on sending
        done += count


def _open_file(piece: FileSlice) -> File:
    file = piece.file
    try:
        found = file.opened() if isinstance(file, LazyFile) else file
    except OSError as error:
        raise StorageError.from_os(error, "read", path=piece.path, position=piece.position) from error
    assert isinstance(found, File)
    return found


def _in_memory(piece: Records) -> bytearray | None:
    """Return the bytes of a small range, or None if they are missing, not in memory, or this cannot be checked."""
    assert isinstance(piece, FileSlice)
    if not hasattr(os, "RWF_NOWAIT"):
        return None
    data = bytearray(piece.size)
    try:
        file: Any = piece.file
        if isinstance(file, LazyFile):
            file = file.file or file.opened()
        count = os.preadv(file.fileno(), [data], piece.position, os.RWF_NOWAIT)
    except OSError:
        return None
    return data if count == piece.size else None


def _is_warm(file: File, position: int, size: int) -> bool:
    """Return False if the system reports that the first or last byte is not in memory."""
    if not hasattr(os, "RWF_NOWAIT"):
        return True
    buffer = bytearray(1)
    try:
        for at in (position, position + size - 1):
            os.preadv(file.fileno(), [buffer], at, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # not supported by the file system
        return True
    return True


def _truncated(piece: FileSlice) -> StorageError:
    return StorageError("the file was truncated while it was being sent", path=piece.path, position=piece.position)
