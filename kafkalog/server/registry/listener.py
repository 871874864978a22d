"""The registry of a server: its HTTP port, and its topic `_schemas` on the same node."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from kafkalog.errors import KafkalogError, TopicExists
from kafkalog.records.builder import RecordsBuilder
from kafkalog.server.registry.content import Content
from kafkalog.server.registry.errors import RestError
from kafkalog.server.registry.records import change_of, noop_record
from kafkalog.server.registry.requests import Plan, Request, request_of
from kafkalog.server.registry.routes import decide
from kafkalog.server.status.http import HttpServer, Page
from kafkalog.storage.log_walk import data_records
from kafkalog.types import TopicPartition
from kafkalog.values.schemas.topic import TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kafkalog.server.node.node import Node
    from kafkalog.server.registry.records import TopicRecord
    from kafkalog.storage.log import UnifiedLog

MAX_BODY_BYTES: Final = 1 << 20
BODY_S: Final = 5.0
"""Time limit in seconds for receiving a body."""
MOST_PROBLEMS: Final = 100
_ATTEMPTS: Final = 3
"""How often a change is decided beside others; then they wait for it, so that it is answered at last."""
_PLACE: Final = TopicPartition(TOPIC, 0)
_CONTENT_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_LOG: Final = logging.getLogger(__name__)


class Registry:
    """The content of the topic, read up to its end before each request; changes follow one another.

    A request is decided beside others, since a schema may need a compiler, and again if the topic has changed since; at
    last alone.
    The topic is that of the node that runs now: after a snapshot was restored, it is read from the start.
    """

    def __init__(self, node: Callable[[], Node]) -> None:
        self._node = node
        self._lock = asyncio.Lock()
        self._source: tuple[UnifiedLog, int] | None = None  # the log that was read, and its leader's epoch
        self._next_offset = 0
        self._content = Content()
        self._problems = 0

    async def answer(self, request: Request) -> Plan:
        """Return the answer once what it changed is in the topic. RestError, KafkalogError."""
        for _ in range(_ATTEMPTS):
            async with self._lock:
                await self._read(self._node())
                content = self._content
            plan: Plan = await asyncio.to_thread(decide, content, request)
            if not plan.records:
                return plan
            async with self._lock:
                node = self._node()
                await self._read(node)
                if self._content is content:
                    await self._append(node, plan.records)
                    return plan
        async with self._lock:  # the topic changes faster than this can be decided
            node = self._node()
            await self._read(node)
            plan = await asyncio.to_thread(decide, self._content, request)
            if plan.records:
                await self._append(node, plan.records)
            return plan

    async def pause(self) -> None:
        """Let requests wait until `resume`, once the change in progress is in the topic."""
        await self._lock.acquire()

    def resume(self) -> None:
        """Answer again."""
        self._lock.release()

    async def _read(self, node: Node) -> None:
        if node.topics.get(TOPIC) is None:
            try:
                await node.topics.create(TOPIC, 1, {"cleanup.policy": "compact"})
            except TopicExists:  # a client creates it as well
                pass
            else:
                await self._append(node, [noop_record()])
        partition = node.replicas.find(_PLACE)
        log, epoch = partition.log, partition.leader_epoch
        # a node that leads again may have lost records that it had read before
        if (log, epoch) != self._source or log.log_end_offset < self._next_offset:
            self._source, self._next_offset, self._content = (log, epoch), log.log_start_offset, Content()
        stop = log.log_end_offset
        if self._next_offset < stop:
            content = self._content.copied()
            await node.run(self._apply, content, log, max(self._next_offset, log.log_start_offset), stop)
            self._content, self._next_offset = content, stop
        await self._settle(node)  # else a leader without followers answers what the next one does not have

    def _apply(self, content: Content, log: UnifiedLog, start: int, stop: int) -> None:
        for record in data_records(log, start, stop):
            if record.offset >= start:
                self._take(content, record.offset, record.key, record.value)

    def _take(self, content: Content, offset: int, key: bytes | None, value: bytes | None) -> None:
        try:
            content.apply(change_of(key, value))
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            self._problems += 1
            if self._problems <= MOST_PROBLEMS:
                _LOG.warning("skipped the record at offset %d of %s: %s", offset, _PLACE, error)

    async def _append(self, node: Node, records: Sequence[TopicRecord]) -> None:
        builder = RecordsBuilder()
        now_ms = node.clock()
        for key, value in records:
            builder.append(now_ms, key, value)
        node.replicas.append_now(_PLACE, builder.build(), "client")
        await self._settle(node)

    async def _settle(self, node: Node) -> None:
        if code := await node.replicas.settled([_PLACE]):
            raise RestError(50001, f"Error in the backend data store: Kafka's error {code}")


class RegistryListener(HttpServer):
    """A port with the REST interface of a registry."""

    def __init__(self, host: str, port: int, node: Callable[[], Node]) -> None:
        super().__init__(host, port, "schema registry")
        self.registry = Registry(node)

    async def answer(
        self, method: str, target: str, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> Page:
        """Return the response to a request, errors included."""
        try:
            return await self.respond(method, target, head, await _body(head, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):  # the client is gone
            raise
        except RestError as error:
            return _page({"error_code": error.code, "message": error.message}, error.status)
        except ValueError as error:  # too many fields in the query
            return _page({"error_code": 400, "message": str(error)}, HTTPStatus.BAD_REQUEST)
        except (KafkalogError, OSError) as error:
            _LOG.warning("cannot answer %s %s: %s", method, target.partition("?")[0], error)
            content = {"error_code": 50001, "message": f"Error in the backend data store: {error}"}
            return _page(content, HTTPStatus.INTERNAL_SERVER_ERROR)
        except Exception:
            _LOG.exception("cannot answer %s %s", method, target.partition("?")[0])
            return self.error_page(HTTPStatus.INTERNAL_SERVER_ERROR)

    async def respond(self, method: str, target: str, head: bytes, body: bytes) -> Page:
        """Return the response to a request with its body. RestError, ValueError, KafkalogError, OSError."""
        plan = await self.registry.answer(request_of(method, target, body))
        return _page(plan.answer)

    def error_page(self, status: HTTPStatus) -> Page:
        """Return the response to a request that is none."""
        return _page({"error_code": status.value, "message": f"HTTP {status.value} {status.phrase}"}, status)


def headers_of(head: bytes) -> dict[bytes, bytes]:
    """Return the headers of a request; names are in lower case."""
    lines = (line.partition(b":") for line in head.split(b"\r\n")[1:])
    return {name.strip().lower(): value.strip() for name, _, value in lines}


async def _body(head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
    """Return the body of a request. RestError for one without a size, or with too large a one."""
    headers = headers_of(head)
    if b"transfer-encoding" in headers:
        raise RestError(411, "A body needs a Content-Length")
    text = headers.get(b"content-length", b"0")
    if not text.isdigit() or len(text) > 19:
        raise RestError(400, "The Content-Length is no number")
    size = int(text)
    if size > MAX_BODY_BYTES:
        raise RestError(413, f"The body has {size} bytes, more than {MAX_BODY_BYTES}")
    if size and headers.get(b"expect", b"").lower() == b"100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    try:
        async with asyncio.timeout(BODY_S):
            return await reader.readexactly(size)
    except TimeoutError:
        raise RestError(408, "The body did not arrive in time") from None


def _page(content: object, status: HTTPStatus = HTTPStatus.OK) -> Page:
    return Page(json.dumps(content, separators=(",", ":")), _CONTENT_TYPE, status)
