"""Partitions that are created together, in several directories."""

from pathlib import Path

from kafkalog.manager.new_partitions import NewPartitions
from kafkalog.manager.topics import TopicStore
from kafkalog.storage.partition_metadata import new_topic_id
from tests.manager.managers import OpenManager


def test_every_directory_of_a_topic_knows_its_number_of_partitions(tmp_path: Path) -> None:
    """Else a start without one disk took the topic for smaller, and could create a partition of that disk again."""
    a, b = tmp_path / "a", tmp_path / "b"
    topic_id = new_topic_id()
    with OpenManager(a, b) as held:
        for numbers in ([0, 1], [2]):
            assert not held.manager.create_partitions([NewPartitions("t", topic_id, numbers)])
        assert {Path(log.path).parent for log in held.manager.logs.values()} == {a, b}
    assert [TopicStore(path).topics()["t"].partitions for path in (a, b)] == [3, 3]
