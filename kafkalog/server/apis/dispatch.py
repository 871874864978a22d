"""Request dispatch: parse a request, call its handler and serialize the response."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Coroutine, Generator, Mapping
from functools import cache, partial
from importlib import import_module
from time import perf_counter
from types import coroutine
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import MalformedRequest, PolicyViolation
from kafkalog.server.error_codes import ErrorCode, Refused, code_of
from kafkalog.server.requests.context import CLOSE, Answer, Close, Connection, RequestContext
from kafkalog.server.requests.error_answers import error_answer
from kafkalog.server.requests.refusal_log import call_name
from kafkalog.server.wire.header import RequestHeader, read_header
from kafkalog.server.wire.pieces import Pieces
from kafkalog.server.wire.versions import ALONE, API_VERSIONS, FETCH, IN_A_SET, OF_A_SET, OF_TELEMETRY, PRODUCE, Api

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
BEFORE_AUTHENTICATION: Final = frozenset({17, API_VERSIONS, 36})
"""SaslHandshake, ApiVersions, SaslAuthenticate: the only calls allowed before authentication."""

UNTHROTTLED: Final = BEFORE_AUTHENTICATION | OF_A_SET
"""Calls that are charged to no quota: also those between nodes, of which a forwarded one is charged to its client."""

LARGE_BYTES: Final = 1 << 15
"""A thread parses longer requests, one at a time, to keep the loop free; not Produce, whose bytes are records."""
LARGE_SECONDS: Final = 0.02
"""A response that took longer to prepare is also slow to serialize, so a thread serializes it."""

WRITING: Final = frozenset({
    "add_offsets_to_txn", "add_partitions_to_txn", "alter_client_quotas", "alter_configs", "alter_replica_log_dirs",
    "alter_user_scram_credentials", "create_acls", "create_partitions", "create_topics", "delete_acls",
    "delete_records", "delete_topics", "end_txn", "incremental_alter_configs", "init_producer_id", "produce",
    "txn_offset_commit", "update_features", "write_txn_markers",
})  # fmt: skip
"""Calls that a read-only server rejects. Groups may commit offsets, which are discarded when the server stops."""

_HEAD: Final = struct.Struct(">i").pack
_HEAD_WITH_TAGS: Final = struct.Struct(">ix").pack


Refusal = Callable[["Node", RequestContext, Any, Refused], Answer]


@cache
def offered(in_set: bool = False, with_telemetry: bool = False) -> Mapping[int, Api]:
    """Return the served calls by key, for a single node or a replica set. Each call has a module in this package."""
    calls = IN_A_SET if in_set else ALONE
    return dict(sorted({**calls, **OF_TELEMETRY}.items())) if with_telemetry else calls


def refusal_of(api: Api) -> Refusal:
    """Return the function that makes the answer of a call that fails as a whole."""
    refused: Refusal = getattr(import_module(f"{__package__}.{api.name}"), "refused", error_answer)
    return refused


class _Call(NamedTuple):
    """One call in one version: its table row, handler, error response, request reader and response writer."""

    api: Api
    handle: Callable[..., Coroutine[object, None, Answer]]
    refused: Refusal
    read: Callable[[bytearray, int], object] | None  # None for an ApiVersions version that is not served
    head: Callable[[int], bytes]
    write: Callable[[Mapping[str, object], bytes], Pieces] | None  # None for ApiVersions, which needs no kio


_CALLS: Final[dict[tuple[int, int], _Call]] = {}
"""Calls used so far, by API key and version."""


def _new_call(api: Api, version: int) -> _Call:
    """Create a call that is missing from `_CALLS`. Only a client that may make the call triggers this."""
    api_key = api.key
    module = import_module(f"{__package__}.{api.name}")
    head = _HEAD_WITH_TAGS if api.is_flexible(version) and api_key != API_VERSIONS else _HEAD
    call = _Call(api, module.handle, refusal_of(api), None, head, None)
    if not api.serves(version):
        return call
    read_body = getattr(module, "read", None)  # only ApiVersions, which must not import kio
    if read_body is not None:
        call = _CALLS[api_key, version] = call._replace(read=partial(read_body, version))
        return call
    from kafkalog.server.wire.reader import request_reader
    from kafkalog.server.wire.writer import response_writer

    call = _CALLS[api_key, version] = call._replace(
        read=request_reader(api_key, version).read, write=response_writer(api_key, version).write_pieces
    )
    return call


async def dispatch(node: Node, connection: Connection, frame: bytearray) -> Pieces | Close | None:
    """Return the response's pieces without the length, None if no response is sent, or CLOSE to end the connection.

    Anything but a served request closes the connection, as in a broker. A handler's exception is logged and answered.
    """
    if connection.sasl is not None and connection.sasl.is_bare:
        return await _bare_token(node, connection, frame)
    try:
        header = read_header(frame)
    except MalformedRequest as error:
        return _refuse(node, connection, "a request", "malformed", f"no request of Kafka's: {error}")
    api_key, version, correlation_id, client_id, position = header
    api = _served(node, api_key)
    call = _CALLS.get((api_key, version))
    if api is None or (call is None and not api.serves(version) and api_key != API_VERSIONS):
        return _not_served(node, connection, header, api)
    name = api.name
    if not (connection.is_authenticated or api_key in BEFORE_AUTHENTICATION):
        return _refuse(node, connection, name, "before login", f"{name} before authentication", client_id)
    call = call or _new_call(api, version)
    request = None
    try:
        if call.read is not None and len(frame) > LARGE_BYTES and api_key != PRODUCE:
            async with node.large:
                request = await node.run(call.read, frame, position)
        elif call.read is not None:
            request = call.read(frame, position)
    except MalformedRequest as error:
        return _refuse(node, connection, name, "malformed", f"{name} version {version}: {error}", client_id)
    context = RequestContext(api_key, version, correlation_id, client_id or "", connection, len(frame))
    is_own = bool(node.is_own) and name in node.is_own and node.is_own[name](request)
    is_led = bool(node.leaders_calls) and not is_own
    if is_led and name in node.forwards and (sent := await _forwarded(node, api, context, frame)) is not None:
        return sent
    del frame  # a waiting handler may release the frame's memory
    connection.may_cancel = api_key == FETCH  # other calls change state and must run to completion
    began, busy, error_code = perf_counter(), [0.0], 0
    try:
        if node.is_read_only and name in WRITING:
            raise PolicyViolation("this server is read-only")
        if is_led and name in node.leaders_calls:
            raise node.leaders_calls[name]("this node is not the leader of its replica set")
        work = call.handle(node, context, request)
        try:
            try:
                rest = _run_measured(work, work.send(None), busy)
            finally:
                busy[0] = perf_counter() - began
            answer = await rest
        except StopIteration as done:  # most handlers finish without waiting
            answer = done.value
        except Refused as refusal:
            answer, error_code = call.refused(node, context, request, refusal), refusal.code
        error_code = answer.get("error_code") or error_code if type(answer) is dict else error_code
        if node.before_answers and not is_own and name in node.before_answers:
            await node.before_answers[name](request)
        if busy[0] > LARGE_SECONDS:
            async with node.large:
                pieces = await node.run(_pieces, call, context, _throttled(node, context, answer, busy[0]))
        elif context.throttle_ms or node.quotas.file.state.quotas:
            pieces = _pieces(call, context, _throttled(node, context, answer, busy[0]))
        elif call.write is not None and type(answer) is dict:
            pieces = call.write(answer, call.head(correlation_id))
        else:
            pieces = _pieces(call, context, answer)
    except Exception as error:
        error_code = code_of(error)
        pieces = _error_response(call, node, context, request, error)
    node.requests.done(api, (perf_counter() - began) * 1000, busy[0] * 1000, error_code)
    return pieces


async def _forwarded(node: Node, api: Api, context: RequestContext, frame: bytearray) -> Pieces | Close | None:
    """Return the leader's response, which counts its error; None if there is none."""
    began = perf_counter()
    pieces = await node.forwards[api.name](context, frame)
    if pieces is not None:
        node.requests.done(api, (perf_counter() - began) * 1000, 0.0, 0)
    return pieces


