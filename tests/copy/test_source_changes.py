"""Sources that change between runs and during one: partitions are added, records deleted; brokers fail for a moment."""

import shutil
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import kafkalog
from kafkalog.copy import cluster_source, copy_topics, follow_topics
from kafkalog.copy.cluster_client import FETCH, LIST_OFFSETS
from kafkalog.copy.cluster_partition import PartitionCopy
from kafkalog.errors import IllegalArgument, IllegalState, TopicExists
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.errors import PeerMisbehaved
from kafkalog.testing import kafka_server
from tests.builder import R, batch
from tests.copy.test_failures import fill
from tests.copy.topics import SERVER, TIERED_ID, cluster_on, records_in


class Killed(Exception):
    """The run ends here, before its marker."""


def values(partition: Path) -> list[bytes | None]:
    return [one.value for one in records_in(partition)]


@pytest.mark.parametrize("kind", ["directory", "cluster", "backup"])
def test_partitions_that_are_added_are_added_to_the_copy(tmp_path: Path, kind: str) -> None:
    data, copied = tmp_path / "data", tmp_path / "copied"
    fill(data, batches=3)
    with cluster_on(tmp_path / "cluster") if kind == "cluster" else nullcontext() as server:
        target = f"backup:{tmp_path}/backups" if kind == "backup" else str(copied)
        if server is not None:
            target = f"kafka://{server.bootstrap}"
        assert copy_topics(str(data), target, apply=True).records == 9
        with kafkalog.open_dirs(data, "a") as dirs:
            dirs.alter_topic("t", {}, partitions=3)
            dirs["t", 2].append([(b"k", b"new")])
        assert copy_topics(str(data), target).records == 0
        assert copy_topics(str(data), target, apply=True).records == 1
        assert copy_topics(str(data), target, apply=True).records == 0
        files = tmp_path / "cluster" if kind == "cluster" else copied
        if kind == "backup":
            newest = sorted(one for one in (tmp_path / "backups").iterdir() if one.is_dir())[-1]
            files = newest / "dir0"
        assert [values(files / f"t-{number}") for number in range(3)] == [
            values(data / f"t-{number}") for number in range(3)
        ]


def test_partitions_that_are_added_to_a_cluster_that_is_followed(tmp_path: Path) -> None:
    """The topic there is a copy; one that is not gets no partitions."""
    from confluent_kafka.admin import AdminClient, NewPartitions

    with (
        kafka_server(directory=tmp_path / "source", settings=SERVER, topics={"t": 1}) as source,
        cluster_on(tmp_path / "cluster") as target,
    ):
        produce(source.bootstrap, 0, b"one")
        done = list[int]()
        reports = follow_topics(
            f"kafka://{source.bootstrap}", f"kafka://{target.bootstrap}", poll_every_s=0.01,
            is_stopped=lambda: len(done) == 2,
        )  # fmt: skip
        done.append(next(reports).records)
        admin = AdminClient({"bootstrap.servers": source.bootstrap})
        admin.create_partitions([NewPartitions("t", 2)])["t"].result(60)
        produce(source.bootstrap, 1, b"two")
        while sum(done) < 2:
            done[0] += next(reports).records
        done.append(0)
        assert list(reports) == [] and done[0] == 2
        assert values(tmp_path / "cluster" / "t-1") == [b"two"]
        produce(target.bootstrap, 0, b"mine", topic="other")
        fill(tmp_path / "data", batches=1, topic="other", partitions=2)
        with pytest.raises(TopicExists, match="1 partitions in kafka"):
            copy_topics(str(tmp_path / "data"), f"kafka://{target.bootstrap}", ["other"], apply=True)


def produce(bootstrap: str, partition: int, value: bytes, topic: str = "t") -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    if topic != "t":
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(topic, 1)])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "topic.metadata.refresh.interval.ms": 50})
    producer.produce(topic, value, partition=partition)
    assert producer.flush(60) == 0


def test_a_broker_whose_disk_fails_for_a_moment(tmp_path: Path) -> None:
    """The leader moves elsewhere, or the disk is back: Kafka's clients try again, and so does a copy."""
    data, apis = tmp_path / "data", ("Produce", "Fetch", "ListOffsets")
    for api in apis:
        fill(data, batches=3, topic=api)
    with (
        kafka_server(directory=data, settings=SERVER) as source, cluster_on(tmp_path / "cluster") as target
    ):  # fmt: skip
        for api in apis:
            failing = target if api == "Produce" else source
            with failing.fault(api, error="KAFKA_STORAGE_ERROR", topic=api, times=2) as fault:
                copy_topics(f"kafka://{source.bootstrap}", f"kafka://{target.bootstrap}", [api], apply=True)
            assert fault.fired == 2
    for api in apis:
        assert values(tmp_path / "cluster" / f"{api}-0") == values(data / f"{api}-0")


