"""From the bytes of a request to the pieces of its answer: the one place that calls handlers."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import cache, partial
from importlib import import_module
from time import perf_counter
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import MalformedRequest, PolicyViolation
from kafkalog.server.context import CLOSE, Answer, Close, Connection, RequestContext
from kafkalog.server.error_codes import ErrorCode, code_of
from kafkalog.server.wire.fetch_response import FetchAnswer, Records, fetch_pieces
from kafkalog.server.wire.header import read_header
from kafkalog.server.wire.produce_response import ProduceAnswer, produce_body
from kafkalog.server.wire.versions import ALONE, API_VERSIONS, APIS, FETCH, PRODUCE, Api

if TYPE_CHECKING:
    from kafkalog.server.node import Node

_LOG: Final = logging.getLogger(__name__)
BEFORE_AUTHENTICATION: Final = frozenset({17, API_VERSIONS, 36})
"""SaslHandshake, ApiVersions, SaslAuthenticate: all that a client may call before it is authenticated."""

LARGE_BYTES: Final = 1 << 15
"""A longer request is read by a thread, one at a time, so that the loop goes on; not produce: its bytes are records."""
LARGE_SECONDS: Final = 0.02
"""An answer that took longer to make takes long to write, too: a thread does it."""

WRITING: Final = frozenset({
    "add_offsets_to_txn", "add_partitions_to_txn", "alter_client_quotas", "alter_configs",
    "alter_user_scram_credentials", "create_acls", "create_partitions", "create_topics", "delete_acls",
    "delete_records", "delete_topics", "end_txn", "incremental_alter_configs", "init_producer_id", "produce",
    "txn_offset_commit", "write_txn_markers",
})  # fmt: skip
"""What a server that only reads refuses. Groups may commit: that is forgotten when it ends."""

Pieces = list[bytes | Records]


def offered(in_set: bool = False) -> Mapping[int, Api]:
    """The calls that are served, by key, alone or in a replica set: each row of the table has a module here."""
    return APIS if in_set else ALONE


class _Call(NamedTuple):
    """One call in one version: its row of the table, how its body is read, who answers."""

    api: Api
    module: Any
    read: Callable[[bytearray, int], Any] | None  # None: an ApiVersions of a version that is not served


@cache
def _call(api_key: int, version: int) -> _Call:
    api = APIS[api_key]
    module = import_module(f"{__package__}.{api.name}")
    if not api.serves(version):
        return _Call(api, module, None)
    own = getattr(module, "read", None)  # the one that has to do without kio
    if own is not None:
        return _Call(api, module, partial(own, version))
    from kafkalog.server.wire.reader import read_request

    return _Call(api, module, partial(read_request, api_key, version))


async def dispatch(node: Node, connection: Connection, frame: bytearray) -> Pieces | Close | None:
    """The pieces of the response, without its length; None where none is sent; CLOSE ends the connection.

    What is no request of a served version closes the connection, as a broker does. An exception of a handler becomes
    that request's error response, and is logged once.
    """
    if connection.sasl is not None and connection.sasl.is_bare:
        from kafkalog.server.security.sasl import authenticate_bare

        token = await authenticate_bare(node, connection, bytes(frame))
        return CLOSE if token is None else [token]
    try:
        header = read_header(frame)
    except MalformedRequest as error:
        return _refuse(connection, error)
    api_key, version, correlation_id, client_id, position = header
    api = offered(node.quorum.replica_set is not None).get(api_key)
    if api is None or not (api.serves(version) or api_key == API_VERSIONS):
        named = f"call {api_key}" if api is None else api.name
        return _refuse(connection, f"{named} version {version} is not served")
    if not connection.is_authenticated and api_key not in BEFORE_AUTHENTICATION:
        return _refuse(connection, f"{api.name} before authentication")
    call = _call(api_key, version)
    request = None
    try:
        if call.read is not None:
            if len(frame) > LARGE_BYTES and api_key != PRODUCE:
                async with node.large:
                    request = await node.run(call.read, frame, position)
            else:
                request = call.read(frame, position)
    except MalformedRequest as error:
        return _refuse(connection, f"{api.name} version {version}: {error}")
    context = RequestContext(api_key, version, correlation_id, client_id or "", connection, node.clock(), len(frame))
    del frame  # a handler that waits may give back what it holds
    connection.may_cancel = api_key == FETCH  # other calls change something, and go to their end
    began = node.monotonic()
    worked = [0.0]
    error_code = 0
    try:
        if node.is_read_only and api.name in WRITING:
            raise PolicyViolation("this server only reads")
        if node.leaders_calls and api.name in node.leaders_calls:
            raise node.leaders_calls[api.name]("this node does not lead its replica set")
        work = call.module.handle(node, context, request)
        answer = await _measured(work, worked)
        if node.before_answers and api.name in node.before_answers:
            await node.before_answers[api.name](request)
        if worked[0] > LARGE_SECONDS:
            async with node.large:
                pieces = await node.run(_pieces, context, _throttled(node, context, answer, worked[0]))
        else:
            pieces = _pieces(context, _throttled(node, context, answer, worked[0]))
    except Exception as error:
        error_code = code_of(error)
        pieces = _error_response(call.module, node, context, request, error)
    node.requests.done(api, (node.monotonic() - began) * 1000, worked[0] * 1000, error_code)
    return pieces


@coroutine
def _measured(work: Coroutine[Any, Any, Answer], worked: list[float]) -> Generator[Any, Any, Answer]:
    """Drives a handler, and adds up the seconds in which it did not wait."""
    failure: BaseException | None = None
    while True:
        began = perf_counter()
        try:
            waits_for = work.send(None) if failure is None else work.throw(failure)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
        finally:
            worked[0] += perf_counter() - began
            failure = None
        try:
            yield waits_for
        except BaseException as error:
            failure = error
        finally:
            waits_for = None  # a future, its error and this frame would keep each other alive


def _throttled(node: Node, context: RequestContext, answer: Answer, worked: float) -> Answer:
    """The answer, in which quotas say how long the client has to wait now."""
    throttle_ms = context.throttle_ms
    if context.api_key not in BEFORE_AUTHENTICATION:
        throttle_ms = max(throttle_ms, node.quotas.record_request(context, worked * 1000))
    if throttle_ms:
        context.throttle_ms = throttle_ms
        context.connection.mute_until_ms = node.monotonic_ms() + throttle_ms
    if isinstance(answer, FetchAnswer | ProduceAnswer):
        answer.throttle_ms = throttle_ms
    elif throttle_ms and isinstance(answer, Mapping) and "throttle_time" in answer:
        return {**answer, "throttle_time": throttle_ms}
    return answer


def _pieces(context: RequestContext, answer: Answer) -> Pieces | Close | None:
    if answer is None or isinstance(answer, Close):
        return answer
    if isinstance(answer, FetchAnswer):
        return fetch_pieces(context.api_version, context.correlation_id, answer)
    if isinstance(answer, ProduceAnswer):
        answer = produce_body(
            context.api_version, answer.rows, answer.throttle_ms, answer.leader, answer.endpoints
        )
    if isinstance(answer, bytes):  # written by the call itself
        return [context.correlation_id.to_bytes(4, "big", signed=True) + answer]
    from kafkalog.server.wire.writer import write_response

    return [write_response(context.api_key, context.api_version, context.correlation_id, answer)]


def _error_response(
    module: Any, node: Node, context: RequestContext, request: Any, error: Exception
) -> Pieces | Close | None:
    """The answer to a request whose handler failed; CLOSE where there is none."""
    code = code_of(error)
    name = APIS[context.api_key].name
    message = None
    if code == ErrorCode.UNKNOWN_SERVER_ERROR:
        _LOG.error("%s version %d of %r failed", name, context.api_version, context.client_id, exc_info=error)
    else:
        _LOG.debug("%s version %d of %r: %s", name, context.api_version, context.client_id, error)
        message = getattr(error, "message", None) or None
    try:
        answer = module.refused(node, context, request, code, message)
        return _pieces(context, _throttled(node, context, answer, 0.0))
    except Exception as another:
        _LOG.error("%s has no error response", name, exc_info=another)
        return CLOSE


def _refuse(connection: Connection, reason: object) -> Close:
    _LOG.debug("connection %d of %s is closed: %s", connection.id, connection.peer_host, reason)
    return CLOSE
