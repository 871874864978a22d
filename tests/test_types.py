"""The values that travel between the layers."""

import pickle

from kafkalog.types import FetchDataInfo, LogOffsetMetadata, OffsetAndTimestamp, TopicPartition


def test_topic_partition_compares_hashes_sorts_and_pickles() -> None:
    one = TopicPartition("orders", 2)
    assert one == TopicPartition("orders", 2) != TopicPartition("orders", 3)
    assert {one: 1}[TopicPartition("orders", 2)] == 1
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)]) == [
        ("a", 9), ("a", 10), ("b", 0),
    ]  # fmt: skip
    assert pickle.loads(pickle.dumps(one)) == one
    assert type(pickle.loads(pickle.dumps(one))) is TopicPartition
    assert str(one) == "orders-2"
    assert repr(one) == "TopicPartition(topic='orders', partition=2)"


def test_offset_and_timestamp_is_a_value() -> None:
    found = OffsetAndTimestamp(804112, 1795176000003, 4)
    assert repr(found) == "OffsetAndTimestamp(offset=804112, timestamp=1795176000003, leader_epoch=4)"
    assert OffsetAndTimestamp(1, 2).leader_epoch == -1
    assert pickle.loads(pickle.dumps(found)) == found


def test_fetch_data_info() -> None:
    info = FetchDataInfo(LogOffsetMetadata(5, 0, 100), b"")
    assert (info.fetch_offset_metadata.message_offset, info.records) == (5, b"")
    assert (info.first_entry_incomplete, info.aborted_transactions) == (False, None)
    assert "first_entry_incomplete" not in repr(info)
    assert "first_entry_incomplete=True" in repr(FetchDataInfo(LogOffsetMetadata(5), b"", True, []))
