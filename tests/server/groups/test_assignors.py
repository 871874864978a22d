"""The assignor "uniform" against the plain rule: each time the reader that has least, by id where it is a tie."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hypothesis import given
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


@given(
    st.dictionaries(st.sampled_from([f"m{number}" for number in range(30)]), SUBSCRIBERS, min_size=1, max_size=8),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 9)),
)
def test_everybody_gets_what_the_plain_rule_gives(members: dict[str, Subscriber], counts: dict[UUID, int]) -> None:
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
