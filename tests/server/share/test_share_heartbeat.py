"""A share group's rules: epochs, assignments, records that make the group again, and states that it still needs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.records.internal import coordinator_record
from kafkalog.records.schemas.groups import KEYS, VALUES
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.records import Record
from kafkalog.server.groups.replay import Replay
from kafkalog.server.groups.share_group import SharedTopic, ShareGroup, ShareMember, assign
from kafkalog.server.groups.share_heartbeat import (
    ShareHeartbeat,
    ShareResult,
    ShareRules,
    initialized,
    leave,
    left,
    missing_states,
    share_heartbeat,
    tombstones,
    without_topics,
)

T, U = UUID(int=1), UUID(int=2)
TOPICS = {T: SharedTopic("t", frozenset(range(4))), U: SharedTopic("u", frozenset({0}))}


class Driver:
    """A group and all records that made it."""

    def __init__(self) -> None:
        self.group = ShareGroup("g", epoch=1)
        self.records: list[Record] = []
        self.topics = TOPICS

    def keep(self, done: ShareResult) -> ShareResult:
        self.group = done.group
        self.records += done.records
        return done

    def beat(self, member: str, epoch: int = 0, topics: tuple[str, ...] | None = ("t",), **more: Any) -> ShareResult:
        event = ShareHeartbeat(member, epoch, more.get("rack"), "c", "/h", topics)
        names = self.group.subscribed_topics() | set(topics or ())
        read = {topic_id: topic for topic_id, topic in self.topics.items() if topic.name in names}
        return self.keep(share_heartbeat(self.group, event, read, ShareRules(2, 7)))

    def replayed(self) -> ShareGroup:
        replay = Replay()
        for at, (key, value) in enumerate(self.records):
            replay.apply(key, value, at)
        found = replay.kept_for_broker()["g"]
        assert isinstance(found, ShareGroup)
        return found


def code_of(driver: Driver, *args: Any, **more: Any) -> int:
    with pytest.raises(Refused) as raised:
        driver.beat(*args, **more)
    return int(raised.value.code)


def test_the_group_is_the_same_after_its_records_are_read() -> None:
    driver = Driver()
    driver.keep(initialized(driver.group, TOPICS))
    first = driver.beat("a")
    assert (first.member.epoch, first.member.assigned, first.sends_assignment) == (2, {T: TOPICS[T].partitions}, True)
    driver.beat("b", topics=("t", "u"))
    driver.beat("a", 2, None)
    driver.keep(left(driver.group, "b"))
    driver.keep(without_topics(driver.group, frozenset({U})))
    assert driver.replayed() != driver.group and vars_of(driver.replayed()) == vars_of(driver.group)
    assert driver.group.topics == {T: TOPICS[T]}


def vars_of(group: ShareGroup) -> list[Any]:
    return [getattr(group, name) for name in ("epoch", "metadata_hash", "members", "targets", "target_epoch", "topics")]


def test_epochs_that_a_member_may_name() -> None:
    driver = Driver()
    driver.beat("a")
    driver.beat("b")
    after = driver.beat("a", 2, None)
    assert (after.member.epoch, after.member.previous_epoch, after.sends_assignment) == (3, 2, True)
    assert driver.beat("a", 2, None).records == (), "its answer may have been lost"
    assert driver.beat("a", 3, None).sends_assignment is False
    assert code_of(driver, "a", 4, None) == code_of(driver, "a", 1, None) == ErrorCode.FENCED_MEMBER_EPOCH
    assert code_of(driver, "c", 1, None) == ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(driver, "c") == ErrorCode.GROUP_MAX_SIZE_REACHED
    with pytest.raises(Refused):
        leave(driver.group, ShareHeartbeat("c", -1, None, "c", "/h", None))


def test_only_changes_begin_an_epoch() -> None:
    driver = Driver()
    driver.beat("a")
    assert driver.beat("a", 2, None).group.epoch == 2
    assert driver.beat("a", 2, ("t",)).group.epoch == 2
    assert driver.beat("a", 2, ("u",)).group.epoch == 3
    assert driver.beat("a", 3, None, rack="r").group.epoch == 4
    driver.topics = {**TOPICS, U: SharedTopic("u", frozenset({0, 1}))}
    assert driver.beat("a", 4, None).group.epoch == 5, "the topic got a partition"
    driver.keep(leave(driver.group, ShareHeartbeat("a", -1, None, "c", "/h", None)))
    assert (driver.group.epoch, driver.group.target_epoch, driver.group.state) == (6, 6, "Empty")


def test_tombstones_leave_nothing() -> None:
    driver = Driver()
    driver.keep(initialized(driver.group, TOPICS))
    driver.beat("a")
    deleted = tombstones(driver.group)
    written = {one.key for one in driver.records}
    assert written == {one.key for one in deleted} and all(one.value is None for one in deleted)
    assert {coordinator_record(key, None, KEYS, VALUES).type for key in written} == set(range(10, 16))


def test_states_that_are_missing() -> None:
    group = initialized(ShareGroup("g"), {T: SharedTopic("t", frozenset({0, 1}))}).group
    lost: set[tuple[UUID, int]] = set()

    def missing(group: ShareGroup) -> dict[UUID, SharedTopic]:
        return missing_states(group, TOPICS, lambda *place: place in lost)

    assert missing(group) == {T: SharedTopic("t", frozenset({2, 3})), U: TOPICS[U]}
    full = initialized(group, TOPICS).group
    assert missing(full) == {}
    lost.add((T, 1))
    assert missing(full) == {T: SharedTopic("t", frozenset({1}))}


@given(
    st.dictionaries(st.sampled_from("abcdef"), st.frozensets(st.sampled_from("tuv")), min_size=1),
    st.dictionaries(st.sampled_from("tuv"), st.integers(1, 7)),
)
def test_every_partition_has_a_reader_and_every_reader_a_partition(
    readers: dict[str, frozenset[str]], counts: dict[str, int]
) -> None:
    members = [ShareMember(name, topics=topics) for name, topics in readers.items()]
    topics = {UUID(int=ord(name)): SharedTopic(name, frozenset(range(count))) for name, count in counts.items()}
    found = assign(members, topics)
    for topic_id, topic in topics.items():
        subscribed = [one.id for one in members if topic.name in one.topics]
        taken = [found[name].get(topic_id, frozenset()) for name in subscribed]
        assert not subscribed or frozenset().union(*taken) == topic.partitions
        assert max(map(len, taken), default=0) - min(map(len, taken), default=0) <= 1
        assert all(topic_id not in found[one.id] for one in members if topic.name not in one.topics)
