"""Responses that a rule changes: an error in place of the answer, a throttle time, older versions of calls."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import KafkalogError
from kafkalog.server.apis.dispatch import refusal_of
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.replica.results import FetchResult
from kafkalog.server.requests.context import Answer, Close
from kafkalog.server.wire.header import response_header
from kafkalog.server.wire.reader import response_reader
from kafkalog.server.wire.versions import API_VERSIONS, FETCH
from kafkalog.server.wire.writer import response_writer
from kafkalog.storage.file_slice import FileSlice
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from kafkalog.server.net.connection import Result
    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.pieces import Pieces
    from kafkalog.testing.inside.requests import Call

_OF_FETCH_SESSIONS: Final = frozenset({
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH, ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
})  # fmt: skip
"""Errors of a whole Fetch response; all others are errors of partitions."""
_THROTTLE: Final = struct.Struct(">i")


def error_answer(node: Node, call: Call, code: int, is_meant: Callable[[str, int], bool]) -> Result:
    """Return the error as a broker reports it in this call and version: for each item of the request.

    A Fetch has it at the partitions that `is_meant` accepts, and no records for the others.
    """
    if call.api.key == FETCH and code not in _OF_FETCH_SESSIONS:
        return _serialized(call, _fetch_error(node, call, code, is_meant))
    error = Refused(code, ErrorCode(code).message)
    return _serialized(call, refusal_of(call.api)(node, call.context, call.request, error))


def _serialized(call: Call, answer: Answer) -> Result:
    context = call.context
    if answer is None or isinstance(answer, Close):
        return answer
    if isinstance(answer, bytes):
        return [struct.pack(">i", context.correlation_id) + answer]
    head = response_header(context.api_key, context.api_version, context.correlation_id)
    return response_writer(context.api_key, context.api_version).write_pieces(answer, head)


def _fetch_error(node: Node, call: Call, code: int, is_meant: Callable[[str, int], bool]) -> Mapping[str, object]:
    """Return the response without a session: the client's next request names all partitions again."""
    responses = []
    for name, partitions in call.topics().items():
        rows = []
        for index in partitions:
            result = FetchResult(code)
            if not is_meant(name, index):
                result = _without_records(node, TopicPartition(name, index))
            rows.append({
                "partition_index": index, "error_code": result.error_code, "high_watermark": result.high_watermark,
                "last_stable_offset": result.last_stable_offset, "log_start_offset": result.log_start_offset,
                "aborted_transactions": None, "records": b"",
            })  # fmt: skip
        known = node.topics.get(name)
        topic_id = None if known is None else known.id
        responses.append({"topic": name, "topic_id": topic_id, "partitions": rows})
    return {"throttle_time": 0, "error_code": 0, "session_id": 0, "responses": responses}


def _without_records(node: Node, key: TopicPartition) -> FetchResult:
    try:
        log = node.replicas.find(key).log
    except KafkalogError:
        return FetchResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    state = log.state
    return FetchResult(0, state.high_watermark, state.last_stable_offset, state.log_start_offset)


def joined(pieces: Pieces) -> bytes:
    """Return the bytes of a response; ranges of files are read."""
    return b"".join(piece.read() if isinstance(piece, FileSlice) else bytes(piece) for piece in pieces)  # type: ignore[arg-type]


def _head_bytes(call: Call) -> int:
    flexible = call.api.is_flexible(call.context.api_version) and call.api.key != API_VERSIONS
    return 5 if flexible else 4


def throttled(call: Call, pieces: Pieces, throttle_ms: int) -> Pieces:
    """Return the response with this throttle time, if its version has one."""
    at = _head_bytes(call)
    if call.api.key == FETCH:  # the time is its first field; the rest, with ranges of files, stays
        first = bytes(pieces[0])  # type: ignore[arg-type]
        return [first[:at] + _THROTTLE.pack(throttle_ms) + first[at + 4 :], *pieces[1:]]

    def throttle(tree: dict[str, Any]) -> dict[str, Any]:
        return {**tree, "throttle_time": throttle_ms} if "throttle_time" in tree else tree

    return _rewritten(call, pieces, throttle)


def with_older_versions(call: Call, pieces: Pieces, newest: Mapping[str, int]) -> Pieces:
    """Return an ApiVersions response with these newest versions of calls by key; -1: the call is not offered."""

    def limit(tree: dict[str, Any]) -> dict[str, Any]:
        rows = []
        for row in tree["api_keys"]:
            last = min(row["max_version"], newest.get(str(row["api_key"]), row["max_version"]))
            if last >= row["min_version"]:
                rows.append({**row, "max_version": last})
        return {**tree, "api_keys": rows}

    return _rewritten(call, pieces, limit)


def _rewritten(call: Call, pieces: Pieces, change: Callable[[dict[str, Any]], Mapping[str, object]]) -> Pieces:
    context = call.context
    raw = joined(pieces)
    at = _head_bytes(call)
    message = response_reader(context.api_key, context.api_version).read(raw, at)
    return [raw[:at], response_writer(context.api_key, context.api_version).write(change(tree_of(message)), b"")]


def tree_of(value: Any) -> Any:
    """Return a parsed message as a tree of dicts and lists that a writer takes."""
    if hasattr(value, "_fields"):
        return {name: tree_of(getattr(value, name)) for name in value._fields}
    if isinstance(value, tuple | list):
        return [tree_of(one) for one in value]
    return value
