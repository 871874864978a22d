"""The table of what a target cannot keep: rows of a pure function of both ends."""

from dataclasses import replace
from typing import Any

import pytest

from kafkalog.copy.facts import INTERNAL, SourcePartition, SourceTopic, Survey, TargetTopic, TargetTraits
from kafkalog.copy.plan import check_names, plan_topic
from kafkalog.copy.report import NotKept
from kafkalog.errors import IllegalArgument, TopicExists

CLUSTER = TargetTraits("kafka://b:1", keeps_log=False)
DIRECTORY = TargetTraits("data", keeps_log=True, settings=frozenset({"retention.ms", "cleanup.policy"}))


def topic(*partitions: SourcePartition, **settings: str) -> SourceTopic:
    found = partitions or (SourcePartition(0, 10, 10, Survey()),)
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return SourceTopic("t", "id", named, dict(enumerate(found)))


def rows(source: SourceTopic, traits: TargetTraits, existing: TargetTopic | None = None, **more: Any) -> set[str]:
    return {row.what for row in plan_topic(source, existing, traits, **more).not_kept}


def test_a_directory_keeps_everything_but_unknown_settings() -> None:
    odd = SourcePartition(5, 10, 10, Survey(True, True, True, True, True))
    assert rows(topic(odd, retention_ms="1"), DIRECTORY) == set()
    plan = plan_topic(topic(retention_ms="1", some_day="2"), None, DIRECTORY)
    assert plan.settings == {"retention.ms": "1"} and [row.what for row in plan.not_kept] == ["some.day"]


@pytest.mark.parametrize(
    ("partition", "settings", "expected"),
    [
        (SourcePartition(0, 10, 10, Survey()), {}, set()),
        (SourcePartition(3, 10, 10, Survey()), {}, {"offsets"}),
        (SourcePartition(0, 10, 10, Survey(has_gaps=True)), {}, {"offsets"}),
        (SourcePartition(0, 10, 10, Survey(has_old_formats=True)), {}, {"formats v0 and v1"}),
        (SourcePartition(0, 10, 10, Survey(has_append_time=True)), {}, {"timestamp type"}),
        (SourcePartition(0, 10, 10, Survey(has_append_time=True)), {"message_timestamp_type": "LogAppendTime"},
         {"timestamps"}),
        (SourcePartition(0, 10, 10, Survey(has_transactions=True)), {}, {"transactions"}),
        (SourcePartition(0, 10, 10, Survey(has_producers=True)), {}, {"producer ids, sequences"}),
        (SourcePartition(0, 10, 10, Survey()), {"compression_type": "zstd"}, {"compression"}),
        (SourcePartition(0, 8, 10, Survey()), {}, {"records from offset 8 on"}),
        (SourcePartition(0, 10, 10), {}, {"offsets?", "transactions, if any", "producer ids, sequences"}),
    ],
)  # fmt: skip
def test_a_cluster_keeps_what_producers_can_send(
    partition: SourcePartition, settings: dict[str, str], expected: set[str]
) -> None:
    assert rows(topic(partition, **settings), CLUSTER) == {"topic id, leader epochs"} | expected


def test_offsets_that_must_be_kept_and_cannot() -> None:
    for one in (SourcePartition(3, 10, 10, Survey()), SourcePartition(0, 10, 10, Survey(has_gaps=True))):
        with pytest.raises(IllegalArgument, match="cannot be kept.*a mirror, or a copy to the directory of a server"):
            plan_topic(topic(one), None, CLUSTER, offsets="keep")
    plan_topic(topic(SourcePartition(0, 10, 10)), None, CLUSTER, offsets="keep")  # the read will show it


def test_a_topic_that_exists() -> None:
    existing = TargetTopic({"retention.ms": "9"}, {0: 4})
    assert rows(topic(retention_ms="1"), DIRECTORY, existing) == {"retention.ms"}
    assert rows(topic(), CLUSTER, TargetTopic({}, {0: 4}), offsets="new") >= {"offsets"}
    with pytest.raises(TopicExists, match="1 partitions in kafka"):
        plan_topic(topic(SourcePartition(0, 1, 1), SourcePartition(0, 1, 1)), TargetTopic({}, {0: 0}), CLUSTER)


def test_partitions_are_added_to_a_copy() -> None:
    two = topic(SourcePartition(0, 1, 1, Survey()), SourcePartition(0, 1, 1, Survey()))
    assert rows(two, DIRECTORY, TargetTopic({}, {0: 1})) == set()
    assert rows(two, CLUSTER, TargetTopic({}, {0: 1}, copied={0: 1})) == {"topic id, leader epochs"}


def test_rows_of_a_directory_name_the_topic_and_say_why() -> None:
    plan = plan_topic(topic(leader_replication_throttled_replicas="0:1"), None, DIRECTORY, isolation="read_committed")
    assert plan.settings == {} and plan.not_kept == (
        NotKept("t", "aborted records, markers", "only committed records were requested"),
        NotKept("t", "leader.replication.throttled.replicas", "it names nodes of the source"),
    )
    plan = plan_topic(replace(topic(), settings=None), None, DIRECTORY)
    assert plan.settings == {}
    assert plan.not_kept == (NotKept("t", "settings", "the source has none; the target's defaults apply"),)


def test_internal_topics_are_left_out_and_refused() -> None:
    assert check_names([], ["b", "a", "__consumer_offsets"], INTERNAL) == ["a", "b"]
    assert check_names(["b", "b"], [], INTERNAL) == ["b"]
    with pytest.raises(IllegalArgument, match="own state"):
        check_names(["__transaction_state"], [], INTERNAL)
