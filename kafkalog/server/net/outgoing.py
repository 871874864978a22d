"""Answers on their way out: buffers are gathered into one call, ranges of files go by sendfile where that is possible.

Nothing waits here: what a socket does not take is kept as it is (a range of a file stays one) until it can be written
again. A range whose bytes are not in memory is reported, so that a thread reads it and the loop goes on.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final

from kafkalog.errors import StorageError
from kafkalog.server.wire.fetch_response import Records
from kafkalog.storage.file_slice import FileSlice
from kafkalog.util.fileio import File
from kafkalog.util.system_calls import CANNOT

CHUNK_BYTES: Final = 1 << 20
"""The most that one call sends of a file, so that the others get their turn."""
COPY_BYTES: Final = 1 << 17
"""The most that is read into memory at once where sendfile is not possible."""
JOIN_BYTES: Final = 1 << 16
_MANY: Final = 64
_PAGE: Final = 4096
_NOT_SENDFILE: Final = CANNOT | {errno.ENOTSOCK, errno.EBADF}


class Progress(Enum):
    """How far it is."""

    DONE = 1
    BLOCKED = 2  # the socket takes no more for now
    WANTS_READ = 3  # TLS has to read before it writes
    COLD = 4  # the next bytes are on disk only
    MORE = 5  # enough for one turn of the loop


class Outgoing:
    """What one connection still has to write; one answer at a time."""

    __slots__ = ("_copied", "_is_warmed", "_may_sendfile", "_pieces", "_sock", "held_bytes", "sent_bytes")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._pieces: deque[memoryview | FileSlice] = deque()
        self._may_sendfile = not isinstance(sock, ssl.SSLSocket) and hasattr(os, "sendfile")
        self._copied: memoryview | None = None  # of the range that is first, where it is copied
        self._is_warmed = False
        self.sent_bytes = 0
        self.held_bytes = 0  # memory of what is not written yet; ranges of files have none

    @property
    def is_empty(self) -> bool:
        """True when all is written."""
        return not self._pieces

    def add(self, pieces: Sequence[bytes | Records]) -> None:
        """An answer, to which its length is put."""
        size = sum([len(piece) if isinstance(piece, bytes) else piece.size for piece in pieces])
        first, *others = pieces
        head = size.to_bytes(4, "big")
        if isinstance(first, bytes) and len(first) < JOIN_BYTES:
            self._pieces.append(memoryview(head + first))
        else:
            self._pieces.append(memoryview(head))
            others = list(pieces)
        self.held_bytes += len(self._pieces[-1])
        for piece in others:
            if isinstance(piece, bytes):
                self.held_bytes += len(piece)
                if piece:  # a socket that takes 0 bytes of it would be asked for ever
                    self._pieces.append(memoryview(piece))
            else:
                assert isinstance(piece, FileSlice)
                if piece.size:
                    self._pieces.append(piece)

    def write(self) -> Progress:
        """Write what the socket takes. OSError where the connection is gone, StorageError where a file is."""
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
                    file = _file_of(first)
                    if not self._is_warmed and not _is_warm(file, first.position, min(first.size, CHUNK_BYTES)):
                        self._is_warmed = True  # once a thread has read it; it may be gone again by then
                        return Progress.COLD
                    self._is_warmed = False
                    budget -= self._send_range(first, file)
        except (BlockingIOError, InterruptedError, ssl.SSLWantWriteError):
            return Progress.BLOCKED
        except ssl.SSLWantReadError:
            return Progress.WANTS_READ
        return Progress.DONE

    def cold_range(self) -> FileSlice:
        """The range to be read by a thread (`warm`) after COLD."""
        first = self._pieces[0]
        assert isinstance(first, FileSlice)
        return first.slice(0, CHUNK_BYTES)

    def clear(self) -> None:
        """Let go of all of it."""
        self._pieces.clear()
        self.held_bytes = 0
        self._copied = None

    def _send_buffers(self) -> int:
        buffers: list[memoryview] = []
        for piece in self._pieces:
            if not isinstance(piece, memoryview) or len(buffers) == _MANY:
                break
            buffers.append(piece)
        is_tls = isinstance(self._sock, ssl.SSLSocket)
        sent = self._sock.send(buffers[0]) if len(buffers) == 1 or is_tls else self._sock.sendmsg(buffers)
        self.sent_bytes += sent
        left = sent
        while left:
            first = self._pieces[0]
            assert isinstance(first, memoryview)
            if left < len(first):
                self._pieces[0] = first[left:]
                break
            left -= len(first)
            self.held_bytes -= memoryview(first.obj).nbytes  # a part of it would keep all of it
            self._pieces.popleft()
        return sent

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
                self._may_sendfile = False  # this socket, or this file system, cannot
            else:
                if sent == 0:
                    raise _cut(piece)
                self._took(piece, sent)
                return sent
        copy = memoryview(piece.slice(0, COPY_BYTES).read())
        if not copy:
            raise _cut(piece)
        self._copied = copy
        return self._send_copy(piece)

    def _send_copy(self, piece: FileSlice) -> int:
        copied = self._copied
        assert copied is not None
        sent = self._sock.send(copied)
        self._copied = copied[sent:] if sent < len(copied) else None
        self._took(piece, sent)
        return sent

    def _took(self, piece: FileSlice, sent: int) -> None:
        self.sent_bytes += sent
        if sent == piece.size:
            self._pieces.popleft()
        else:
            self._pieces[0] = piece.slice(sent, piece.size - sent)


def warm(piece: FileSlice) -> None:
    """Read a range, so that its pages are in memory: for a thread."""
    buffer = bytearray(COPY_BYTES)
    done = 0
    while done < piece.size:
        count = piece.slice(done, COPY_BYTES).read_into(buffer)
        if not count:
            return  # told when it is sent
        done += count


def _file_of(piece: FileSlice) -> File:
    file = piece.file
    opened = getattr(file, "opened", None)
    try:
        found = file if opened is None else opened()
    except OSError as error:
        raise StorageError.from_os(error, "read", path=piece.path, position=piece.position) from error
    assert isinstance(found, File)
    return found


def _is_warm(file: File, position: int, size: int) -> bool:
    """False where the first or the last byte is not in memory, as far as the system tells."""
    if not hasattr(os, "RWF_NOWAIT"):
        return True
    buffer = bytearray(1)
    try:
        for at in (position, position + size - 1):
            os.preadv(file.fileno(), [buffer], at, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:  # a file system that does not tell
        return True
    return True


def _cut(piece: FileSlice) -> StorageError:
    return StorageError("the file was cut while it was being sent", path=piece.path, position=piece.position)
