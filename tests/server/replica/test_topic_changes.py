"""Changes that give a follower its leader's topics."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.server.replica.topic_changes import (
    AddPartitions,
    AlterSettings,
    Change,
    CreateTopic,
    DeleteTopic,
    TopicState,
    setting_changes,
    topic_changes,
)

ONE, TWO = UUID(int=1), UUID(int=2)


@pytest.mark.parametrize(("wanted", "own", "changes"), [
    ({}, {}, []),
    ({"t": TopicState(ONE, 2, {"a": "1"})}, {}, [CreateTopic("t", ONE, 2, {"a": "1"})]),
    ({}, {"t": TopicState(ONE, 2, {})}, [DeleteTopic("t")]),
    ({"t": TopicState(ONE, 3, {})}, {"t": TopicState(ONE, 2, {})}, [AddPartitions("t", 3)]),
    ({"t": TopicState(ONE, 1, {})}, {"t": TopicState(ONE, 2, {})}, []),  # what is there stays
    ({"t": TopicState(TWO, 1, {})}, {"t": TopicState(ONE, 2, {})}, [DeleteTopic("t"), CreateTopic("t", TWO, 1, {})]),
    ({"t": TopicState(None, 1, {})}, {"t": TopicState(ONE, 1, {})}, []),
    ({"t": TopicState(ONE, 1, {"a": "2", "b": "3"})}, {"t": TopicState(ONE, 1, {"a": "1", "c": "1"})},
     [AlterSettings("t", {"a": "2", "b": "3", "c": None})]),
    ({"t": TopicState(ONE, 1)}, {"t": TopicState(ONE, 1, {"a": "1"})}, []),  # settings that are not replicated
])  # fmt: skip
def test_changes(wanted: dict[str, TopicState], own: dict[str, TopicState], changes: list[Change]) -> None:
    assert topic_changes(wanted, own) == changes


SETTINGS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"))
STATE = st.builds(TopicState, st.sampled_from([ONE, TWO]), st.integers(1, 3), SETTINGS)
STATES = st.dictionaries(st.sampled_from("tuv"), STATE)


@given(STATES, STATES)
def test_after_the_changes_nothing_is_left_to_change(
    wanted: dict[str, TopicState], own: dict[str, TopicState]
) -> None:
    have = dict(own)
    for change in topic_changes(wanted, own):
        match change:
            case DeleteTopic(name):
                del have[name]
            case CreateTopic(name, topic_id, partitions, settings):
                assert name not in have
                have[name] = TopicState(topic_id, partitions, settings)
            case AddPartitions(name, partitions):
                have[name] = have[name]._replace(partitions=partitions)
            case AlterSettings(name, changes):
                merged = {**(have[name].settings or {}), **changes}
                have[name] = have[name]._replace(settings={key: one for key, one in merged.items() if one is not None})
    assert topic_changes(wanted, have) == [] and have.keys() == wanted.keys()
    assert all(have[name].settings == topic.settings for name, topic in wanted.items())


def test_nothing_is_known_of_one_side() -> None:
    assert setting_changes(None, {"a": "1"}) == setting_changes({"a": "1"}, None) == {}
