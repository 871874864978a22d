"""FLOW-25: every message of every version that is served is written, and read, as kio has it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from kafkalog._core.messages.reader import Dialect, MessageReader
from kafkalog._core.messages.writer import REQUIRED, MessageWriter
from kafkalog.errors import MalformedRequest
from kafkalog.server.wire.definitions import StructPlan, is_known_to_kio, request_plan, response_plan
from kafkalog.server.wire.reader import read_response, request_reader
from kafkalog.server.wire.versions import APIS, FETCH, METADATA, PRODUCE, Api
from kafkalog.server.wire.writer import request_writer, response_writer
from tests.server.wire import by_kio
from tests.wire_cases import read_request

TREES = 12
each_api = pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)


def iterate_messages(api: Api) -> Iterator[tuple[int, str, StructPlan]]:
    """The messages of the versions that kio has."""
    for version in range(max(api.oldest, api.first_served), api.newest + 1):
        if not is_known_to_kio(api.key, version):
            continue
        yield version, "request", request_plan(api.key, version)
        yield version, "response", response_plan(api.key, version)


@each_api
def test_all_is_written_and_read_as_kio_has_it(api: Api) -> None:
    trees = by_kio.Trees(api.key)
    for version, direction, plan in iterate_messages(api):
        writer = (request_writer if direction == "request" else response_writer)(api.key, version)
        read = read_request if direction == "request" else read_response
        for _ in range(TREES):
            tree = trees.tree(plan)
            data = by_kio.write_by_kio(api.key, version, direction, plan, tree)
            assert writer.write(tree, b"head") == b"head" + data, (version, direction, tree)
            found = read(api.key, version, b"head" + data, 4)
            assert found == by_kio.read_by_kio(api.key, version, direction, plan, data), (version, direction, tree)
            assert type(found) is plan.type


LIES = (b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x80\x01", b"\0\0\0\1")


def damage_message(data: bytes, random: Random) -> bytes:
    """The message with bytes changed, left out, put in, or taken for lengths."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(changed) + 1)
        kind = random.randrange(5)
        if kind == 0:
            changed[at : at + 1] = random.randbytes(1)
        elif kind == 1:
            changed[at : at + random.randrange(9)] = b""
        elif kind == 2:
            changed[at:at] = random.randbytes(random.randrange(1, 6))
        elif kind == 3:
            changed[at : at + 4] = random.choice(LIES)
        else:
            del changed[at:]
    return bytes(changed)


@each_api
def test_damaged_messages_are_read_or_refused(api: Api) -> None:
    trees = by_kio.Trees(api.key)
    for version, direction, plan in iterate_messages(api):
        writer = (request_writer if direction == "request" else response_writer)(api.key, version)
        read = read_request if direction == "request" else read_response
        data = writer.write(trees.tree(plan))
        for _ in range(40):
            changed = damage_message(data, trees.random)
            try:
                read(api.key, version, changed, 0)
            except MalformedRequest as error:
                assert error.position is not None and 0 <= error.position <= len(changed)


def test_what_is_not_given_has_its_default_or_is_an_error() -> None:
    with pytest.raises(KeyError, match="FetchRequest has no"):
        request_writer(FETCH, 17).write({})
    least = {"max_wait": 1, "min_bytes": 1, "topics": [], "forgotten_topics_data": []}
    found = read_request(FETCH, 17, request_writer(FETCH, 17).write(least), 0)
    assert (found.max_bytes, found.session_epoch, found.cluster_id) == (2**31 - 1, -1, None)
    assert tuple(found.replica_state) == (-1, -1)
    more = {**least, "replica_state": {"replica_id": -1, "replica_epoch": -1}, "cluster_id": None, "unknown": 7}
    assert request_writer(FETCH, 17).write(more) == request_writer(FETCH, 17).write(least)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"acks": 1 << 15}, "acks is 32768, which does not fit the type i16"),
        ({"acks": 1 << 70}, "acks is 1180591620717411303424, which does not fit"),
        ({"acks": "1"}, "acks is a str: give a number"),
        ({"acks": 1.0}, "acks is a float: give a number"),
        ({"acks": None}, "acks cannot be null"),
        ({"timeout": -(1 << 31) - 1}, "timeout is -2147483649, which does not fit the type i32"),
        ({"transactional_id": b"t"}, "transactional_id is a bytes: give a str"),
        ({"transactional_id": "x" * 32_768}, "transactional_id has 32768 bytes, at most 32767"),
        ({"transactional_id": "\ud800"}, "surrogates not allowed"),
        ({"topic_data": [7]}, "TopicProduceData is a int: give a dict"),
        ({"topic_data": [{"name": None, "partition_data": []}]}, "name cannot be null"),
        ({"topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": "r"}]}]}, "records is a str: give"),
    ],
)
def test_values_that_a_field_does_not_take(changed: dict[str, Any], words: str) -> None:
    tree = {"transactional_id": None, "acks": 1, "timeout": 1, "topic_data": []}
    assert request_writer(PRODUCE, 7).write(tree)
    with pytest.raises(ValueError, match=words):
        request_writer(PRODUCE, 7).write({**tree, **changed})


