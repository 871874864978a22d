"""Directories that a path and a subscription name, and the first and last offsets in them."""

import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import (
    CorruptRecord,
    IllegalArgument,
    KafkalogError,
    NotAPartition,
    OffsetOutOfRange,
    PartitionNotFound,
    UnknownTopicOrPartition,
)
from kafkalog.spark.batch_plan import plan_batch
from kafkalog.spark.damage import DataLoss
from kafkalog.spark.partitions import find_partitions
from kafkalog.spark.subscriptions import Assign, Subscribe, SubscribePattern, Subscription
from kafkalog.types import TopicPartition
from tests.spark.topics import (
    TIME,
    batch_positions,
    first_segment,
    flip,
    make_topic,
    offsets_of,
    rows_of,
    source_options,
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    for topic, partitions in (("orders", 2), ("orders-eu", 1), ("payments", 1), ("__consumer_offsets", 1)):
        make_topic(data, topic, partitions, batches=1, records=3)
    for name in ("orders-7.abc-delete", "orders-8.abc-stray", "orders-9.abc-future", "orders-5", "other"):
        (data / name).mkdir()
    (data / "orders-6").write_text("a file")
    return data


def found(data: Path, subscription: Subscription | None) -> list[str]:
    return [str(one) for one in find_partitions([str(data)], subscription)]


def test_what_is_subscribed_to(data: Path) -> None:
    assert found(data, Subscribe(("orders",))) == ["orders-0", "orders-1", "orders-5"]
    assert found(data, Subscribe(("payments", "orders-eu"))) == ["orders-eu-0", "payments-0"]
    assert found(data, Assign((TopicPartition("orders", 1), TopicPartition("payments", 0)))) == [
        "orders-1", "payments-0",
    ]  # fmt: skip


def test_a_pattern_is_found_in_names_and_means_no_topic_of_kafka_s_own(data: Path) -> None:
    assert found(data, SubscribePattern("orders")) == ["orders-0", "orders-1", "orders-5", "orders-eu-0"]
    assert found(data, SubscribePattern("^orders$")) == ["orders-0", "orders-1", "orders-5"]
    assert found(data, SubscribePattern(".*s.*")) == ["orders-0", "orders-1", "orders-5", "orders-eu-0", "payments-0"]
    assert found(data, SubscribePattern("nothing")) == []
    assert found(data, Subscribe(("__consumer_offsets",))) == ["__consumer_offsets-0"]


def test_partition_directories_need_no_subscription(data: Path) -> None:
    paths = [str(data / "orders-1"), str(data / "payments-0")]
    assert [*find_partitions(paths, None).items()] == [
        (TopicPartition("orders", 1), paths[0]), (TopicPartition("payments", 0), paths[1]),
    ]  # fmt: skip
    assert list(find_partitions(paths, Subscribe(("orders",)))) == [TopicPartition("orders", 1)]


def test_several_data_directories(tmp_path: Path) -> None:
    make_topic(tmp_path / "a")
    make_topic(tmp_path / "b", partitions=2)
    (tmp_path / "b" / "orders-0").rename(tmp_path / "gone")
    paths = [str(tmp_path / "b"), str(tmp_path / "a"), str(tmp_path / "a" / ".." / "a")]
    partitions = find_partitions(paths, Subscribe(("orders",)))
    assert [*partitions.values()] == [str(tmp_path / "a" / "orders-0"), str(tmp_path / "b" / "orders-1")]


def test_a_partition_in_two_places_is_refused(tmp_path: Path) -> None:
    paths = [str(make_topic(tmp_path / name)) for name in "ab"]
    with pytest.raises(NotAPartition, match="orders-0 is also in .*a/orders-0.*omit its path"):
        find_partitions(paths, Subscribe(("orders",)))


@pytest.mark.parametrize(
    ("path", "subscription", "kind", "message"),
    [
        ("missing", Subscribe(("orders",)), PartitionNotFound, "no such directory.*missing.*check the path"),
        (".", Subscribe(("order",)), UnknownTopicOrPartition, "no topic order .*topics here: .*, orders"),
        (".", Assign((TopicPartition("x", 0),)), UnknownTopicOrPartition, "no topic x"),
        (".", Assign((TopicPartition("orders", 3),)), UnknownTopicOrPartition, "no partition 3.*it has 0, 1"),
        (".", None, IllegalArgument, "no topic is named.*subscribe, subscribePattern, assign; topics here: .*orders"),
        ("orders-6", Subscribe(("orders",)), NotAPartition, "a file, not a directory"),
        ("other", Subscribe(("orders",)), UnknownTopicOrPartition, "no topic orders.*topics here: none"),
    ],
)
def test_what_is_not_there(
    data: Path, path: str, subscription: Subscription | None, kind: type[KafkalogError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        find_partitions([str(data / path)], subscription)


def test_a_directory_in_transit_is_no_partition(data: Path) -> None:
    moved = data / "payments-0.abc-delete"
    (data / "payments-0").rename(moved)
    with pytest.raises(NotAPartition, match="in transit"):
        find_partitions([str(moved)], None)


def test_a_replica_that_is_moved_between_disks_is_twice_there_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        make_topic(tmp_path / name, batches=1)
    paths = [str(tmp_path / name) for name in ("a", "b")]
    waits: list[float] = []
    monkeypatch.setattr("kafkalog.spark.partitions.sleep", waits.append)
    with pytest.raises(NotAPartition, match="is also in"):
        find_partitions(paths, Subscribe(("orders",)))
    assert len(waits) == 3
    monkeypatch.setattr("kafkalog.spark.partitions.sleep", lambda _: shutil.rmtree(tmp_path / "a" / "orders-0"))
    assert list(find_partitions(paths, Subscribe(("orders",))).values()) == [str(tmp_path / "b" / "orders-0")]


# Bounds of a batch


def test_an_empty_topic_has_no_rows(tmp_path: Path) -> None:
    kafkalog.open(tmp_path / "orders-0", "a").close()
    assert rows_of(source_options(tmp_path)) == []
    assert rows_of(source_options(tmp_path, startingOffsets='{"orders":{"0":0}}')) == []


def test_offsets_from_and_to(tmp_path: Path) -> None:
    make_topic(tmp_path)
    some = {"startingOffsets": '{"orders":{"0":30}}', "endingOffsets": '{"orders":{"0":60}}'}
    assert offsets_of(source_options(tmp_path, **some)) == list(range(30, 60))
    times = {"startingTimestamp": TIME + 40, "endingTimestamp": TIME + 42}
    assert offsets_of(source_options(tmp_path, **times)) == [40, 41]
    late = {"startingTimestamp": TIME + 40, "endingTimestamp": TIME + 4200}
    assert offsets_of(source_options(tmp_path, **late)) == list(range(40, 100))


def test_a_start_that_no_record_is_as_young_as(tmp_path: Path) -> None:
    make_topic(tmp_path)
    with pytest.raises(IllegalArgument, match="no record at or after the starting time"):
        plan_batch(source_options(tmp_path, startingTimestamp=TIME + 100))
    strategy = {"startingOffsetsByTimestampStrategy": "latest"}
    assert plan_batch(source_options(tmp_path, startingTimestamp=TIME + 100, **strategy)) == []


def test_a_start_after_its_end(tmp_path: Path) -> None:
    make_topic(tmp_path)
    with pytest.raises(IllegalArgument, match="the starting offset 60 of orders-0 is after its ending offset 30"):
        plan_batch(source_options(tmp_path, startingOffsets='{"orders":{"0":60}}', endingOffsets='{"orders":{"0":30}}'))
    with pytest.raises(IllegalArgument, match="the starting offset 1000 of orders-0 is after its ending offset 100"):
        plan_batch(source_options(tmp_path, startingOffsets='{"orders":{"0":1000}}'))
    with pytest.raises(IllegalArgument, match="the starting offset 50 of orders-0 is after its ending offset 40"):
        plan_batch(source_options(tmp_path, startingTimestamp=TIME + 50, endingTimestamp=TIME + 40))


def test_a_start_beyond_all_there_is_may_be_data_loss(tmp_path: Path) -> None:
    make_topic(tmp_path)
    with pytest.warns(DataLoss, match="starting offset 1000"):
        options = source_options(tmp_path, startingOffsets='{"orders":{"0":1000}}', failOnDataLoss="false")
        assert plan_batch(options) == []


def test_a_time_that_only_records_behind_damage_may_have(tmp_path: Path) -> None:
    make_topic(tmp_path, batches=6)
    path = first_segment(tmp_path)
    flip(path, batch_positions(path)[2][0] + 70)
    with pytest.raises(CorruptRecord, match="does not match its CRC"):
        plan_batch(source_options(tmp_path, startingTimestamp=TIME + 100, onDamage="skip"))
    assert offsets_of(source_options(tmp_path, startingTimestamp=TIME + 30, onDamage="skip"))[:2] == [30, 31]


def test_offsets_beyond_the_end_fail_at_once(tmp_path: Path) -> None:
    make_topic(tmp_path)
    beyond = {"endingOffsets": '{"orders":{"0":101}}'}
    with pytest.raises(OffsetOutOfRange, match="ending offset 101 of orders-0 does not exist.* 0 to 100.*failOn"):
        plan_batch(source_options(tmp_path, **beyond))
    with pytest.warns(DataLoss, match="ending offset 101"):
        assert offsets_of(source_options(tmp_path, failOnDataLoss="false", **beyond)) == list(range(100))


def test_offsets_below_the_log_start_are_data_loss(tmp_path: Path) -> None:
    make_topic(tmp_path)
    with kafkalog.open(tmp_path / "orders-0", "a") as log:
        log.delete_before(50)
    below = {"startingOffsets": '{"orders":{"0":20}}'}
    with pytest.raises(OffsetOutOfRange, match="starting offset 20 of orders-0 does not exist: it has 50 to 100"):
        plan_batch(source_options(tmp_path, **below))
    with pytest.warns(DataLoss, match="starting offset 20"):
        assert offsets_of(source_options(tmp_path, failOnDataLoss="false", **below)) == list(range(50, 100))
    assert offsets_of(source_options(tmp_path)) == list(range(50, 100))


def test_offsets_of_other_partitions(tmp_path: Path) -> None:
    make_topic(tmp_path, partitions=2)
    with pytest.raises(IllegalArgument, match="must name exactly the partitions that are read.*missing orders-1"):
        plan_batch(source_options(tmp_path, startingOffsets='{"orders":{"0":20}}'))
    with pytest.raises(IllegalArgument, match="unexpected x-0"):
        plan_batch(source_options(tmp_path, endingOffsets='{"orders":{"0":20,"1":-1},"x":{"0":1}}'))
