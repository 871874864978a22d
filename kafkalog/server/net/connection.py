"""One connection: frames in, answers out, in order, one request at a time, as a broker mutes a busy socket.

A request that is done in one go is answered within the event that brought its last byte, without a task. What else has
come waits in the socket, so a client that sends faster than it is served, or does not read, holds no memory here.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkalogError, MalformedRequest
from kafkalog.server.context import Close, Connection
from kafkalog.server.net.frames import LENGTH_BYTES, MIN_FRAME_BYTES, FrameReader
from kafkalog.server.net.outgoing import Outgoing, Progress, warm
from kafkalog.server.net.request_memory import LARGE, SMALL, STRANGER, STRANGERS_READ_BYTES

if TYPE_CHECKING:
    from kafkalog.server.net.listener import Network
    from kafkalog.storage.file_slice import FileSlice

_LOG: Final = logging.getLogger(__name__)


class Channel:
    """A client's socket. `connection` is what handlers see of it."""

    __slots__ = (
        "_counted", "_fd", "_frames", "_held", "_is_shaking", "_is_writing", "_loop", "_network", "_on_secured", "_out",
        "_sock", "_task", "_unread", "active_ms", "connection", "is_busy", "is_closed", "is_ending", "is_reading",
        "is_unfinished", "kind", "largest_bytes", "reserved_bytes",
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
        self._task: asyncio.Task[Any] | None = None
        self._held = 0  # bytes of its request in memory
        self._counted = 0  # bytes that the network's memory has for it, of its kind
        self.kind = SMALL if connection.is_authenticated else STRANGER
        self.reserved_bytes = 0  # the size of a large request that has room
        self.largest_bytes = 0  # the size of the largest request that came whole
        self._unread = 0  # bytes of its answer that the network counts
        self.is_reading = False
        self._is_writing = False
        self._is_shaking = isinstance(sock, ssl.SSLSocket)
        self._on_secured = on_secured  # called after the handshake
        self.connection = connection
        self.is_busy = False
        self.is_closed = False
        self.is_ending = False  # closed once the request at hand is answered
        self.is_unfinished = False  # the network's unfinished requests have it
        self.active_ms = network.monotonic_ms()

    @property
    def held_bytes(self) -> int:
        """Memory of its request."""
        return self._held

    @property
    def claimed_bytes(self) -> int:
        """The size of the request that is coming; -1 as long as it is not known."""
        return self._frames.claimed_bytes

    @property
    def come_bytes(self) -> int:
        """How much of that has come."""
        return self._frames.come_bytes

    @property
    def client(self) -> tuple[str, str]:
        """Who sends, and from where."""
        return self.connection.principal, self.connection.peer_host

    @property
    def is_inside_frame(self) -> bool:
        """True when a request has begun to come, and is not whole."""
        return self._frames.is_inside

    @property
    def is_waiting(self) -> bool:
        """True when a request waits for something other than its client: such a connection is not idle."""
        return self.is_busy and self._out.is_empty

    @property
    def would_miss_its_end(self) -> bool:
        """True when a request waits that may end with its client, and nobody looks whether that one has gone."""
        return self.is_waiting and self.connection.may_cancel and not self.is_reading

    def fileno(self) -> int:
        """Its descriptor."""
        return self._fd

    # Reading

    def read_on(self) -> None:
        """Go on with what has come already, else wait for more."""
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
            self._loop.call_later(wait_ms / 1000, self.read_on)
            return
        try:
            frame = self._frames.next()
        except MalformedRequest as error:
            self._refuse("bad_frame", error)
            return
        if frame is not None:
            self._began(frame)
            return
        self._hold(self._frames.held_bytes)
        if self._may_go_on() and self._network.may_read(self):
            self._resume()
            if not self._is_shaking:
                self._loop_if_pending()

    def _may_go_on(self) -> bool:
        """Whether what has begun is read on; its memory is counted."""
        return not self._frames.is_inside or self._network.unfinished.came(self)

    def _resume(self) -> None:
        if not self.is_reading:
            self.is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _pause(self) -> None:
        if self.is_reading:
            self.is_reading = False
            self._loop.remove_reader(self._fd)

    def _shake(self) -> None:
        """Go on with the handshake of TLS."""
        sock = self._sock
        assert isinstance(sock, ssl.SSLSocket)
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._watch_writable(None)
            return
        except ssl.SSLWantWriteError:
            self._watch_writable(self._shake)
            return
        except OSError as error:
            self._refuse("bad_handshake", error)
            return
        self._watch_writable(None)
        self._is_shaking = False
        if self._on_secured is not None:
            self._on_secured(sock)
        self._on_readable()

    def _on_busy_readable(self) -> None:
        """More has come while a request is worked on: it waits. If the client is gone, a request that waits ends."""
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
        if self._is_shaking:
            self._shake()
            return
        if self.is_busy:
            self._on_busy_readable()
            return
        if self._frames.has_rest or not self._network.may_read(self):
            self._pause()
            return
        try:
            frame = self._receive()
        except (BlockingIOError, InterruptedError, ssl.SSLWantReadError):
            return
        except MalformedRequest as error:
            self._refuse("bad_frame", error)
            return
        except OSError:  # of TLS, too
            self.close()
            return
        if frame is not None:
            self._began(frame)

    def _receive(self) -> bytearray | None:
        """A whole frame, if one was finished by this read."""
        room = self._frames.room()
        into = self._network.buffer if room is None else room
        if self.kind == STRANGER:
            into = into[:STRANGERS_READ_BYTES]
        elif self._network.unfinished.is_tight and not self._frames.is_inside:
            into = into[:LENGTH_BYTES]
        try:
            count = self._sock.recv_into(into)
            if not count:
                self.close()
                return None
            self._network.counts.bytes_in += count
            if room is None:
                frame = self._frames.take(into[:count])
            else:
                room.release()
                frame = self._frames.filled(count)
        finally:
            if room is not None:
                room.release()
        self.active_ms = self._network.monotonic_ms()
        self._hold(self._frames.held_bytes + (0 if frame is None else len(frame)))
        if frame is None:
            if self._may_go_on():
                self._loop_if_pending()
            else:
                self._pause()
        return frame

    def _loop_if_pending(self) -> None:
        if isinstance(self._sock, ssl.SSLSocket) and self._sock.pending():
            self._loop.call_soon(self._on_readable)  # what TLS has already taken from the socket wakes nobody

    def _hold(self, size: int) -> None:
        self._network.counts.request_bytes += size - self._held
        self._held = size
        kind = LARGE if self.reserved_bytes else SMALL if self.connection.is_authenticated else STRANGER
        counted = self.reserved_bytes or size
        if counted != self._counted or kind != self.kind:
            self._network.counted(self.kind, self._counted, kind, counted)
            self.kind, self._counted = kind, counted

    def reserve(self) -> None:
        """Its request, which is large, has room for all of it, until it is answered."""
        self.reserved_bytes = self._frames.claimed_bytes
        self._hold(self._held)

    def _let_go(self) -> None:
        """Its request needs no memory any more; what came after it does."""
        self.reserved_bytes = 0
        self._hold(self._frames.held_bytes)

    # Working

    def _began(self, frame: bytearray) -> None:
        self.is_busy = True
        self.largest_bytes = max(self.largest_bytes, len(frame))
        if self.is_unfinished:
            self._network.unfinished.over(self)
        self._network.counts.working += 1
        work = self._network.dispatch(self.connection, frame)
        del frame
        try:
            waits_for = work.send(None)
        except StopIteration as done:
            self._answered(done.value)
        except Exception as error:
            self._failed(error)
        else:
            # it has to wait: from here on it is a task, whose first step is what it waits for
            self._task = self._loop.create_task(_rest(work, waits_for))
            self._task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[Any]) -> None:
        self._task = None
        if task.cancelled():
            self._network.counts.working -= 1
            self.is_busy = False
            self.close()
            self._let_go()
        elif (error := task.exception()) is not None:
            self._failed(error)
        else:
            self._answered(task.result())

    def _failed(self, error: BaseException) -> None:
        _LOG.error("a request of %r failed", self.connection, exc_info=error)
        self._answered(Close())

    def _answered(self, answer: Any) -> None:
        self._network.counts.working -= 1
        self._let_go()
        if self.is_closed:
            self.is_busy = False
            return
        sasl = self.connection.sasl
        if sasl is not None:  # it may be somebody else by now
            self._frames.limit = self._network.max_frame_bytes_of(self.connection)
            self._frames.least = 0 if sasl.is_bare else MIN_FRAME_BYTES
        if isinstance(answer, Close):
            self._refuse("refused", None)
            return
        if answer is None:
            self._written()
            return
        self._out.add(answer)
        self._write()

    # Writing

    def _write(self) -> None:
        before = self._out.sent_bytes
        try:
            progress = self._out.write()
        except OSError as error:  # the client's socket, or the file behind the answer: it cannot be ended either way
            if isinstance(error, KafkalogError):
                _LOG.error("an answer to %r cannot be sent: %s", self.connection, error)
            self.close()
            return
        sent = self._out.sent_bytes - before
        if sent:
            self._network.counts.bytes_out += sent
            self.active_ms = self._network.monotonic_ms()
        if self._unread or progress is not Progress.DONE:
            self._count_unread()
        if progress is Progress.DONE:
            self._watch_writable(None)
            self._written()
        elif progress is Progress.BLOCKED:
            self._watch_writable(self._write)
        elif progress is Progress.WANTS_READ:
            self._watch_writable(None)
            self.is_reading = True
            self._loop.add_reader(self._fd, self._write_after_read)
        elif progress is Progress.MORE:
            self._watch_writable(None)
            self._loop.call_soon(self._write_on)
        else:
            self._watch_writable(None)
            self._task = self._loop.create_task(self._warmed(self._out.cold_range()))

    def _count_unread(self) -> None:
        before, self._unread = self._unread, self._out.held_bytes
        self._network.unread.changed(self, before, self._unread)

    def _write_on(self) -> None:
        if not self.is_closed:
            self._write()

    def _write_after_read(self) -> None:
        self._pause()
        self._write_on()

    async def _warmed(self, piece: FileSlice) -> None:
        try:
            await self._network.run(warm, piece)
        except Exception as error:
            _LOG.error("an answer to %r cannot be sent: %s", self.connection, error)
            self.close()
            return
        finally:
            self._task = None
        self._write_on()

    def _watch_writable(self, callback: Callable[[], object] | None) -> None:
        if callback is not None:
            if not self._is_writing:
                self._loop.add_writer(self._fd, callback)
        elif self._is_writing:
            self._loop.remove_writer(self._fd)
        self._is_writing = callback is not None

    def _written(self) -> None:
        self.is_busy = False
        self.is_ending |= self.connection.closes_after_answer
        if self.is_reading and not (self.is_ending or self.connection.mute_until_ms or self._frames.held_bytes):
            self._loop_if_pending()
            return  # the usual end: the socket is watched already
        self._loop.call_soon(self.read_on)

    # Ending

    def end(self) -> None:
        """Close it, after the answer to the request at hand if there is one."""
        self.is_ending = True
        if not self.is_busy:
            self.close()

    def _refuse(self, reason: str, error: Exception | None) -> None:
        self._network.counts.refuse(reason)
        if error is not None:
            _LOG.debug("%r is closed: %s", self.connection, error)
        self.close()

    def close(self) -> None:
        """Close it now; a request that is being worked on goes on, and its answer is dropped."""
        if self.is_closed:
            return
        self.is_closed = True
        self._pause()
        self._watch_writable(None)
        is_worked_on = self._task is not None and self._out.is_empty
        self._out.clear()
        self._count_unread()
        self._frames = FrameReader(0)
        self._network.closed(self)
        if not is_worked_on:  # else its bytes are in use until the request ends
            self._let_go()
        try:
            self._sock.close()
        except OSError:
            pass

    def cancel(self) -> None:
        """Close it, and end the request that is being worked on."""
        if self._task is not None:
            self._task.cancel()
        self.close()


async def _rest(work: Coroutine[Any, Any, Any], waits_for: Any) -> Any:
    """The rest of a coroutine that was driven up to its first wait; a task may be made of it."""
    return await _steps(work, waits_for)


@coroutine
def _steps(work: Coroutine[Any, Any, Any], waits_for: Any) -> Generator[Any, Any, Any]:
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
