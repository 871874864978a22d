"""Calls between the server's main process and a worker, both ways, over a socket pair that only these two have.

A message is its length, the length of a JSON header, the header and a body of bytes. A header has a number and either
the name of a call with its arguments, or the answer to the call of that number.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kafkalog.errors import IllegalState, KafkalogError, from_code
from kafkalog.server.error_codes import code_of

_LOG: Final = logging.getLogger(__name__)
_LENGTHS: Final = struct.Struct(">II")


class Message(NamedTuple):
    """The values of a call or an answer, and its bytes."""

    values: Mapping[str, Any]
    body: bytes = b""


Answer = Callable[[str, Message], Awaitable[Message]]


class LinkLost(IllegalState):
    """The other process has ended, or is about to."""


class Link:
    """One end of the socket pair; used only in the loop's thread. `answer` answers the other end's calls."""

    def __init__(self, answer: Answer, on_lost: Callable[[], object]) -> None:
        self._answer = answer
        self._on_lost = on_lost
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, tuple[str, asyncio.Future[Message]]] = {}
        self._number = 0
        self._reading: asyncio.Task[None] | None = None
        self._answering: set[asyncio.Task[None]] = set()
        self.is_open = False

    async def open(self, sock: socket.socket) -> None:
        """Use this socket until it is closed or lost."""
        reader, self._writer = await asyncio.open_unix_connection(sock=sock)
        self.is_open = True
        self._reading = asyncio.get_running_loop().create_task(self._read(reader))

    async def call(self, name: str, values: Mapping[str, Any] | None = None, body: bytes = b"") -> Message:
        """Make a call and return the answer. LinkLost; the error of the other end, by its code in the protocol."""
        if not self.is_open:
            raise LinkLost("the other process does not run")
        self._number += 1
        number = self._number
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number] = name, answer
        try:
            writer = self._write({"number": number, "call": name, "values": values or {}}, body)
            with suppress(OSError):  # the answer is then LinkLost
                await writer.drain()
            return await answer
        finally:
            self._waiting.pop(number, None)

    def _write(self, header: Mapping[str, Any], body: bytes) -> asyncio.StreamWriter:
        text = json.dumps(header).encode()
        writer = self._writer
        if writer is None or not self.is_open:
            raise LinkLost("the other process does not run")
        writer.write(_LENGTHS.pack(len(text), len(body)) + text + body)
        return writer

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                head, size = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
                header = json.loads(await reader.readexactly(head))
                body = await reader.readexactly(size) if size else b""
                if "call" in header:
                    task = asyncio.get_running_loop().create_task(self._reply(header, body))
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)
                else:
                    self._take(header, body)
        except (asyncio.IncompleteReadError, OSError):
            pass
        finally:
            self._lose()

    def _take(self, header: Mapping[str, Any], body: bytes) -> None:
        _, waiting = self._waiting.get(header["number"], ("", None))
        if waiting is None or waiting.done():
            return
        if "code" in header:
            waiting.set_exception(from_code(header["code"], header["message"]))
        else:
            waiting.set_result(Message(header["values"], body))

    async def _reply(self, header: Mapping[str, Any], body: bytes) -> None:
        number = header["number"]
        try:
            answer = await self._answer(header["call"], Message(header["values"], body))
            self._write({"number": number, "values": answer.values}, answer.body)
        except asyncio.CancelledError:  # of what it waited for; without an answer the caller would wait for ever
            self._fail(number, LinkLost("the call was cancelled"))
            raise
        except Exception as error:  # also of an answer that cannot be written
            if not isinstance(error, KafkalogError | OSError):
                _LOG.exception("a call between processes failed: %s", header["call"])
            self._fail(number, error)
        if self._writer is not None:
            with suppress(OSError):
                await self._writer.drain()

    def _fail(self, number: int, error: Exception) -> None:
        with suppress(LinkLost):
            self._write({"number": number, "code": int(code_of(error)), "message": str(error)}, b"")

    def abandon(self, name: str | None = None) -> None:
        """Let the calls of this name, or all, that wait for an answer raise LinkLost. The link stays open."""
        for call, one in self._waiting.values():
            if name in (None, call) and not one.done():
                one.set_exception(LinkLost("a process of the server has ended or is stopping"))

    def _lose(self) -> None:
        if self.is_open:
            self.is_open = False
            if self._writer is not None:
                self._writer.close()
            self.abandon()
            self._on_lost()

    def close(self) -> None:
        """Close the socket; calls that wait raise LinkLost, and `on_lost` is called.

        Calls of the other end are answered to the end, for nothing: half of a change would be worse.
        """
        self._lose()
        if self._reading is not None:
            self._reading.cancel()