def test_a_kill_between_two_markers_and_deletes_behind_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source begins inside of what was sent, inside of its last batch, right after it, or later."""
    cases = {30: 0, 58: 0, 59: 0, 60: 0, 75: 15}
    with cluster_on(tmp_path / "cluster") as server:
        for deleted_before, lost in cases.items():
            topic, target = f"t{deleted_before}", f"kafka://{server.bootstrap}"
            data = tmp_path / f"data-{topic}"
            append(data, topic, range(60))
            send_without_marker(data, topic, target, monkeypatch)
            log = tmp_path / "cluster" / f"{topic}-0"
            assert len(values(log)) == 60
            append(data, topic, range(60, 90))
            delete(data, topic, deleted_before)
            report = copy_topics(str(data), target, [topic], apply=True)
            assert report.records == 30 - lost
            assert [row.what for row in report.not_kept if row.what.startswith("records")] == (
                [f"records of offsets 0 to {deleted_before}"] if deleted_before >= 60 else []
            )
            assert copy_topics(str(data), target, [topic], apply=True).records == 0
            assert values(log) == [b"%d" % n for n in (*range(60), *range(60 + lost, 90))]


def test_kills_in_a_batch_of_which_the_source_has_less_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sent records end inside a batch, and the source begins behind that place in the same batch."""
    data, log = tmp_path / "data", tmp_path / "cluster" / "t-0"
    append_batch(data, range(10))
    delete(data, "t", 4)
    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        send_without_marker(data, "t", target, monkeypatch)
        delete(data, "t", 7)
        assert copy_topics(str(data), target, apply=True).records == 0
        assert values(log) == [b"%d" % n for n in range(4, 10)]
        append_batch(data, range(10, 20))
        delete(data, "t", 14)
        send_without_marker(data, "t", target, monkeypatch)
        delete(data, "t", 17)
        assert copy_topics(str(data), target, apply=True).records == 0
        append_batch(data, range(20, 30))
        send_without_marker(data, "t", target, monkeypatch)
        append_batch(data, range(30, 40))
        delete(data, "t", 34)
        send_without_marker(data, "t", target, monkeypatch)
        delete(data, "t", 37)
        assert copy_topics(str(data), target, apply=True).records == 0
    assert values(log) == [b"%d" % n for n in (*range(4, 10), *range(14, 30), *range(34, 40))]


def append_batch(data: Path, numbers: range) -> None:
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        if "t" not in dirs.topics:
            dirs.create_topic("t", 1, {"retention.ms": -1})
        dirs["t", 0].append([(b"k", b"%d" % n, 5_000 + n) for n in numbers])


def test_records_of_others_behind_a_kill_are_not_taken_for_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The source has deleted what may have been sent, so that only the producer shows who sent it."""
    data = tmp_path / "data"
    append(data, "t", range(30))
    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        send_without_marker(data, "t", target, monkeypatch)
        produce(server.bootstrap, 0, b"mine")
        append(data, "t", range(30, 60))
        delete(data, "t", 45)
        with pytest.raises(IllegalState, match="deleted records of t-0 from offset 0 on while they were copied"):
            copy_topics(str(data), target, apply=True)
    assert len(values(tmp_path / "cluster" / "t-0")) == 31


def append(data: Path, topic: str, numbers: range, *, timestamp: int | None = None) -> None:
    """Batches of three records; with a timestamp all batches are alike."""
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        if topic not in dirs.topics:
            dirs.create_topic(topic, 1, {"retention.ms": -1})
        for n in numbers[::3]:
            rows = [(b"k", b"same" if timestamp else b"%d" % m, timestamp or 5_000 + m) for m in range(n, n + 3)]
            dirs[topic, 0].append(rows)


def delete(data: Path, topic: str, offset: int) -> None:
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs[topic, 0].flush()
        dirs[topic, 0].delete_before(offset)


def send_without_marker(data: Path, topic: str, target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def killed(*given: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(PartitionCopy, "_mark", killed)
        with pytest.raises(Killed):
            copy_topics(str(data), target, [topic], apply=True)


def test_a_kill_and_deletes_where_the_last_batch_is_not_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches that are alike, with one time: which of them was sent last is not known, and nothing is written."""
    data = tmp_path / "data"
    append(data, "t", range(27), timestamp=5_000)
    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        send_without_marker(data, "t", target, monkeypatch)
        delete(data, "t", 12)
        with pytest.raises(IllegalState, match="deleted records of t-0 from offset 0 on while they were copied"):
            copy_topics(str(data), target, apply=True)
    assert len(values(tmp_path / "cluster" / "t-0")) == 27


@pytest.mark.parametrize("regrown", [[(0, 9)], [(0, 3), (3, 2), (8, 3)], [(0, 3), (4, 2), (8, 3)]])
def test_a_source_that_was_truncated_to_before_a_gap(tmp_path: Path, regrown: list[tuple[int, int]]) -> None:
    """The copy ends behind a gap, where the source has other records now: they would be missing from the copy."""
    data, copied = tmp_path / "data", tmp_path / "copied"
    rows = [R(b"%d" % n, b"k", timestamp=5_000 + n) for n in range(9)]
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        dirs.create_topic("t", 1, {"retention.ms": -1})
        dirs["t", 0].replicate(batch(rows[:3], base_offset=0, last_delta=5, leader_epoch=0))
    assert copy_topics(str(data), str(copied), apply=True).records == 3
    assert copy_topics(str(data), str(copied), apply=True).records == 0
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        dirs["t", 0].truncate_to(0)
        for base, count in regrown:
            dirs["t", 0].replicate(batch(rows[:count], base_offset=base, leader_epoch=0))
    with pytest.raises(IllegalState, match="t-0 has another batch at offset 0 than the source"):
        copy_topics(str(data), str(copied), apply=True)
    assert [one.offset for one in records_in(copied / "t-0")] == [0, 1, 2]


