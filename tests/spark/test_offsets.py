"""Offset JSON, and what limits come to in each partition."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.errors import IllegalArgument
from kafkalog.spark.limits import EARLIEST, LATEST, Limit, Offsets, Timestamp, Timestamps, check_order, resolve
from kafkalog.spark.offsets import format_offsets, offsets_from_dict, offsets_to_dict, parse_assignment, parse_offsets
from kafkalog.types import TopicPartition

names = st.text("abcXYZ019._-", min_size=1, max_size=20).filter(lambda name: name not in (".", ".."))
partitions = st.builds(TopicPartition, names, st.integers(0, 2**31 - 1))
offsets = st.dictionaries(partitions, st.integers(-2, 2**63 - 1), min_size=1)
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@given(offsets)
def test_offsets_come_back_as_they_were_written(given: dict[TopicPartition, int]) -> None:
    assert parse_offsets(format_offsets(given), "startingOffsets") == given
    assert offsets_from_dict(json.loads(json.dumps(offsets_to_dict(given)))) == given


def test_offsets_are_written_in_order_and_without_blanks() -> None:
    assert format_offsets({B0: 1, A1: -1, A0: 23}) == '{"a":{"0":23,"1":-1},"b":{"0":1}}'


@given(st.text(max_size=40) | st.recursive(st.none() | st.integers() | st.text(), st.lists).map(json.dumps))
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(IllegalArgument, match="give JSON"):
        parse_offsets(text, "startingOffsets")
    with pytest.raises(IllegalArgument, match="give JSON"):
        parse_assignment(text)


def test_json_that_is_nested_too_deeply_is_refused() -> None:
    for text in ("[" * 100_000, '{"a":' * 100_000):
        with pytest.raises(IllegalArgument, match="give JSON"):
            parse_offsets(text, "startingOffsets")
        with pytest.raises(IllegalArgument, match="give JSON"):
            parse_assignment(text)


@pytest.mark.parametrize("text", ['{"a":{"0":1}}', '{"a":0}', '{"a":["x"]}', '{"a":[-1]}', '{"a":[]}', '{"a":[1.0]}'])
def test_assignments_that_are_none(text: str) -> None:
    with pytest.raises(IllegalArgument, match="assign is"):
        parse_assignment(text)


def resolved(limit: Limit, side: str = "starting") -> dict[TopicPartition, int]:
    """In a world where each partition holds offsets 10 to 100, and times are ten times the offsets."""
    return resolve(
        limit, [A0, A1], side=side, earliest=lambda _: 10, latest=lambda _: 100,
        at_time=lambda _, time: (time + 9) // 10 if time <= 990 else None,
    )  # fmt: skip


def test_limits_resolved() -> None:
    assert resolved(EARLIEST) == {A0: 10, A1: 10}
    assert resolved(LATEST) == {A0: 100, A1: 100}
    assert resolved(Offsets({A0: 23, A1: -1})) == {A0: 23, A1: 100}
    assert resolved(Offsets({A0: -2, A1: 5000})) == {A0: 10, A1: 5000}
    assert resolved(Timestamp(201, False)) == {A0: 21, A1: 21}
    assert resolved(Timestamps({A0: 200, A1: 991}, True)) == {A0: 20, A1: 100}


def test_a_time_after_the_last_record() -> None:
    with pytest.raises(IllegalArgument, match="a-0 has no record at or after the starting time 991.*latest"):
        resolved(Timestamp(991, False))


@pytest.mark.parametrize("limit", [Offsets({A0: 1}), Offsets({A0: 1, A1: 2, B0: 3}), Timestamps({A1: 1}, True)])
def test_every_partition_must_be_named_and_no_other(limit: Limit) -> None:
    match = r"must name exactly the partitions.*(missing a-[01]|unexpected b-0).*-1 for the latest"
    with pytest.raises(IllegalArgument, match=match):
        resolved(limit)


def test_a_start_after_its_end() -> None:
    check_order({A0: 5, A1: 5}, {A0: 5, A1: 6})
    with pytest.raises(IllegalArgument, match="the starting offset 7 of a-1 is after its ending offset 6"):
        check_order({A0: 5, A1: 7}, {A0: 5, A1: 6})
