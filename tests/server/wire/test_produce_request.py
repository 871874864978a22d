"""What is read by hand is what the plan says, and nothing else is taken."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import MalformedRequest
from kafkalog.server.wire import produce_request
from kafkalog.server.wire.produce_request import ProduceRequest, read_produce
from kafkalog.server.wire.reader import read_request
from kafkalog.server.wire.versions import PRODUCE
from kafkalog.server.wire.writer import write_request

VERSIONS = range(3, 14)
each_version = pytest.mark.parametrize("version", VERSIONS)


def body(version: int, records: bytes | None, *, transactional_id: str | None = None, **more: Any) -> bytes:
    partitions = more.get("partitions", [{"index": 7, "records": records}])
    topic = {"name": more.get("name", "téa"), "topic_id": UUID(int=5), "partition_data": partitions}
    topics = [topic] * more.get("topics", 1)
    tree = {"transactional_id": transactional_id, "acks": -1, "timeout": 30_000, "topic_data": topics}
    return write_request(PRODUCE, version, tree)


def plainly(request: Any) -> Any:
    """The values of a request, whatever its classes."""
    topics = [
        (getattr(topic, "name", "") or None, getattr(topic, "topic_id", None), [
            (one.index, None if one.records is None else bytes(one.records)) for one in topic.partition_data
        ])
        for topic in request.topic_data
    ]  # fmt: skip
    return request.transactional_id, request.acks, request.timeout, topics


def read_both(version: int, data: bytes) -> tuple[Any, Any]:
    """What both give, or the error's kind."""
    found = []
    for read in (lambda: read_produce(version, bytearray(data), 0), lambda: read_request(PRODUCE, version, data, 0)):
        try:
            found.append(plainly(read()))
        except MalformedRequest:
            found.append(MalformedRequest)
    return found[0], found[1]


@each_version
@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_383, 16_384, 70_000])
@pytest.mark.parametrize("transactional_id", [None, "", "mine", "x" * 126, "x" * 300])
def test_it_is_what_the_plan_says(version: int, size: int, transactional_id: str | None) -> None:
    data = body(version, b"r" * size, transactional_id=transactional_id)
    mine, plan = read_both(version, data)
    assert mine == plan and mine is not MalformedRequest


@each_version
def test_the_shape_that_comes_most_is_read_by_hand(version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_this(*args: Any) -> Any:
        raise AssertionError("read by its plan")

    monkeypatch.setattr(produce_request, "read_request", not_this)
    frame = bytearray(b"head" + body(version, b"r" * 16_000))
    request = read_produce(version, frame, 4)
    assert isinstance(request, ProduceRequest)
    [topic] = request.topic_data
    [one] = topic.partition_data
    assert one.records is not None and one.records.obj is frame and not one.records.readonly


@each_version
def test_other_shapes_are_read_by_their_plan(version: int) -> None:
    two = [{"index": 1, "records": b"a"}, {"index": 2, "records": b"b"}]
    for more in ({"topics": 0}, {"topics": 2}, {"partitions": two}, {"partitions": []}, {"name": "n" * 200}):
        mine, plan = read_both(version, body(version, b"rrr", **more))
        assert mine == plan and mine is not MalformedRequest
    mine, plan = read_both(version, body(version, None))
    assert mine == plan


def test_an_id_that_a_length_leads_beyond_the_end() -> None:
    frame = bytearray(body(13, b"rr", transactional_id="t"))
    frame[0] = len(frame) - 12  # the transactional id takes what is the topic's
    mine, plan = read_both(13, bytes(frame))
    assert mine == plan is MalformedRequest


@given(st.sampled_from(VERSIONS), st.data())
def test_damage_is_what_the_plan_finds(version: int, data: st.DataObject) -> None:
    frame = bytearray(body(version, b"rr", transactional_id=data.draw(st.sampled_from([None, "t"]))))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(frame) - 1))
        frame[at] = data.draw(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]))
    cut = data.draw(st.integers(0, len(frame) + 1))
    mine, plan = read_both(version, bytes(frame[:cut]) + b"\0" * (cut > len(frame)))
    assert mine == plan


@each_version
def test_cut_at_every_byte(version: int) -> None:
    whole = body(version, b"records", transactional_id="t")
    for end in range(len(whole)):
        with pytest.raises(MalformedRequest):
            read_produce(version, bytearray(whole[:end]), 0)
    with pytest.raises(MalformedRequest):
        read_produce(version, bytearray(whole + b"\0"), 0)