@pytest.mark.parametrize("numbers", [(0, 0), (0, 1)])
def test_a_store_with_segments_of_two_topics_of_one_name(tmp_path: Path, numbers: tuple[int, int]) -> None:
    """The deletion of the older topic's segments is not finished: its records are no part of the newer one."""
    store, ids = tmp_path / "store", (TIERED_ID, TIERED_ID[::-1])
    for number, topic_id, value in zip(numbers, ids, (b"old", b"new"), strict=True):
        with kafkalog.open(tmp_path / f"{value.decode()}-0", "a") as log:
            log.append([value])
        place = store / f"t-{number}-{topic_id}"
        place.mkdir(parents=True)
        for file in (tmp_path / f"{value.decode()}-0").glob("0*.*"):
            shutil.copy(file, place / f"{file.stem}-{TIERED_ID}{file.suffix}")
    with pytest.raises(IllegalArgument, match="segments of 2 topics that are named t") as caught:
        copy_topics(str(store), str(tmp_path / "copied"), ["t"], apply=True)
    assert all(topic_id in str(caught.value) for topic_id in ids)
    assert not (tmp_path / "copied" / "t-0").exists()
    one = store / f"t-{numbers[1]}-{ids[1]}"
    copy_topics(str(one), str(tmp_path / "copied"), ["t"], apply=True)
    assert [record.value for record in records_in(tmp_path / "copied" / f"t-{numbers[1]}")] == [b"new"]


def test_a_source_that_was_compacted_since(tmp_path: Path) -> None:
    """The copy's last batch has lost records in the source; one with another record there is another log."""
    data, copied = tmp_path / "data", tmp_path / "copied"
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        dirs.create_topic("t", 1, {"cleanup.policy": "compact"})
        dirs["t", 0].append([(b"a", b"1"), (b"b", b"1"), (b"c", b"1"), (b"c", b"2")])
    assert copy_topics(str(data), str(copied), apply=True).records == 4
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        dirs["t", 0].append([(b"a", b"2"), (b"c", b"9")])
        dirs["t", 0].roll()
        dirs["t", 0].append([(b"z", b"2")])
        dirs.clean("t", 0)
    assert [one.offset for one in records_in(data / "t-0")] == [1, 4, 5, 6]
    assert copy_topics(str(data), str(copied), apply=True).records == 3
    assert [one.offset for one in records_in(copied / "t-0")] == [*range(7)]
    other = tmp_path / "other"
    copy_topics(str(data), str(other), apply=True)
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        dirs["t", 0].truncate_to(6)
        dirs["t", 0].append([(b"z", b"3")])
    with pytest.raises(IllegalState, match="another batch at offset 6"):
        copy_topics(str(data), str(other), apply=True)


@pytest.mark.parametrize("answers", [3, 1000])
def test_a_broker_that_waits_for_its_remote_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    """It answers without records, and its last stable offset is not below the end: the copy does not end there."""
    request, left = PeerConnection.request, [answers]

    async def waiting(connection: PeerConnection, api_key: int, tree: Any, **options: Any) -> Any:
        answer = await request(connection, api_key, tree, **options)
        if api_key == LIST_OFFSETS and tree["topics"][0]["partitions"][0]["timestamp"] == -4:
            found = SimpleNamespace(error_code=0, offset=20)
            return SimpleNamespace(topics=[SimpleNamespace(partitions=[found])])
        row = tree["topics"][0]["partitions"][0] if api_key == FETCH else None
        if row is not None and 12 <= row["fetch_offset"] < 20 and left[0]:
            left[0] -= 1
            one = answer.responses[0].partitions[0]
            empty = SimpleNamespace(
                partition_index=0, error_code=0, records=None, last_stable_offset=one.last_stable_offset
            )
            return SimpleNamespace(error_code=0, responses=[SimpleNamespace(topic="t", partitions=[empty])])
        return answer

    monkeypatch.setattr(cluster_source, "_LIMITS", cluster_source._LIMITS._replace(partition_max_bytes=1))
    monkeypatch.setattr(PeerConnection, "request", waiting)
    fill(tmp_path / "source", batches=10)
    with kafka_server(directory=tmp_path / "source", settings=SERVER) as source:
        with nullcontext() if answers < 60 else pytest.raises(PeerMisbehaved, match="no records of t-0 from offset 12"):
            copy_topics(f"kafka://{source.bootstrap}", str(tmp_path / "copied"), apply=True)
    assert values(tmp_path / "copied" / "t-0") == values(tmp_path / "source" / "t-0")[: 30 if answers < 60 else 12]
