"""A consumer group's rules (KIP-848): epochs, assignments that go over without two owners, static members, patterns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.records.internal import coordinator_record
from kafkalog.records.schemas.groups import KEYS, VALUES
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.groups.assignors import Subscriber, range_, uniform
from kafkalog.server.groups.consumer_group import ConsumerGroup, GroupState
from kafkalog.server.groups.consumer_heartbeat import (
    Heartbeat,
    HeartbeatResult,
    Rules,
    delete,
    fence,
    heartbeat,
)
from kafkalog.server.groups.records import Record

T, U = UUID(int=1), UUID(int=2)


class Topics:
    """Topics with so many partitions."""

    def __init__(self, **counts: int) -> None:
        self.counts = counts
        self.numbers = {name: UUID(int=at + 1) for at, name in enumerate(counts)}

    def places(self, names: Iterable[str]) -> dict[UUID, int]:
        return {self.numbers[name]: self.counts[name] for name in names if name in self.counts}

    def ids(self, names: Iterable[str]) -> frozenset[UUID]:
        return frozenset(self.places(names))

    def matching(self, pattern: str) -> frozenset[str]:
        if pattern == "(":
            raise Refused(ErrorCode.INVALID_REGULAR_EXPRESSION, "no pattern")
        return frozenset(name for name in self.counts if name.startswith(pattern))


class Driver:
    """A group and all records that made it, so that it can be made again of them."""

    def __init__(self, **counts: int) -> None:
        self.group = ConsumerGroup("g")
        self.topics = Topics(**counts or {"t": 4})
        self.rules = Rules(("uniform", "range"), 100, 5)
        self.records: list[Record] = []

    def send_heartbeat(self, member_id: str, epoch: int = 0, **more: Any) -> HeartbeatResult:
        values: dict[str, Any] = {
            "instance_id": None, "rack_id": None, "client_id": "c", "client_host": "/h", "rebalance_timeout_ms": -1,
            "topics": None, "regex": None, "assignor": None, "owned": None,
        }  # fmt: skip
        if epoch == 0:
            values |= {"rebalance_timeout_ms": 1000, "topics": ("t",), "owned": {}}
        event = Heartbeat(member_id, epoch, **(values | more))
        return self.apply_result(heartbeat(self.group, event, self.topics, self.rules))

    def apply_result(self, done: HeartbeatResult) -> HeartbeatResult:
        self.group = done.group
        self.records += done.records
        return done

    def settle(self, *members: str) -> None:
        """Send heartbeats of members that follow each answer at once, until nothing changes."""
        for _ in range(20):
            before = len(self.records)
            for member_id in members:
                member = self.group.members[member_id]
                self.send_heartbeat(member_id, member.epoch, owned=dict(member.assigned))
            if len(self.records) == before:
                return
        raise AssertionError("it does not settle")

    def assigned(self, member_id: str) -> set[int]:
        return {number for numbers in self.group.members[member_id].assigned.values() for number in numbers}

    def compacted(self) -> list[Record]:
        """Return the records that a cleaner keeps: the last one of each key, in place."""
        last = {key: at for at, (key, _) in enumerate(self.records)}
        return [one for at, one in enumerate(self.records) if last[one.key] == at]

    def rebuild_group(self, made: list[Record] | None = None) -> ConsumerGroup:
        """The group that its records make."""
        group = ConsumerGroup("g")
        for key, value in self.records if made is None else made:
            found = coordinator_record(key, value, KEYS, VALUES)
            group.apply(found.type, found.key, found.value)
        group.has_current_topics = self.group.has_current_topics
        return group


def state_of(group: ConsumerGroup) -> dict[str, Any]:
    return {name: getattr(group, name) for name in ConsumerGroup.__slots__}


def test_the_first_member_gets_all_at_once() -> None:
    driver = Driver()
    done = driver.send_heartbeat("a")
    assert (done.epoch, done.sends_assignment) == (2, True)
    assert driver.assigned("a") == {0, 1, 2, 3}
    assert driver.group.state is GroupState.STABLE
    done = driver.send_heartbeat("a", 2, owned={T: frozenset({0, 1, 2, 3})})
    assert (done.epoch, done.sends_assignment, done.records) == (2, False, ())


def test_a_new_member_without_topics_begins_no_epoch() -> None:
    driver = Driver()
    assert driver.send_heartbeat("a", topics=()).epoch == 1
    assert driver.send_heartbeat("b").epoch == 2
    assert (driver.send_heartbeat("c", topics=()).epoch, driver.group.epoch) == (2, 2)
    assert driver.assigned("b") == {0, 1, 2, 3}


@pytest.mark.parametrize("leaves", [True, False])
def test_a_member_that_takes_its_topics_along_begins_one_epoch(leaves: bool) -> None:
    driver = Driver(t=2, u=2)
    driver.send_heartbeat("a")
    driver.send_heartbeat("b", topics=("u",))
    if leaves:
        driver.send_heartbeat("b", -1)
    else:
        driver.apply_result(fence(driver.group, "b", driver.topics))
    driver.settle("a")
    assert (driver.group.epoch, driver.group.members["a"].epoch) == (4, 4)


def test_partitions_go_over_only_when_they_were_given_back() -> None:
    """The steps that a broker was seen to take in the transcripts of two members."""
    driver = Driver(t=2)
    driver.send_heartbeat("a")
    done = driver.send_heartbeat("b")
    assert (done.epoch, driver.assigned("b")) == (3, set())
    assert driver.group.state is GroupState.RECONCILING
    done = driver.send_heartbeat("a", 2)
    assert (done.epoch, done.sends_assignment, driver.assigned("a")) == (2, True, {0})
    assert driver.send_heartbeat("b", 3, owned={}).sends_assignment is False, "it was not given back yet"
    done = driver.send_heartbeat("a", 2, owned={T: frozenset({0})})
    assert (done.epoch, done.sends_assignment) == (3, False)
    done = driver.send_heartbeat("b", 3, owned={})
    assert (done.epoch, done.sends_assignment, driver.assigned("b")) == (3, True, {1})
    assert driver.group.state is GroupState.STABLE


def test_the_group_is_what_its_records_say() -> None:
    driver = Driver(t=4, u=3)
    driver.send_heartbeat("a")
    driver.send_heartbeat("b", topics=("t", "u"), assignor="range", instance_id="i", rack_id="r")
    driver.send_heartbeat("c", topics=(), regex="u")
    driver.settle("a", "b", "c")
    driver.apply_result(fence(driver.group, "a", driver.topics))
    driver.settle("b", "c")
    assert state_of(driver.rebuild_group()) == state_of(driver.group)
    gone = driver.rebuild_group()
    for key, value in delete(driver.group):
        found = coordinator_record(key, value, KEYS, VALUES)
        is_gone = gone.apply(found.type, found.key, found.value)
    assert is_gone
    assert not gone.members
    assert not gone.targets
    assert not gone.regexes


@pytest.mark.parametrize(
    ("member_id", "epoch", "more", "code"),
    [
        ("a", 3, {}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("a", 1, {"owned": {T: frozenset({0})}}, ErrorCode.FENCED_MEMBER_EPOCH),
        ("b", 2, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", -1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", 2, {"instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("b", 0, {"topics": (), "regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_who_does_not_belong_is_refused_and_nothing_changes(
    member_id: str, epoch: int, more: dict[str, Any], code: int
) -> None:
    driver = Driver()
    driver.send_heartbeat("a")
    before = state_of(driver.group.copy())
    with pytest.raises(Refused) as refused:
        driver.send_heartbeat(member_id, epoch, **more)
    assert refused.value.code == code
    assert state_of(driver.group) == before


def test_the_group_is_what_a_cleaner_leaves_of_its_records() -> None:
    driver = Driver()
    driver.send_heartbeat("a")
    driver.send_heartbeat("a", driver.group.members["a"].epoch, client_host="/elsewhere")
    again = driver.rebuild_group(driver.compacted())
    assert len(driver.compacted()) < len(driver.records)
    assert state_of(again) == state_of(driver.group)
    assert set(again.owners.values()) == {"a"}, "no other member gets its partitions"


def test_an_answer_that_was_lost_is_made_good() -> None:
    driver = Driver(t=2)
    driver.send_heartbeat("a")
    driver.send_heartbeat("b")
    driver.send_heartbeat("a", 2, owned={T: frozenset({0, 1})})
    driver.send_heartbeat("a", 2, owned={T: frozenset({0})})
    assert driver.send_heartbeat("a", 2, owned={T: frozenset({0})}).epoch == 3


def test_a_member_that_leaves_gives_all_it_had_to_the_others() -> None:
    driver = Driver()
    driver.send_heartbeat("a")
    driver.send_heartbeat("b")
    driver.settle("a", "b")
    done = driver.send_heartbeat("b", -1)
    assert (done.epoch, done.member) == (-1, None)
    driver.settle("a")
    assert driver.assigned("a") == {0, 1, 2, 3}
    driver.send_heartbeat("a", -1)
    assert driver.group.state is GroupState.EMPTY


def test_a_static_member_has_its_partitions_when_it_comes_back() -> None:
    driver = Driver()
    driver.send_heartbeat("a", instance_id="i")
    driver.send_heartbeat("b")
    driver.settle("a", "b")
    had = driver.assigned("a")
    with pytest.raises(Refused) as refused:
        driver.send_heartbeat("a2", instance_id="i")
    assert refused.value.code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert driver.send_heartbeat("a", -2, instance_id="i").epoch == -2
    done = driver.send_heartbeat("a2", instance_id="i")
    assert (done.replaced, driver.assigned("a2"), done.epoch) == ("a", had, driver.group.epoch)
    assert "a" not in driver.group.members
    with pytest.raises(Refused) as refused:
        driver.send_heartbeat("a", 3, instance_id="i")
    assert refused.value.code == ErrorCode.FENCED_INSTANCE_ID


def test_a_static_member_that_comes_back_has_its_partitions_since_the_same_epochs() -> None:
    """KIP-1251: what it was about to commit before it went away is of one of these epochs."""
    driver = Driver()
    driver.send_heartbeat("a", instance_id="i")
    driver.send_heartbeat("b")
    driver.settle("a", "b")
    before = driver.group.members["a"]
    driver.send_heartbeat("a", -2, instance_id="i")
    driver.send_heartbeat("a2", instance_id="i")
    after = driver.group.members["a2"]
    assert (after.assigned, after.epochs) == (before.assigned, before.epochs)
    assert max(before.epochs.values()) < driver.group.epoch


def test_a_topic_that_grows_is_assigned_anew() -> None:
    driver = Driver(t=2)
    driver.send_heartbeat("a")
    driver.topics.counts["t"] = 3
    assert driver.send_heartbeat("a", 2).epoch == 2, "no topic change was reported"
    driver.group.has_current_topics = False
    done = driver.send_heartbeat("a", 2)
    assert (done.epoch, driver.assigned("a")) == (3, {0, 1, 2})


def test_a_pattern_stands_for_topics_that_come_later_too() -> None:
    driver = Driver(ta=1)
    driver.send_heartbeat("a", topics=(), regex="t")
    driver.topics = Topics(ta=1, tb=1, x=1)
    driver.group.has_current_topics = False
    driver.send_heartbeat("a", 2)
    assert driver.group.members["a"].assigned == {T: frozenset({0}), U: frozenset({0})}
    driver.send_heartbeat("a", driver.group.members["a"].epoch, topics=("x",), regex="")
    driver.settle("a")
    assert not driver.group.regexes
    assert driver.group.subscribed_topics() == {"x"}


subscriptions = st.dictionaries(
    st.sampled_from("abcde"), st.sets(st.sampled_from([T, U]), min_size=1).map(frozenset), min_size=1
)


@given(subscriptions, st.integers(0, 7), st.integers(0, 7), subscriptions)
@settings(max_examples=60)
def test_every_partition_has_one_owner_that_reads_it(
    now: dict[str, frozenset[UUID]], many: int, few: int, before: dict[str, frozenset[UUID]]
) -> None:
    counts = {T: many, U: few}
    had = uniform({one: Subscriber(None, topics, {}) for one, topics in before.items()}, counts)
    members = {one: Subscriber(None, topics, had.get(one, {})) for one, topics in now.items()}
    read = frozenset[UUID]().union(*now.values())
    for assign in (uniform, range_):
        given_out = assign(members, {one: count for one, count in counts.items() if one in read})
        pairs = [(one, number) for parts in given_out.values() for one, numbers in parts.items() for number in numbers]
        assert sorted(pairs) == [(one, number) for one in sorted(read) for number in range(counts[one])]
        assert all(set(given_out[one]) <= now[one] for one in now)
    if len(set(now.values())) == 1:
        loads = [sum(map(len, parts.values())) for parts in uniform(members, {o: counts[o] for o in read}).values()]
        assert max(loads) - min(loads) <= 1


def test_what_can_stay_stays() -> None:
    members = {one: Subscriber(None, frozenset({T}), {}) for one in "ab"}
    first = uniform(members, {T: 6})
    third = {one: Subscriber(None, frozenset({T}), first.get(one, {})) for one in "abc"}
    after = uniform(third, {T: 6})
    for one in "ab":
        assert len(after[one][T]) == 2
        assert after[one][T] < first[one][T]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["join", "leave", "fence", "beat"])), max_size=30))
@settings(max_examples=60, deadline=None)
def test_no_partition_ever_has_two_owners(steps: list[tuple[str, str]]) -> None:
    driver = Driver(t=5)
    for member_id, step in steps:
        known = driver.group.members.get(member_id)
        if step == "join":
            driver.send_heartbeat(member_id)
        elif known is None:
            continue
        elif step == "leave":
            driver.send_heartbeat(member_id, -1)
        elif step == "fence":
            driver.apply_result(fence(driver.group, member_id, driver.topics))
        else:
            driver.send_heartbeat(member_id, known.epoch, owned=dict(known.assigned))
        places = [
            (member.id, number)
            for member in driver.group.members.values()
            for held in (member.assigned, member.revoking)
            for numbers in held.values()
            for number in numbers
        ]
        assert len({number for _, number in places}) == len(places)
    driver.settle(*driver.group.members)
    if driver.group.members:
        assert set().union(*map(driver.assigned, driver.group.members)) == set(range(5))
        assert driver.group.state is GroupState.STABLE
    assert state_of(driver.rebuild_group()) == state_of(driver.group)