def _served(node: Node, api_key: int) -> Api | None:
    """Return the call as this node serves it, or None."""
    api = (ALONE if node.quorum.replica_set is None else IN_A_SET).get(api_key)
    return OF_TELEMETRY.get(api_key) if api is None and node.telemetry is not None else api


async def _bare_token(node: Node, connection: Connection, frame: bytearray) -> Pieces | Close:
    """Answer a SASL token sent without a request header, as the oldest clients do."""
    from kafkalog.server.security.sasl import authenticate_bare

    token = await authenticate_bare(node, connection, bytes(frame))
    return CLOSE if token is None else [token]


@coroutine
def _run_measured(
    work: Coroutine[object, None, Answer], waits_for: object, busy: list[float]
) -> Generator[object, None, Answer]:
    """Drive a waiting handler and add its running time, in seconds, to `busy[0]`."""
    failure: BaseException | None = None
    while True:
        try:
            yield waits_for
        except BaseException as error:
            failure = error
        finally:
            waits_for = None  # a future, its error and this frame would keep each other alive
        began = perf_counter()
        try:
            waits_for = work.send(None) if failure is None else work.throw(failure)
        except StopIteration as done:
            answer: Answer = done.value
            return answer
        finally:
            busy[0] += perf_counter() - began
            failure = None


