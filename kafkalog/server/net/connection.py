"""One connection: frames in, responses out, in order, one request at a time, as a broker mutes a busy socket.

A request that never waits is answered in the event that delivered its last byte, without a task. Further requests stay
in the socket, so a client that sends faster than it is served, or does not read, uses no memory here.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import socket
import ssl
from collections.abc import Callable, Coroutine, Generator, Sequence
from types import coroutine
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkalogError, MalformedRequest
from kafkalog.server.net.frames import LENGTH_BYTES, MIN_FRAME_BYTES, FrameReader
from kafkalog.server.net.outgoing import Outgoing, Progress, warm
from kafkalog.server.net.request_memory import LARGE, SMALL, UNAUTHENTICATED, UNAUTHENTICATED_READ_BYTES
from kafkalog.server.requests.context import Close, Connection

if TYPE_CHECKING:
    from kafkalog.server.net.listener import Network
    from kafkalog.server.wire.pieces import Pieces, Records
    from kafkalog.storage.file_slice import FileSlice

    Result = Pieces | Close | None

_LOG: Final = logging.getLogger(__name__)
_UNREACHABLE: Final = frozenset(
    (errno.EHOSTUNREACH, errno.EHOSTDOWN, errno.ENETUNREACH, errno.ENETDOWN, errno.ENETRESET, errno.ENOTCONN)
)


class Channel:
    """A client's socket. `connection` is the part that handlers see."""

    __slots__ = (
        "_counted_bytes", "_fd", "_frames", "_is_handshaking", "_is_writing", "_loop", "_network",
        "_on_secured", "_out", "_sock", "_task", "_unmute", "_unread", "active_ms", "connection",
        "held_bytes", "is_active", "is_busy", "is_closed", "is_ending", "is_reading", "is_unfinished", "kind",
        "largest_bytes", "reserved_bytes",
    )  # fmt: skip

    def __init__(
        self,
        network: Network,
        sock: socket.socket,
        connection: Connection,
        on_secured: Callable[[ssl.SSLSocket], object] | None = None,
    ) -> None:
        self._network = network
        self._loop = network.loop
        self._sock = sock
        self._fd = sock.fileno()
        self._frames = FrameReader(network.max_frame_bytes_of(connection))
        self._out = Outgoing(sock)
        self._task: asyncio.Task[Result] | None = None
        self._unmute: asyncio.TimerHandle | None = None  # of the end of a throttle time
        self.held_bytes = 0
        """Bytes of the request in memory."""
        self._counted_bytes = 0  # bytes counted for it in the network's memory, under `kind`
        self.kind = SMALL if connection.is_authenticated else UNAUTHENTICATED
        self.reserved_bytes = 0  # size of a large request that has reserved memory
        self.largest_bytes = 0  # size of the largest complete request so far
        self._unread = 0  # bytes of its response that the network counts
        self.is_reading = False
        self._is_writing = False
        self._is_handshaking = isinstance(sock, ssl.SSLSocket)
        self._on_secured = on_secured  # called after the handshake
        self.connection = connection
        self.is_busy = False
        self.is_closed = False
        self.is_ending = False  # closes once the current request is answered
        self.is_unfinished = False  # it is among the network's unfinished requests
        self.active_ms = network.monotonic_ms()
        self.is_active = False  # active since `active_ms`, which the next sweep updates

    @property
    def claimed_bytes(self) -> int:
        """Size of the request being received; -1 until known."""
        return self._frames.claimed_bytes

    @property
    def received_bytes(self) -> int:
        """Number of its bytes received so far."""
        return self._frames.received_bytes

    @property
    def client(self) -> tuple[str, str]:
        """The client's principal and address."""
        return self.connection.principal, self.connection.peer_host

    @property
    def is_inside_frame(self) -> bool:
        """True while a request is partly received."""
        return self._frames.is_inside

    @property
    def is_waiting(self) -> bool:
        """True while a request waits for something other than its client; such a connection is not idle."""
        return self.is_busy and self._out.is_empty

    @property
    def may_miss_disconnect(self) -> bool:
        """True while a cancellable request waits: the socket is not read, or its reset came with the request."""
        return self.is_waiting and self.connection.may_cancel

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        return self._fd

    # Reading

    def resume_reading(self) -> None:
        """Process the next frame already received, else wait for more bytes."""
        if self.is_closed or self.is_busy:
            return
        if self.is_ending:
            self.close()
            return
        wait_ms = self.connection.mute_until_ms - self._network.monotonic_ms()
        if wait_ms <= 0:
            self.connection.mute_until_ms = 0
        else:
            self._pause()
            self._unmute = self._loop.call_later(wait_ms / 1000, self.resume_reading)
            return
        try:
            frame = self._frames.next()
        except MalformedRequest as error:
            self._refuse("bad_frame", error)
            return
        if frame is not None:
            self._start_request(frame)
            return
        self._hold(self._frames.held_bytes)
        if self._may_continue() and self._network.may_read(self):
            self._resume()
            if not self._is_handshaking:
                self._loop_if_pending()

    def _may_continue(self) -> bool:
        """Count the unfinished request's memory and return True if it may be read further."""
        return not self._frames.is_inside or self._network.unfinished.count_received(self)

    def _resume(self) -> None:
        if not self.is_reading:
            self.is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _pause(self) -> None:
        if self.is_reading:
            self.is_reading = False
            self._loop.remove_reader(self._fd)

    def _continue_handshake(self) -> None:
        """Continue the TLS handshake."""
        sock = self._sock
        assert isinstance(sock, ssl.SSLSocket)
        try:
            sock.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as wanted:
            self._watch_writable(self._continue_handshake if isinstance(wanted, ssl.SSLWantWriteError) else None)
            return
        except OSError as error:
            self._refuse("bad_handshake", error)
            return
        self._watch_writable(None)
        self._is_handshaking = False
        try:
            if self._on_secured is not None:
                self._on_secured(sock)
        except ValueError as error:  # no principal for the client's certificate
            self._refuse("bad_handshake", error)
            return
        self._on_readable()

    def _on_busy_readable(self) -> None:
        """Stop reading while a request is in progress; cancel a cancellable one whose client has gone."""
        self._pause()
        try:
            is_gone = self.connection.may_cancel and not socket.socket.recv(self._sock, 1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            is_gone = True
        if is_gone and self._out.is_empty:
            self.cancel()

    def _on_readable(self) -> None:
        if self.is_closed:
            return
        if self._is_handshaking:
            self._continue_handshake()
            return
        if self.is_busy:
            self._on_busy_readable()
            return
        network = self._network
        is_free = network.memory.has_plenty and network.pool.pending <= network.pool.threads and not self.is_unfinished
        if self._frames.rest or not (is_free or network.may_read(self)):
            self._pause()
            return
        try:
            frame = self._receive()
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
            return
        except MalformedRequest as error:
            self._refuse("bad_frame", error)
            return
        except MemoryError:  # nothing was read: the loop would call this again and again
            self._refuse("no_memory", MemoryError("there is no memory for its request"))
            return
        except OSError:  # includes TLS errors
            self.close()
            return
        if frame is not None:
            self._start_request(frame)

    def _receive(self) -> bytearray | None:
        """Read from the socket once; return a frame if this read completed one."""
        frames, network = self._frames, self._network
        room = frames.room() if frames.is_collecting else None
        into = network.buffer if room is None else room
        if self.kind == UNAUTHENTICATED:
            into = into[:UNAUTHENTICATED_READ_BYTES]
        elif not network.memory.has_plenty or network.unfinished.waiting:
            if network.unfinished.is_tight and not frames.is_inside:
                into = into[:LENGTH_BYTES]
        try:
            count = self._sock.recv_into(into)
            if not count:
                self.close()
                return None
            network.counts.bytes_in += count
            if room is None:
                frame = frames.take(into[:count])
            else:
                room.release()
                frame = frames.filled(count)
        finally:
            if room is not None:
                room.release()
        if frame is None or self.held_bytes or frames.rest:
            self._hold(frames.held_bytes + (0 if frame is None else len(frame)))
        if frame is None:
            self.is_active = True
            if self._may_continue():
                self._loop_if_pending()
            else:
                self._pause()
        return frame

    def read_on(self) -> None:
        """Read again if no request began: of bytes and a reset that arrive together, uvloop reports only the bytes."""
        if self.is_reading and not self.is_busy and not self._frames.rest:
            self._on_readable()

    def _loop_if_pending(self) -> None:
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            self._loop.call_soon(self._on_readable)  # bytes buffered by TLS trigger no event

    def _hold(self, size: int) -> None:
        self._network.counts.request_bytes += size - self.held_bytes
        self.held_bytes = size
        kind = LARGE if self.reserved_bytes else SMALL if self.connection.is_authenticated else UNAUTHENTICATED
        update_memory = self.reserved_bytes or size
        if update_memory != self._counted_bytes or kind != self.kind:
            self._network.update_memory(self.kind, self._counted_bytes, kind, update_memory)
            self.kind, self._counted_bytes = kind, update_memory

    def reserve(self) -> None:
        """Reserve memory for all of its large request, until that is answered."""
        self.reserved_bytes = self._frames.claimed_bytes
        self._hold(self.held_bytes)

    def _release(self) -> None:
        """Release the request's memory; keep counting the bytes received after it."""
        self.reserved_bytes = 0
        self._hold(self._frames.held_bytes)

    # Working

    def _start_request(self, frame: bytearray) -> None:
        self.is_busy = True
        size = len(frame)
        if size > self.largest_bytes:
            self.largest_bytes = size
        if self.is_unfinished:
            self._network.unfinished.remove(self)
        self._network.counts.working += 1
        work = self._network.dispatch(self.connection, frame)
        del frame
        try:
            waits_for = work.send(None)
        except StopIteration as done:
            self._finish_request(done.value)
        except Exception as error:
            self._fail_request(error)
        else:
            # the handler waits: a task takes over, starting with that wait, and the request's bytes are counted
            self.is_active = True
            if not self.held_bytes:
                self._hold(self._frames.held_bytes + size)
            self._task = self._loop.create_task(_resume_work(work, waits_for))
            self._task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[Result]) -> None:
        self._task = None
        if task.cancelled():
            self._network.counts.working -= 1
            self.is_busy = False
            self.close()
            self._release()
        elif (error := task.exception()) is not None:
            self._fail_request(error)
        else:
            self._finish_request(task.result())

    def _fail_request(self, error: BaseException) -> None:
        _LOG.error("a request from %r failed", self.connection, exc_info=error)
        self._finish_request(Close())

    def _finish_request(self, answer: Result) -> None:
        self._network.counts.working -= 1
        sasl = self.connection.sasl
        if self.held_bytes or self.reserved_bytes or sasl is not None or self.kind == UNAUTHENTICATED:
            self._release()
        if self.is_closed:
            self.is_busy = False
            return
        if sasl is not None:  # the principal may have changed
            self._frames.max_bytes = self._network.max_frame_bytes_of(self.connection)
            self._frames.min_bytes = 0 if sasl.is_bare else MIN_FRAME_BYTES
        if isinstance(answer, Close):
            self._refuse("refused", None)
            return
        if answer is None:
            self.is_active = True
            self._finish_write()
            self._loop.call_soon(self.read_on)
            return
        self._write(answer)

    # Writing

    def _write(self, answer: Sequence[bytes | Records] | None = None) -> None:
        """Send a response, or continue sending it."""
        out = self._out
        before = out.sent_bytes
        try:
            progress = Progress.DONE if answer is not None and out.send(answer) else out.write()
        except OSError as error:  # in the socket or in the log file: the response cannot be completed
            if not _is_disconnect(error):
                _LOG.error("cannot send a response to %r: %s", self.connection, error)
            self.close()
            return
        sent = out.sent_bytes - before
        if sent:
            self._network.counts.bytes_out += sent
            self.is_active = True
        if self._unread or progress is not Progress.DONE:
            self._count_unread()
        if progress is Progress.DONE:
            if self._is_writing:
                self._watch_writable(None)
            self._finish_write()
        elif progress is Progress.BLOCKED:
            self._watch_writable(self._write)
        elif progress is Progress.WANTS_READ:
            self._watch_writable(None)
            self.is_reading = True
            self._loop.add_reader(self._fd, self._write_after_read)
        elif progress is Progress.MORE:
            self._watch_writable(None)
            self._loop.call_soon(self._continue_write)
        else:
            self._watch_writable(None)
            self._task = self._loop.create_task(self._warm_then_write(self._out.cold_range()))

    def _count_unread(self) -> None:
        before, self._unread = self._unread, self._out.held_bytes
        self._network.unread.changed(self, before, self._unread)

    def _continue_write(self) -> None:
        if not self.is_closed:
            self._write()

    def _write_after_read(self) -> None:
        self._pause()
        self._continue_write()

    async def _warm_then_write(self, piece: FileSlice) -> None:
        try:
            await self._network.run(warm, piece)
        except Exception as error:
            _LOG.error("cannot send a response to %r: %s", self.connection, error)
            self.close()
            return
        finally:
            self._task = None
        self._continue_write()

    def _watch_writable(self, callback: Callable[[], object] | None) -> None:
        if callback is not None:
            if not self._is_writing:
                self._loop.add_writer(self._fd, callback)
        elif self._is_writing:
            self._loop.remove_writer(self._fd)
        self._is_writing = callback is not None

    def _finish_write(self) -> None:
        self.is_busy = False
        self.is_ending |= self.connection.closes_after_answer
        if self.is_reading and not (self.is_ending or self.connection.mute_until_ms or self._frames.rest):
            if isinstance(self._sock, ssl.SSLSocket):
                self._loop_if_pending()
            return  # the usual case: the socket is already watched
        self._loop.call_soon(self.resume_reading)

    def send_raw(self, data: memoryview) -> int:
        """Send bytes beside any response and return how many were sent; BlockingIOError if none can be sent now."""
        try:
            return self._sock.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from None

    # Ending

    def end(self) -> None:
        """Close the connection, after the response to the current request if there is one."""
        self.is_ending = True
        if not self.is_busy:
            self.close()

    def _refuse(self, reason: str, error: Exception | None) -> None:
        self._network.counts.refuse(reason)
        if error is not None:
            self._network.refusals.closed(self.connection, "a request", reason, error)
        self.close()

    def close(self) -> None:
        """Close the connection now. A request in progress continues, and its response is dropped."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._unmute is not None:  # a throttle time may be days
            self._unmute.cancel()
        self._pause()
        self._watch_writable(None)
        is_in_progress = self._task is not None and self._out.is_empty
        self._out.clear()
        self._count_unread()
        self._frames = FrameReader(0)
        self._network.remove_connection(self)
        if not is_in_progress:  # else its bytes are in use until the request ends
            self._release()
        try:
            self._sock.close()
        except OSError:
            pass

    def cancel(self) -> None:
        """Close the connection and cancel the request in progress."""
        if self._task is not None:
            self._task.cancel()
        self.close()


def _is_disconnect(error: OSError) -> bool:
    """Return True for an error of a lost connection, which is normal; others are faults of this machine or server."""
    if isinstance(error, KafkalogError):
        return False
    return isinstance(error, (ConnectionError, TimeoutError, ssl.SSLError)) or error.errno in _UNREACHABLE


async def _resume_work(work: Coroutine[object, None, Result], waits_for: object) -> Any:
    """Await the rest of a coroutine that was driven to its first wait, in a form that a task accepts."""
    return await _steps(work, waits_for)


@coroutine
def _steps(work: Coroutine[object, None, Result], waits_for: object) -> Generator[object, None, Any]:
    while True:
        try:
            yield waits_for
        except BaseException as error:
            waits_for = None  # a future, its error and this frame would keep each other alive
            try:
                waits_for = work.throw(error)
            except StopIteration as done:
                return done.value
        else:
            break
    return (yield from work)