@pytest.mark.parametrize("topic_id", ["00000000-0000-0000-0000-000000000001", b"short", 7])
def test_what_is_no_id(topic_id: Any) -> None:
    tree = {
        "topics": [{"topic_id": topic_id, "name": None}], "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }  # fmt: skip
    with pytest.raises(ValueError, match="topic_id is .*: a uuid is a UUID, or None"):
        request_writer(METADATA, 12).write(tree)


def test_what_may_be_given_for_an_array_and_for_bytes() -> None:
    def body(partitions: Any, records: Any) -> bytes:
        topic = {"name": "t", "partition_data": [{"index": one, "records": records} for one in partitions]}
        tree = {"transactional_id": None, "acks": 1, "timeout": 1, "topic_data": iter([topic])}
        return request_writer(PRODUCE, 9).write(tree)

    assert body((1, 2), b"ab") == body({1: 0, 2: 0}, bytearray(b"ab")) == body(range(1, 3), memoryview(b"xaby")[1:3])


class Pair(NamedTuple):
    first: int
    second: int


FIRST, SECOND = ("first", "i8", False, False), ("second", "i32", False, False)
DIALECT = Dialect({}, lambda words, position: MalformedRequest(words, position=position), UUID)


def make_writer(name: str, is_flexible: bool, rows: Any) -> MessageWriter:
    return MessageWriter(name, is_flexible, rows, lambda words, hint: ValueError(words))


@pytest.mark.parametrize(
    ("type", "rows", "error"),
    [
        (list, [], TypeError),
        (None, [], TypeError),
        (Pair, [(*FIRST, None, None, None)], TypeError),
        (Pair, [(*FIRST, None, None, None), ("second", "i128", False, False, None, None, None)], ValueError),
        (Pair, [(*FIRST, None, None, None), ("second", "struct", False, False, None, None, None)], TypeError),
    ],
)
def test_a_plan_that_is_none(type: Any, rows: list[Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        MessageReader(type, True, rows, DIALECT)
    if len(rows) == 2:
        with pytest.raises(error):
            make_writer("Pair", True, [(*row[:6], REQUIRED) for row in rows])


def test_tags_belong_to_flexible_versions_and_are_few() -> None:
    rows = [(f"f{tag}", "i8", False, False, tag, None, 0) for tag in reversed(range(128))]
    with pytest.raises(ValueError, match="Pair cannot have 1 tagged fields"):
        make_writer("Pair", False, rows[:1])
    with pytest.raises(ValueError, match="Pair cannot have 128 tagged fields"):
        make_writer("Pair", True, rows)
    written = make_writer("Pair", True, rows[1:]).write({f"f{tag}": 1 for tag in range(127)})
    assert written == b"\x7f" + b"".join(bytes([tag, 1, 1]) for tag in range(127))


@pytest.mark.parametrize("position", [-1, 1000, 2**62])
def test_a_place_outside_the_frame(position: int) -> None:
    with pytest.raises(MalformedRequest, match="ends inside a field"):
        request_reader(METADATA, 13).read(b"\0\1\0\0", position)


def test_bytes_behind_are_told_where_a_message_has_to_be_whole() -> None:
    data = response_writer(12, 4).write({"error_code": 0, "throttle_time": 0})
    assert read_response(12, 4, data, 0).error_code == 0
    with pytest.raises(MalformedRequest, match="2 bytes after the end of the message"):
        read_response(12, 4, data + b"\0\0", 0)


def test_a_frame_may_be_any_buffer_and_stays_free() -> None:
    data = struct.pack(">hhiih", -1, 1, 1000, 1, 1) + b"t" + struct.pack(">iii", 1, 0, 2) + b"ab"
    frame = bytearray(data)
    request = read_request(PRODUCE, 7, memoryview(frame), 0)
    records = request.topic_data[0].partition_data[0].records
    assert bytes(records) == b"ab" and not records.readonly
    with pytest.raises(BufferError):
        frame.clear()
    records.release()
    del request
    frame.clear()
    with pytest.raises(TypeError):
        request_reader(PRODUCE, 7).read("text", 0)  # type: ignore[arg-type]