def _throttled(node: Node, context: RequestContext, answer: Answer, busy: float) -> Answer:
    """Charge the request to its quotas and return the answer with the resulting throttle time."""
    throttle_ms = context.throttle_ms
    if context.api_key not in UNTHROTTLED and not context.is_between_nodes:
        throttle_ms = max(throttle_ms, node.quotas.record_request(context, busy * 1000))
    if not throttle_ms:
        return answer
    context.throttle_ms = throttle_ms
    context.connection.mute_until_ms = node.monotonic_ms() + throttle_ms
    if isinstance(answer, Mapping):  # a version without the field does not write it
        return {**answer, "throttle_time": throttle_ms}
    return answer


def _pieces(call: _Call, context: RequestContext, answer: Answer) -> Pieces | Close | None:
    if answer is None or isinstance(answer, Close):
        return answer
    if isinstance(answer, bytes):  # already serialized by the handler
        return [_HEAD(context.correlation_id) + answer]
    assert call.write is not None
    return call.write(answer, call.head(context.correlation_id))


def _error_response(
    call: _Call, node: Node, context: RequestContext, request: object, error: Exception
) -> Pieces | Close | None:
    """Log a handler's error and return the error response, or CLOSE if that cannot be built."""
    code = code_of(error)
    name = call.api.name
    message = None
    if code == ErrorCode.UNKNOWN_SERVER_ERROR:
        _LOG.error("%s version %d from client %r failed", name, context.api_version, context.client_id, exc_info=error)
    else:
        node.refusals.answered(context.connection, name, code, error, context.client_id)
        message = getattr(error, "message", None) or None
    try:
        answer = call.refused(node, context, request, Refused(code, message))
        return _pieces(call, context, _throttled(node, context, answer, 0.0))
    except Exception as second_error:
        _LOG.error("cannot build the error response to %s", name, exc_info=second_error)
        return CLOSE


def _not_served(node: Node, connection: Connection, header: RequestHeader, api: Api | None) -> Close:
    label = call_name(header.api_key) if api is None else api.name
    reason = f"{label} version {header.api_version} is not served"
    return _refuse(node, connection, label, f"version {header.api_version}", reason, header.client_id)


def _refuse(
    node: Node, connection: Connection, call: str, verdict: str, reason: str, client_id: str | None = None
) -> Close:
    """Log the first of these refusals, and return CLOSE."""
    node.refusals.closed(connection, call, verdict, reason, client_id or "")
    return CLOSE
