"""HTTP endpoints for monitoring on a separate port: metrics, health, and the status page.

    GET /          the status page                       GET /health    200 as long as the process answers
    GET /metrics   Prometheus' text                      GET /ready     200 once clients are served, else 503

One request per connection, no body, at most `MAX_CONNECTIONS` at once. Concurrent requests share one rendering of a
page, in another thread if it is long. It is then cached for a while, so that any number of requests uses only a small
part of one processor.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import StorageError
from kafkalog.server.net.endpoints import parse_endpoint
from kafkalog.server.status.collected import ProcessTotals, metrics_of
from kafkalog.server.status.page import page, status_of
from kafkalog.util.prometheus import CONTENT_TYPE
from kafkalog.util.shielded import shielded

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

MAX_HEAD_BYTES: Final = 8192
MAX_CONNECTIONS: Final = 64
CACHE_FACTOR: Final = 10
HEAD_S: Final = 5.0
"""Time limit in seconds for receiving a request, and for sending its response."""
_LOG = logging.getLogger(__name__)
_HEADERS: Final = (
    "Connection: close\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n"
)


class Page(NamedTuple):
    """A response."""

    body: str
    content_type: str = "text/plain; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK


Make = Callable[[], Awaitable[Page]]


class SharedPage:
    """A page that concurrent requests share, cached for `CACHE_FACTOR` times as long as it took to render.

    `now` is a clock in seconds. Used only in the loop's thread.
    """

    def __init__(self, make: Make, now: Callable[[], float] = time.monotonic) -> None:
        self._make = make
        self._now = now
        self._making: asyncio.Task[Page] | None = None
        self._cached: Page | None = None
        self._cached_until = 0.0

    async def get(self) -> Page:
        """Return the page. An error of `make` is raised in all waiting callers, and the next call renders again."""
        if self._making is None:
            if self._cached is not None and self._now() < self._cached_until:
                return self._cached
            self._making = asyncio.get_running_loop().create_task(self._render())
        return await shielded(self._making)

    async def _render(self) -> Page:
        began = self._now()
        self._cached = None
        try:
            self._cached = await self._make()
            return self._cached
        finally:
            ended = self._now()
            self._cached_until = ended + CACHE_FACTOR * (ended - began)
            self._making = None

    def stop(self) -> None:
        """Cancel a rendering in progress."""
        if self._making is not None:
            self._making.cancel()


_CLOSE_ITERATIONS: Final = 8
"""Iterations of the loop after which every accepted connection was passed to `_on_connection` and closed."""


class HttpServer(ABC):
    """A port that answers HTTP requests, one per connection. `purpose` says in errors what the port is for."""

    def __init__(self, host: str, port: int, purpose: str) -> None:
        self._host = host
        self._port = port
        self._purpose = purpose
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._is_stopped = False

    @property
    def port(self) -> int:
        """The port that it listens on."""
        assert self._server is not None, "not started"
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Start listening. Raise StorageError if the address is not available."""
        try:
            self._server = await asyncio.start_server(
                self._on_connection, self._host or None, self._port, limit=MAX_HEAD_BYTES, backlog=MAX_CONNECTIONS
            )
        except OSError as error:
            where = f"{self._host}:{self._port}"
            raise StorageError(
                f"cannot listen at {where} ({self._purpose}): {error.strerror or error}",
                errno=error.errno,
            ) from None

    async def stop(self) -> None:
        """Stop listening and end open connections; one that was accepted but arrives later is closed at once."""
        if self._server is None:
            return
        self._is_stopped = True
        for sock in self._server.sockets:  # closing asyncio's server loses connections it has accepted
            asyncio.get_running_loop().remove_reader(sock.fileno())
        for _ in range(_CLOSE_ITERATIONS):
            await asyncio.sleep(0)
        self._server.close()
        self.end_answers()
        for task, writer in list(self._open.items()):
            writer.close()  # here, since a task cancelled before its start runs no code
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)
        for _ in range(_CLOSE_ITERATIONS):
            await asyncio.sleep(0)

    def _on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_stopped:
            writer.close()
            return
        if len(self._open) >= MAX_CONNECTIONS:
            writer.write(_answer(self.error_page(HTTPStatus.SERVICE_UNAVAILABLE), with_body=True))
            writer.close()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._open[task] = writer
        task.add_done_callback(self._open.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError):
                await self._exchange(reader, writer)
        finally:
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = ""
        try:
            async with asyncio.timeout(HEAD_S):
                head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.LimitOverrunError:
            answer = self.error_page(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        except TimeoutError:
            answer = self.error_page(HTTPStatus.REQUEST_TIMEOUT)
        else:
            method, target = _parse_request_line(head)
            if method:
                answer = await self.answer(method, target, head, reader, writer)
            else:
                answer = self.error_page(HTTPStatus.BAD_REQUEST)
        writer.write(_answer(answer, with_body=method != "HEAD"))
        async with asyncio.timeout(HEAD_S):
            await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            # closing with unread bytes would discard the response to a client that sent more than a head
            await reader.read(MAX_HEAD_BYTES)

    @abstractmethod
    async def answer(
        self, method: str, target: str, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Page:
        """Return the response to a request; a body is still to be read."""

    def end_answers(self) -> None:  # noqa: B027
        """End work that connections share; called once no more of them are accepted."""

    def error_page(self, status: HTTPStatus) -> Page:
        """Return the response to a request that cannot be served."""
        return Page(f"{status.value} {status.phrase}\n", status=status)


class HttpListener(HttpServer):
    """A port that serves pages over HTTP."""

    def __init__(self, host: str, port: int, pages: Mapping[str, Make]) -> None:
        super().__init__(host, port, "kafkalog.http.listener")
        self._pages = {path: SharedPage(make) for path, make in pages.items()}

    def end_answers(self) -> None:
        """Cancel renderings in progress."""
        for shared in self._pages.values():
            shared.stop()

    async def answer(
        self, method: str, target: str, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Page:
        """Return the page of a path."""
        path = target.partition("?")[0]
        page = self._pages.get(path)
        if page is None:
            return self.error_page(HTTPStatus.NOT_FOUND)
        if method not in ("GET", "HEAD"):
            return self.error_page(HTTPStatus.METHOD_NOT_ALLOWED)
        try:
            return await page.get()
        except Exception:
            _LOG.exception("cannot serve GET %s", path)
            return self.error_page(HTTPStatus.INTERNAL_SERVER_ERROR)


def _parse_request_line(head: bytes) -> tuple[str, str]:
    """Return method and target of a request; both are empty if it is invalid."""
    parts = head.partition(b"\r\n")[0].split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1.") or not parts[0].isalpha() or not parts[1].isascii():
        return "", ""
    return parts[0].decode("ascii"), parts[1].decode("ascii")


def _answer(answer: Page, *, with_body: bool) -> bytes:
    body = answer.body.encode("utf-8", "backslashreplace")
    allow = "Allow: GET, HEAD\r\n" if answer.status is HTTPStatus.METHOD_NOT_ALLOWED else ""
    head = (
        f"HTTP/1.1 {answer.status.value} {answer.status.phrase}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(body)}\r\n{allow}{_HEADERS}\r\n"
    )
    return head.encode("ascii") + (body if with_body else b"")


def listener_of(node: Node) -> HttpListener | None:
    """Return the HTTP listener of `kafkalog.http.listener`, or None if that is not set. Raise ConfigError."""
    where = node.config["kafkalog.http.listener"]
    if not where:
        return None
    endpoint = parse_endpoint(where)
    totals = ProcessTotals()

    async def metrics() -> Page:
        own = await metrics_of(node)
        if node.workers is not None:
            own = await node.run(totals.text, own, await node.workers.collected("metrics"))
        return Page(own, CONTENT_TYPE)

    async def health() -> Page:
        return Page("ok\n")

    async def ready() -> Page:
        if node.is_ready:
            return Page("ready\n")
        return Page("not ready\n", status=HTTPStatus.SERVICE_UNAVAILABLE)

    async def status() -> Page:
        return Page(await node.run(page, await status_of(node)), "text/html; charset=utf-8")

    pages = {"/": status, "/metrics": metrics, "/health": health, "/ready": ready}
    return HttpListener(endpoint.host, endpoint.port, pages)
