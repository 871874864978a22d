"""The assignor "uniform": of the same topics as a broker, else the reader that has least, by id where it is a tie."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kafkalog.server.groups.assignors import Subscriber, uniform

TOPICS = [UUID(int=number) for number in range(1, 5)]
NUMBERS = st.frozensets(st.integers(0, 9), max_size=10)
SUBSCRIBERS = st.builds(
    Subscriber, st.none(), st.frozensets(st.sampled_from(TOPICS)), st.dictionaries(st.sampled_from(TOPICS), NUMBERS)
)
Places = set[tuple[UUID, int]]


def assign_naively(members: Mapping[str, Subscriber], counts: Mapping[UUID, int]) -> dict[str, Places]:
    loads: dict[str, Places] = {one: set() for one in members}
    readers = {topic: [one for one in sorted(members) if topic in members[one].topics] for topic in counts}

    def least(topic: UUID) -> str:
        return min(readers[topic], key=lambda one: (len(loads[one]), one))

    taken: Places = set()
    for one in sorted(members):
        had = {(topic, number) for topic, numbers in members[one].previous.items() for number in numbers}
        kept = {place for place in had if place[0] in members[one].topics and place[1] < counts.get(place[0], 0)}
        loads[one] |= kept - taken
        taken |= kept
    missing = [(topic, number) for topic, count in counts.items() for number in range(count) if readers[topic]]
    for place in sorted(set(missing) - taken, key=lambda place: (len(readers[place[0]]), place)):
        loads[least(place[0])].add(place)
    moved = True
    while moved:
        moved = False
        for one in sorted(members, key=lambda one: (-len(loads[one]), one)):
            for place in sorted(loads[one], reverse=True):
                if len(loads[one]) - len(loads[least(place[0])]) >= 2:
                    loads[least(place[0])].add(place)
                    loads[one].remove(place)
                    moved = True
    return loads


OF_A_BROKER = (
    (8, "5bf: | 7:0123 | b:4567", "5bf:37 | 7:012 | b:456"),
    (8, "5bf:37 | 7:012 | b:456 | dZ:", "5bf:37 | 7:01 | b:45 | dZ:26"),
    (8, "5bf:37 | 7:01 | b:45 | d4b: | dZ:26", "5bf:3 | 7:01 | b:45 | d4b:7 | dZ:26"),
    (7, "90:456 | 9a: | Yf:0123", "90:456 | 9a:23 | Yf:01"),
    (7, "90:456 | 9a:23 | Yf:01 | a5e:", "90:45 | 9a:23 | Yf:01 | a5e:6"),
    (7, "1fZ: | 90:45 | 9a:23 | Yf:01 | a5e:6", "1fZ:1 | 90:45 | 9a:23 | Yf:0 | a5e:6"),
    (5, "0:34 | b-: | c:012", "0:34 | b-:2 | c:01"),
    (5, "0:012 | 1: | b:34", "0:01 | 1:2 | b:34"),
)
"""Partitions of a topic, what members had, and what a broker of 4.4.0 gave them when one more had joined."""


def numbers_by_member(text: str) -> dict[str, frozenset[int]]:
    pairs = (one.strip().split(":") for one in text.split("|"))
    return {member_id: frozenset(map(int, numbers)) for member_id, numbers in pairs}


@pytest.mark.parametrize(("count", "before", "after"), OF_A_BROKER)
def test_members_of_the_same_topic_get_what_a_broker_gives(count: int, before: str, after: str) -> None:
    topic = TOPICS[0]
    members = {
        one: Subscriber(None, frozenset((topic,)), {topic: numbers})
        for one, numbers in numbers_by_member(before).items()
    }
    found = uniform(members, {topic: count})
    assert {one: parts.get(topic, frozenset()) for one, parts in found.items()} == numbers_by_member(after)


@given(
    st.dictionaries(
        st.text("abc", min_size=1), st.dictionaries(st.sampled_from(TOPICS), NUMBERS), min_size=1, max_size=9
    ),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9)),
)
def test_members_of_the_same_topics_keep_what_they_had_within_an_even_share(
    previous: dict[str, dict[UUID, frozenset[int]]], counts: dict[UUID, int]
) -> None:
    read = frozenset(counts)
    found = uniform({one: Subscriber(None, read, had) for one, had in previous.items()}, counts)
    places = [(topic, number) for parts in found.values() for topic, numbers in parts.items() for number in numbers]
    assert sorted(places) == sorted((topic, number) for topic, count in counts.items() for number in range(count))
    least, extras = divmod(len(places), len(previous))
    taken: Places = set()
    for one in sorted(previous):
        own = {(topic, number) for topic, numbers in found[one].items() for number in numbers}
        had = {(topic, number) for topic, numbers in previous[one].items() for number in numbers} & set(places) - taken
        taken |= had
        assert least <= len(own) <= least + (extras > 0)
        assert own <= had or had <= own


@given(
    st.dictionaries(st.sampled_from([f"m{number}" for number in range(30)]), SUBSCRIBERS, min_size=1, max_size=8),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9)),
)
def test_everybody_gets_what_the_plain_rule_gives(members: dict[str, Subscriber], counts: dict[UUID, int]) -> None:
    assume(len({one.topics for one in members.values()}) > 1)
    found = uniform(members, counts)
    places = {
        one: {(topic, number) for topic, numbers in parts.items() for number in numbers}
        for one, parts in found.items()
    }  # fmt: skip
    assert places == assign_naively(members, counts)


def test_very_many_members_are_given_very_many_partitions() -> None:
    """A thousand members, one of which had all: what everybody has differs by one at the most."""
    count = 10_000
    everything = {TOPICS[0]: frozenset(range(count))}
    read = frozenset(TOPICS[:1])
    members = {f"m{number}": Subscriber(None, read, everything if not number else {}) for number in range(1000)}
    given_out = uniform(members, {TOPICS[0]: count})
    assert {len(parts[TOPICS[0]]) for parts in given_out.values()} == {10}
