"""Records of `__consumer_offsets`, byte for byte as a broker of 4.3.1 wrote them, and groups made of them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from kafkalog.records.internal import coordinator_record
from kafkalog.records.schemas.groups import KEYS, VALUES
from kafkalog.server.groups import records
from kafkalog.server.groups.classic_group import ClassicGroup, State
from kafkalog.server.groups.consumer_group import ConsumerGroup
from kafkalog.server.groups.offsets import GroupOffsets
from kafkalog.server.groups.records import Record
from kafkalog.server.groups.replay import Replay
from kafkalog.server.groups.values import CommittedOffset

TOPIC_ID = UUID("00a8be6f-82f4-46b0-9d7f-b00f6fc9069e")
OFFSET = (
    "00010007636c617373696300017400000000",
    "0004000000000000000bffffffff01000001a204b6664b01001000a8be6f82f446b09d7fb00f6fc9069e",
)
OFFSET_WITHOUT_ID = ("00010006696e2d74786e00017400000000", "0004000000000000002cffffffff01000001a204b66fe900")
EMPTY_GROUP = (
    "00020007636c6173736963",
    "00030008636f6e73756d657200000002ffffffff000001a204b666b200000000",
)
GROUP = (
    "00020007636c6173736963",
    "00030008636f6e73756d657200000001000572616e6765002c72646b61666b612d38353335653063372d326661312d343864342d61646339"
    "2d653539353438373131313933000001a204b664de00000001002c72646b61666b612d38353335653063372d326661312d343864342d6164"
    "63392d653539353438373131313933ffff000772646b61666b61000a2f3132372e302e302e31000493e00000afc800000017000300000001"
    "0001740000000000000000ffffffff00000000001900000000000100017400000002000000000000000100000000",
)
MEMBER = "5042366b6d64676251612b7345484954672b46753467"
CONSUMER = [
    ("000500046e6578740016" + MEMBER, "000000000872646b61666b610b2f3132372e302e302e3102027401000493e00001000100"),
    ("000300046e657874", "0000000000020100083efa7b8edb61d767"),
    ("000700046e6578740016" + MEMBER, "00000200a8be6f82f446b09d7fb00f6fc9069e0300000000000000010000"),
    ("000600046e657874", "000000000002010008000001a204b668bd"),
    (
        "000800046e6578740016" + MEMBER,
        "00000000000200000000000200a8be6f82f446b09d7fb00f6fc9069e0300000000000000010100090300000002000000020100",
    ),
]
GONE = [("000800046e6578740016" + MEMBER, None), ("000500046e6578740016" + MEMBER, None)]


def of_hex(pair: tuple[str, str | None]) -> Record:
    key, value = pair
    return Record(bytes.fromhex(key), None if value is None else bytes.fromhex(value))


def read(pair: tuple[str, str | None]) -> Any:
    return coordinator_record(*of_hex(pair), KEYS, VALUES)


@pytest.mark.parametrize("pair", [OFFSET, OFFSET_WITHOUT_ID])
def test_an_offset(pair: tuple[str, str]) -> None:
    found = read(pair)
    one = records.committed_offset(found.value)
    assert one.topic_id == (TOPIC_ID if pair is OFFSET else None)
    key = found.key
    assert records.offset_record(key["group"], key["topic"], key["partition"], one) == of_hex(pair)


def test_an_offset_that_expires_by_itself_has_the_old_version() -> None:
    one = CommittedOffset(5, 3, "m", 100, 200)
    key, value = records.offset_record("g", "t", 1, one)
    found = coordinator_record(key, value, KEYS, VALUES)
    assert found.version == 1
    assert records.committed_offset(found.value) == one._replace(leader_epoch=-1)


@pytest.mark.parametrize("pair", [EMPTY_GROUP, GROUP])
def test_a_classic_group(pair: tuple[str, str]) -> None:
    found = read(pair)
    group = ClassicGroup.of_fields("classic", found.value, 0)
    assert group.state is (State.EMPTY if pair is EMPTY_GROUP else State.STABLE)
    assert records.group_record("classic", group.fields()) == of_hex(pair)
    if pair is GROUP:
        assert group.read_topics == {"t"}


def test_a_consumer_group() -> None:
    group = ConsumerGroup("next")
    for pair in CONSUMER:
        found = read(pair)
        assert not group.apply(found.type, found.key, found.value)
    [member] = group.members.values()
    assert (group.epoch, group.target_epoch, member.epoch) == (2, 2, 2)
    assert member.assigned == {TOPIC_ID: frozenset({0, 1})}
    assert not member.is_classic
    assert group.owners == {(TOPIC_ID, 0): member.id, (TOPIC_ID, 1): member.id}
    names = ("next", member.id)
    # the broker keeps the empty pattern that librdkafka sends; for us it is none
    subscription = member.subscription_fields() | {"subscribedTopicRegex": ""}
    assert records.record(records.CONSUMER_MEMBER, names, subscription) == of_hex(CONSUMER[0])
    target = {"topicPartitions": records.partition_rows(group.targets[member.id])}
    assert records.record(records.TARGET_MEMBER, names, target) == of_hex(CONSUMER[2])
    assert records.record(records.CURRENT_MEMBER, names, member.assignment_fields()) == of_hex(CONSUMER[4])
    for pair in GONE:
        found = read(pair)
        group.apply(found.type, found.key, found.value)
    assert not group.members
    assert not group.owners
    assert records.tombstone(records.CURRENT_MEMBER, *names) == of_hex(GONE[0])


def test_a_partition_read_again() -> None:
    replay = Replay()
    for at, pair in enumerate([GROUP, OFFSET, *CONSUMER, ("001800016700016d", None)]):
        replay.apply(*of_hex(pair), at)
    replay.apply(*of_hex(OFFSET_WITHOUT_ID), 20, 7)
    replay.apply(None, b"", 21)
    assert (set(replay.classic), set(replay.consumer), replay.unread) == ({"classic"}, {"next"}, {24: 1, None: 1})
    assert replay.offsets.get("in-txn", ("t", 0)) is None
    replay.end_transaction(7, True)
    known = replay.offsets.get("in-txn", ("t", 0))
    assert known is not None
    assert known.offset == 44
    all_offsets = GroupOffsets()
    all_offsets.update(replay.offsets)
    assert sorted(all_offsets.groups()) == ["classic", "in-txn"]
