"""One connection to a peer: pipelined requests, responses in order, every response checked.

An invalid response closes the connection and raises the error for every waiting caller. Nothing else is affected, and
memory grows only with the bytes received.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, cast

from kafkalog.errors import MalformedRequest
from kafkalog.server.client.errors import PeerError, PeerMisbehaved, PeerRefused, PeerTimedOut, PeerUnreachable
from kafkalog.server.client.messages import correlation_of, read_answer, request_frame
from kafkalog.server.client.settings import PeerSettings
from kafkalog.server.net.frames import FrameReader
from kafkalog.server.wire.definitions import response_plan
from kafkalog.server.wire.versions import APIS
from kafkalog.server.wire.writer import Tree

_READ_BYTES: Final = 1 << 16
_LEAST_ANSWER_BYTES: Final = 4
_LAST_ID: Final = 2**31 - 1


class _PendingRequest(NamedTuple):
    correlation_id: int
    api_key: int
    version: int
    answer: asyncio.Future[object]
    deadline: float  # in the loop's time


class PeerConnection(asyncio.BufferedProtocol):
    """A connection from `connect`; used only in the loop's thread. `versions`: API key -> (oldest, newest) served."""

    def __init__(self, peer: str, settings: PeerSettings) -> None:
        self.peer = peer
        self.versions: Mapping[int, tuple[int, int]] = {}
        self._settings = settings
        self._frames = FrameReader(settings.max_answer_bytes)
        self._frames.min_bytes = _LEAST_ANSWER_BYTES
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._in_frame = False
        self._pending: deque[_PendingRequest] = deque()
        self._next_id = 0
        self._failure: PeerError | None = None
        self._transport: asyncio.Transport | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    # Asking

    @property
    def is_open(self) -> bool:
        """True if requests can be sent."""
        return self._failure is None and self._transport is not None

    def version_of(self, api_key: int, newest: int | None = None) -> int:
        """Return the newest version of a call, up to `newest`, that both ends know; raise PeerRefused without one."""
        api = APIS[api_key]
        oldest, last = self.versions.get(api_key, (0, -1))
        version = min(api.newest if newest is None else min(newest, api.newest), last)
        if version < max(oldest, api.oldest):
            raise PeerRefused(f"it supports no version of {api.name} that kafkalog knows", peer=self.peer)
        return version

    async def request(
        self, api_key: int, tree: Tree, *, version: int | None = None, timeout_ms: int | None = None
    ) -> Any:
        """Send a request and return the response, with kio's names; `version` None is the newest that both ends know.

        Raises PeerUnreachable, PeerTimedOut or PeerMisbehaved after closing the connection, and PeerRefused for a call
        that the peer does not serve. Cancelling the caller leaves the connection open. If the response has still not
        come at the end of its time, the next request raises PeerTimedOut.
        """
        chosen = self.version_of(api_key) if version is None else version
        response_plan(api_key, chosen)  # a missing package is raised here, for the caller
        wait_ms = self._settings.request_ms if timeout_ms is None else timeout_ms
        answer = self._send(api_key, chosen, tree, wait_ms)
        try:
            async with asyncio.timeout(wait_ms / 1000):
                return await answer
        except PeerError:
            raise
        except TimeoutError:
            error = PeerTimedOut(f"no response to {APIS[api_key].name} within {wait_ms} ms", peer=self.peer)
            self._fail(error)
            raise error from None

    def _send(self, api_key: int, version: int, tree: Tree, wait_ms: int) -> asyncio.Future[object]:
        now = asyncio.get_running_loop().time()
        if self._pending and self._pending[0].answer.cancelled() and self._pending[0].deadline < now:
            # the machine may have gone, and callers that wait for a shorter time do not end the connection
            late = APIS[self._pending[0].api_key].name
            self._fail(PeerTimedOut(f"no response to an earlier {late} in time", peer=self.peer))
        if self._failure is not None:
            raise _copy_error(self._failure)
        assert self._transport is not None
        number = self._next_id
        frame = request_frame(api_key, version, number, self._settings.client_id, tree)
        self._next_id = 0 if number == _LAST_ID else number + 1
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._pending.append(_PendingRequest(number, api_key, version, answer, now + wait_ms / 1000))
        self._transport.write(frame)
        return answer

    async def close(self) -> None:
        """Close the connection and wait for the socket's end. Waiting requests raise PeerUnreachable."""
        self._fail(PeerUnreachable("this side closed the connection", peer=self.peer))
        if self._transport is not None:
            await asyncio.shield(self._closed)

    def _fail(self, error: PeerError) -> None:
        if self._failure is None:
            self._failure = error
            if self._transport is not None:
                self._transport.abort()
        pending, self._pending = self._pending, deque()
        for one in pending:
            if not one.answer.done():
                one.answer.set_exception(_copy_error(self._failure))

    # Called by the loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport of the connected socket."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport does not derive from it

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return the buffer for the next bytes; for a large frame it is the frame itself."""
        room = self._frames.room()
        self._in_frame = room is not None
        return self._buffer if room is None else room

    def buffer_updated(self, nbytes: int) -> None:
        """Process `nbytes` received bytes."""
        frames = self._frames
        try:
            frame = frames.filled(nbytes) if self._in_frame else frames.take(self._buffer[:nbytes])
            while frame is not None and self._failure is None:
                self._handle_response(frame)
                frame = frames.next()
        except MalformedRequest as error:
            self._fail(PeerMisbehaved(f"invalid response: {error.message}", peer=self.peer))

    def _handle_response(self, frame: bytearray) -> None:
        if not self._pending:
            raise MalformedRequest("a response without a request")
        pending = self._pending[0]
        number = correlation_of(frame)
        if number != pending.correlation_id:
            raise MalformedRequest(f"correlation id {number} instead of {pending.correlation_id}")
        if pending.answer.cancelled():
            self._pending.popleft()
            return
        answer = read_answer(pending.api_key, pending.version, frame)
        self._pending.popleft()
        if not pending.answer.done():
            pending.answer.set_result(answer)

    def eof_received(self) -> bool:
        """Return False to close the transport when the peer closes; `connection_lost` follows."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail waiting requests with PeerUnreachable."""
        message = "it closed the connection" if exc is None else f"connection lost: {exc}"
        self._fail(PeerUnreachable(message, peer=self.peer))
        if not self._closed.done():
            self._closed.set_result(None)


def _copy_error(error: PeerError) -> PeerError:
    """Return a copy for another waiting task: the traceback of a shared exception would grow with each raise."""
    copy = type(error)(error.message)
    copy.peer = error.peer
    return copy
