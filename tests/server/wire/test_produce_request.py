"""The records of a produce request are views of its frame, whatever the request's shape and version."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import MalformedRequest
from kafkalog.server.wire.versions import PRODUCE
from kafkalog.server.wire.writer import write_request
from tests.wire_cases import read_request

VERSIONS = range(3, 14)
each_version = pytest.mark.parametrize("version", VERSIONS)
ID = UUID(int=5)


def request_body(version: int, records: bytes | None, *, transactional_id: str | None = None, **more: Any) -> bytes:
    partitions = more.get("partitions", [{"index": 7, "records": records}])
    topic = {"name": more.get("name", "téa"), "topic_id": ID, "partition_data": partitions}
    topics = [topic] * more.get("topics", 1)
    tree = {"transactional_id": transactional_id, "acks": -1, "timeout": 30_000, "topic_data": topics}
    return write_request(PRODUCE, version, tree)


def plain_values(request: Any) -> Any:
    """The values of a request."""
    topics = [
        (getattr(topic, "name", None), getattr(topic, "topic_id", None), [
            (one.index, None if one.records is None else bytes(one.records)) for one in topic.partition_data
        ])
        for topic in request.topic_data
    ]  # fmt: skip
    return request.transactional_id, request.acks, request.timeout, topics


def given_topic(version: int, partitions: list[tuple[int, bytes | None]], name: str = "téa") -> Any:
    return (name, None, partitions) if version < 13 else (None, ID, partitions)


@each_version
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_383, 16_384, 70_000])
@pytest.mark.parametrize("transactional_id", [None, "", "mine", "x" * 126, "x" * 300])
def test_it_is_what_was_sent(version: int, size: int, transactional_id: str | None) -> None:
    data = request_body(version, b"r" * size, transactional_id=transactional_id)
    topics = [given_topic(version, [(7, b"r" * size)])]
    assert plain_values(read_request(PRODUCE, version, data, 0)) == (transactional_id, -1, 30_000, topics)


@each_version
def test_records_lie_in_the_frame(version: int) -> None:
    frame = bytearray(b"head" + request_body(version, b"r" * 16_000))
    [topic] = read_request(PRODUCE, version, frame, 4).topic_data
    [one] = topic.partition_data
    assert one.records.obj is frame and not one.records.readonly


@each_version
def test_other_shapes(version: int) -> None:
    two = [{"index": 1, "records": b"a"}, {"index": 2, "records": b"b"}]
    for more, topics in (
        ({"topics": 0}, []),
        ({"topics": 2}, [given_topic(version, [(7, b"rrr")])] * 2),
        ({"partitions": two}, [given_topic(version, [(1, b"a"), (2, b"b")])]),
        ({"partitions": []}, [given_topic(version, [])]),
        ({"name": "n" * 200}, [given_topic(version, [(7, b"rrr")], "n" * 200)]),
    ):
        found = read_request(PRODUCE, version, request_body(version, b"rrr", **more), 0)
        assert plain_values(found) == (None, -1, 30_000, topics)
    found = read_request(PRODUCE, version, request_body(version, None), 0)
    assert plain_values(found)[3] == [given_topic(version, [(7, None)])]


def test_an_id_that_a_length_leads_beyond_the_end() -> None:
    frame = bytearray(request_body(13, b"rr", transactional_id="t"))
    frame[0] = len(frame) - 12  # the transactional id takes what is the topic's
    with pytest.raises(MalformedRequest):
        read_request(PRODUCE, 13, frame, 0)


@given(st.sampled_from(VERSIONS), st.data())
def test_damage_is_an_error_or_another_request(version: int, data: st.DataObject) -> None:
    frame = bytearray(request_body(version, b"rr", transactional_id=data.draw(st.sampled_from([None, "t"]))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(frame) - 1))
        frame[at] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]))
    try:
        request = read_request(PRODUCE, version, frame, 0)
    except MalformedRequest:
        return
    for topic in request.topic_data:
        assert all(one.records is None or one.records.obj is frame for one in topic.partition_data)


@each_version
def test_cut_at_every_byte(version: int) -> None:
    whole = request_body(version, b"records", transactional_id="t")
    for end in range(len(whole)):
        with pytest.raises(MalformedRequest):
            read_request(PRODUCE, version, bytearray(whole[:end]), 0)
    assert plain_values(read_request(PRODUCE, version, whole + b"\0", 0)) == plain_values(
        read_request(PRODUCE, version, whole, 0)
    )
