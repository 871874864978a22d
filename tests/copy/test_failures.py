"""Sources with damage, targets that are full or have other records, servers that go away: typed, and continued."""

import asyncio
import os
import shutil
from pathlib import Path

import pytest

import kafkalog
import kafkalog.copy.cluster_client
from kafkalog.control import ControlType, marker_batch
from kafkalog.copy import copy_topics
from kafkalog.copy.batches import PlainBatch
from kafkalog.copy.cluster_client import ATTEMPTS, ClusterClient, RetryLater
from kafkalog.copy.cluster_producer import PartitionProducer
from kafkalog.copy.cluster_source import list_offset
from kafkalog.errors import (
    ConfigError,
    CorruptRecord,
    DirectoryLocked,
    IllegalArgument,
    IllegalState,
    InconsistentTopicId,
    KafkalogError,
    PartitionNotFound,
    ReadOnlyLog,
    RecordBatchTooLarge,
    TopicExists,
    Unauthorized,
    UnknownTopicOrPartition,
)
from kafkalog.manager.topics import TopicStore
from kafkalog.server.client.connection import PeerConnection
from kafkalog.server.client.errors import PeerError, PeerUnreachable
from kafkalog.server.client.settings import peer_settings
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.stored import commit_all, committed_offsets
from kafkalog.testing import kafka_server
from kafkalog.types import LATEST_TIMESTAMP, TopicPartition
from tests.builder import R, batch
from tests.copy.topics import SERVER, cluster_on, records_in
from tests.tiny_disk import run_on_tiny_disk

KEEP = {"retention.ms": -1}


def fill(data: Path, batches: int = 20, size: int = 10, *, topic: str = "t", partitions: int = 1) -> None:
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        if topic not in dirs.topics:
            dirs.create_topic(topic, partitions, KEEP)
        for log in dirs.logs(topic):
            for _ in range(batches):
                log.append([(b"k%d" % n, b"%d" % n * size) for n in range(3)])


def spoil(data: Path, position: int) -> None:
    """Change a byte of a record."""
    (segment,) = (data / "t-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[position] ^= 0xFF
    segment.write_bytes(content)


@pytest.mark.parametrize("kind", ["directory", "cluster"])
@pytest.mark.parametrize("served", [False, True])
def test_damage_in_the_source_ends_the_copy_before_it(tmp_path: Path, kind: str, served: bool) -> None:
    """Records before the damage are there whole, none after it; the repaired source is continued."""
    data = tmp_path / "data"
    fill(data)
    shutil.copytree(data, tmp_path / "sound")
    size = (data / "t-0" / f"{0:020d}.log").stat().st_size
    with cluster_on(tmp_path / "cluster") as server, kafka_server(directory=data, settings=SERVER) as source:
        files = tmp_path / "cluster" if kind == "cluster" else tmp_path / "copied"
        target = f"kafka://{server.bootstrap}" if kind == "cluster" else str(files)
        place = f"kafka://{source.bootstrap}" if served else str(data)
        spoil(data, size // 2)
        with pytest.raises(CorruptRecord) as caught:
            copy_topics(place, target, ["t"], apply=True)
        assert caught.value.path is not None and caught.value.offset == 30
        source.stop()
        whole = records_in(tmp_path / "sound" / "t-0")
        if kind == "directory":
            assert records_in(files / "t-0") == whole[:30]
        report = copy_topics(str(tmp_path / "sound"), target, ["t"], apply=True)
        assert report.partitions[0].end == 60
    assert records_in(files / "t-0") == whole


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_transaction_whose_end_may_be_in_the_damage_is_not_left_out_as_an_open_one(
    tmp_path: Path, isolation: str
) -> None:
    data, copied = tmp_path / "data", tmp_path / "copied"
    fill(data, 1)
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        fields = {"attributes": 0x10, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "leader_epoch": 0}
        dirs["t", 0].replicate(batch([R(b"in the transaction")], base_offset=3, **fields))
        dirs["t", 0].replicate(marker_batch(ControlType.COMMIT, 7, 0, 1, timestamp=1000, base_offset=4, leader_epoch=0))
    spoil(data, -10)
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="the transaction of producer 7 from offset 3 on may end") as caught:
            copy_topics(str(data), str(copied), ["t"], isolation=isolation, apply=True)
        assert caught.value.path == str(data / "t-0" / f"{0:020d}.log") and caught.value.offset == 4
        assert [one.offset for one in records_in(copied / "t-0")] == [0, 1, 2]


def test_a_full_disk_is_continued(tmp_path: Path) -> None:
    script = """
import os, kafkalog
from kafkalog.copy import copy_topics
from kafkalog.errors import StorageError
with kafkalog.open_dirs("data", "a") as dirs:
    dirs.create_topic("t", 1, {"retention.ms": -1})
    for number in range(40):
        dirs["t", 0].append([os.urandom(5000)])
with open("filler", "wb") as file:
    file.write(bytes(500 << 10))
try:
    copy_topics("data", "copied", ["t"], apply=True)
    raise SystemExit("it was not full")
except StorageError as error:
    assert error.errno == 28, error
os.unlink("filler")
report = copy_topics("data", "copied", ["t"], apply=True)
with kafkalog.open("data/t-0") as one, kafkalog.open("copied/t-0") as other:
    assert [bytes(x) for x in one.batches()] == [bytes(x) for x in other.batches()], report
assert report.partitions[0].end == 40, report
"""
    done = run_on_tiny_disk(script)
    assert done.returncode == 0, done.stderr


def test_a_target_cluster_that_goes_away_is_continued(tmp_path: Path) -> None:
    """The broker dies in the middle of the records; the copy raises, and continues once it is back."""
    data = tmp_path / "data"
    fill(data, batches=300, size=200)
    with cluster_on(tmp_path / "cluster") as server:
        sent = 0

        def progress(size: int) -> None:
            nonlocal sent
            sent += 1
            if sent == 100:
                server.kill()

        target = f"kafka://{server.bootstrap}"
        settings = {"delivery.timeout.ms": "300", "socket.connection.setup.timeout.ms": "500"}
        with pytest.raises(PeerError):
            copy_topics(str(data), target, apply=True, progress=progress, settings=settings)
        server.start()
        report = copy_topics(str(data), target, apply=True)
        assert 0 < report.records < 900 and report.partitions[0].end == 900
    assert records_in(tmp_path / "cluster" / "t-0") == records_in(data / "t-0")


def test_a_source_that_goes_away_is_continued(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, batches=2000, size=3000)
    settings = {"delivery.timeout.ms": "300", "socket.connection.setup.timeout.ms": "500"}
    with kafka_server(directory=data, settings=SERVER) as server:
        source, copied = f"kafka://{server.bootstrap}", tmp_path / "copied"

        def progress(size: int) -> None:
            if server._process is not None:
                server.kill()

        with pytest.raises(PeerError):
            copy_topics(source, str(copied), apply=True, progress=progress, settings=settings)
        with kafkalog.open(copied / "t-0") as log:
            before = log.end_offset
        assert 0 < before < 6000
        server.start()
        report = copy_topics(source, str(copied), apply=True)
        assert report.records == 6000 - before
    assert records_in(copied / "t-0") == records_in(data / "t-0")


def test_a_topic_with_other_records_in_a_cluster(tmp_path: Path) -> None:
    """It is refused, unless records are appended behind them; groups are at the same records afterwards."""
    data = tmp_path / "data"
    fill(data)
    commit_all(str(data), {"readers": {"t": {0: 7}}})
    with kafka_server(directory=tmp_path / "cluster", settings=SERVER, topics=["t"]) as server:
        target = f"kafka://{server.bootstrap}"
        with kafkalog.open_dirs(tmp_path / "other", "a") as dirs:
            dirs.create_topic("t", 1, KEEP)
            dirs["t", 0].append([b"one", b"two"])
        copy_topics(str(tmp_path / "other"), target, ["t"], apply=True)
        with pytest.raises(TopicExists, match="copy of another topic"):
            copy_topics(str(data), target, ["t"], apply=True)
        for expected in (60, 0):
            report = copy_topics(str(data), target, ["t"], offsets="new", apply=True)
            assert report.records == expected and report.partitions[0].first == 2 and report.partitions[0].end == 62
        fill(data, batches=1)
        assert copy_topics(str(data), target, ["t"], offsets="new", apply=True).records == 3
    found = records_in(tmp_path / "cluster" / "t-0")
    assert [one.value for one in found[:2]] == [b"one", b"two"]
    assert [one[1:] for one in found[2:]] == [one[1:] for one in records_in(data / "t-0")]
    assert committed_offsets([str(tmp_path / "cluster")])["readers"]["t"][0] == 9


def test_a_copy_whose_marker_is_gone(tmp_path: Path) -> None:
    """Offsets of groups expire: the records of the copy are compared instead, and the rest is copied."""
    from kafkalog.copy.marker import GROUP

    data = tmp_path / "data"
    fill(data)
    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        copy_topics(str(data), target, apply=True)
        fill(data, batches=5)
        delete_group(server.bootstrap, GROUP)
        assert copy_topics(str(data), target, apply=True).records == 15
        shutil.rmtree(data)
        fill(data, batches=40, size=11)
        delete_group(server.bootstrap, GROUP)
        with pytest.raises(TopicExists, match="not the source's"):
            copy_topics(str(data), target, apply=True)


def delete_group(bootstrap: str, group: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_consumer_groups([group])[group].result(60)


def test_others_that_write_to_the_target(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    data = tmp_path / "data"
    fill(data, batches=100)
    with kafka_server(directory=tmp_path / "cluster", settings=SERVER, topics=["t"]) as server:
        producer, sent = Producer({"bootstrap.servers": server.bootstrap}), 0

        def progress(size: int) -> None:
            nonlocal sent
            sent += 1
            if sent == 30:
                producer.produce("t", b"mine")
                assert producer.flush(60) == 0

        with pytest.raises(IllegalState, match="other producers write to the topic"):
            copy_topics(str(data), f"kafka://{server.bootstrap}", apply=True, progress=progress)


def test_a_directory_with_another_log(tmp_path: Path) -> None:
    data, other, copied = tmp_path / "data", tmp_path / "other", tmp_path / "copied"
    fill(data)
    fill(other)
    copy_topics(str(data), str(copied), apply=True)
    with pytest.raises(InconsistentTopicId, match="topic t has id"):
        copy_topics(str(other), str(copied), apply=True)
    for place in (other, copied):  # without ids the last batches are compared
        (place / "t-0" / "partition.metadata").unlink()
        (place / "kafkalog.topics.json").unlink()
    with kafkalog.open(other / "t-0", "a") as log:
        log.truncate_to(57)
        log.append([b"another"] * 3)
    with pytest.raises(IllegalState, match="another batch at offset 57"):
        copy_topics(str(other), str(copied), apply=True)
    with kafkalog.open(other / "t-0", "a") as log:
        log.truncate_to(30)
    with pytest.raises(IllegalState, match="ends at offset 60, and in the source at 30"):
        copy_topics(str(other), str(copied), apply=True)


def test_records_that_the_source_deleted_before_they_were_copied(tmp_path: Path) -> None:
    data, copied = tmp_path / "data", tmp_path / "copied"
    fill(data)
    copy_topics(str(data), str(copied), apply=True)
    fill(data)
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["t", 0].flush()
        dirs["t", 0].delete_before(90)
    with cluster_on(tmp_path / "cluster") as server:
        report = copy_topics(str(data), str(copied), apply=True)
        assert [row.what for row in report.not_kept] == ["records of offsets 60 to 90"]
        copy_topics(str(data), f"kafka://{server.bootstrap}", apply=True)
    assert [one.offset for one in records_in(copied / "t-0")] == [*range(60), *range(90, 120)]
    assert [one.offset for one in records_in(tmp_path / "cluster" / "t-0")] == list(range(30))


def test_groups_never_go_back_and_active_ones_stay(tmp_path: Path) -> None:
    from confluent_kafka import Consumer

    data = tmp_path / "data"
    fill(data)
    commit_all(str(data), {"behind": {"t": {0: 9}}, "ahead": {"t": {0: 9}}, "active": {"t": {0: 9}}})
    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        copy_topics(str(data), target, groups=["ahead"], apply=True)
        commit_all(str(data), {"ahead": {"t": {0: 5}}, "behind": {"t": {0: 12}}})
        consumer = Consumer({
            "bootstrap.servers": server.bootstrap, "group.id": "active", "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        })  # fmt: skip
        consumer.subscribe(["t"])
        assert consumer.poll(60) is not None
        report = copy_topics(str(data), target, apply=True)
        consumer.close()
        assert not report.ok and report.groups_left == ("active",) and report.groups == 2
        assert report.not_kept[-1].why == "it has active members in the target"
        assert copy_topics(str(data), target, groups=[], apply=True).groups == 0
    offsets = committed_offsets([str(tmp_path / "cluster")])
    assert offsets["ahead"]["t"][0] == 9 and offsets["behind"]["t"][0] == 12 and "active" not in offsets


def test_groups_in_a_part_that_earlier_runs_copied(tmp_path: Path) -> None:
    """Offsets moved there: a group that lags behind is translated by reading that part again."""
    data = tmp_path / "data"
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("t", 1, KEEP)
        for base in (0, 10, 20):
            dirs["t", 0].replicate(batch([R(b"%d" % n) for n in range(3)], base_offset=base, leader_epoch=0))
    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        copy_topics(str(data), target, apply=True)
        commit_all(str(data), {"lagging": {"t": {0: 11}}})
        with kafkalog.open_dirs(data, "a") as dirs:
            dirs["t", 0].append([b"more"])
        report = copy_topics(str(data), target, apply=True)
        assert report.records == 1 and report.groups == 1
        with kafkalog.open_dirs(data, "a") as dirs:
            dirs.alter_topic("t", {"cleanup.policy": "compact"})
        commit_all(str(data), {"late": {"t": {0: 21}}})
        report = copy_topics(str(data), target, apply=True)
        assert report.groups_left == ("late",) and report.not_kept[-1].what == "offset 21 of t-0"
        assert ("group lagging", "offset 11 of t-0") in [row[:2] for row in report.not_kept]  # it stays where it is
    assert committed_offsets([str(tmp_path / "cluster")])["lagging"]["t"][0] == 4


def test_logins_and_rights(tmp_path: Path) -> None:
    """Client settings are for one side by their prefix; what the user may not do is Unauthorized, with nothing made."""
    data = tmp_path / "data"
    fill(data)
    settings = {
        **SERVER, "listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:admin", "security.inter.broker.protocol": "SASL_PLAINTEXT",
    }  # fmt: skip
    users = {"admin": "secret", "guest": "visitor"}

    def login(side: str, name: str) -> dict[str, str]:
        module = "org.apache.kafka.common.security.scram.ScramLoginModule"
        return {
            f"{side}.security.protocol": "SASL_PLAINTEXT", f"{side}.sasl.mechanism": "SCRAM-SHA-256",
            f"{side}.sasl.jaas.config": f'{module} required username="{name}" password="{users[name]}";',
        }  # fmt: skip

    with kafka_server(directory=tmp_path / "cluster", settings=settings, users=users) as server:
        target = f"kafka://{server.bootstrap}"
        with pytest.raises(Unauthorized):
            copy_topics(str(data), target, settings=login("target", "guest"), apply=True)
        assert not list((tmp_path / "cluster").glob("t-*"))
        report = copy_topics(str(data), target, settings=login("target", "admin"), apply=True)
        assert report.records == 60
        back = tmp_path / "back"
        assert copy_topics(target, str(back), settings=login("source", "admin"), apply=True).records == 60
        with pytest.raises(KafkalogError):
            copy_topics(target, str(tmp_path / "no"), ["t"], settings=login("source", "guest"), apply=True)
        assert not (tmp_path / "no").exists()


def test_requests_are_repeated_until_the_cluster_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker's failover takes longer than a few attempts: `delivery.timeout.ms` counts, and ends with PeerError."""
    monkeypatch.setattr(kafkalog.copy.cluster_client, "_MAX_PAUSE_MS", 0)
    now = [0.0]

    class Loop(asyncio.SelectorEventLoop):
        def time(self) -> float:
            return super().time() + now[0]

    async def request(client: ClusterClient, fails_s: float) -> str:
        begun = asyncio.get_running_loop().time()

        async def once() -> str:
            now[0] += 10
            if asyncio.get_running_loop().time() - begun < fails_s:
                raise PeerUnreachable("it fails over")
            return "done"

        return await client.retried(once)

    client = ClusterClient("kafka://b:1", [("b", 1)], peer_settings({}))
    with asyncio.Runner(loop_factory=Loop) as runner:
        with pytest.raises(PeerUnreachable):
            runner.run(request(client, 100))  # it was never there
        client._was_reached = True
        assert runner.run(request(client, 100)) == "done"
        with pytest.raises(PeerUnreachable):
            runner.run(request(client, 200))
        patient = ClusterClient("kafka://b:1", [("b", 1)], peer_settings({"delivery.timeout.ms": "250000"}))
        patient._was_reached = True
        assert runner.run(request(patient, 200)) == "done"
        stopped = ClusterClient("kafka://b:1", [("b", 1)], peer_settings({}), lambda: True)
        with pytest.raises(PeerUnreachable):
            runner.run(request(stopped, 11))


def test_the_first_batch_is_refused_for_a_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that does not know the producer would take the next batch in its place."""
    data, refused = tmp_path / "data", list[PlainBatch]()
    fill(data)
    request = PartitionProducer._request

    async def refusing(sender: PartitionProducer, connection: PeerConnection, batch: PlainBatch, at: int) -> None:
        if not refused:
            refused.append(batch)
            raise RetryLater(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the broker does not lead the partition yet")
        await request(sender, connection, batch, at)

    monkeypatch.setattr(PartitionProducer, "_request", refusing)
    with cluster_on(tmp_path / "cluster") as server:
        assert copy_topics(str(data), f"kafka://{server.bootstrap}", ["t"], apply=True).records == 60
    assert records_in(tmp_path / "cluster" / "t-0") == records_in(data / "t-0")


def test_a_cluster_that_does_not_answer_is_tried_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader is looked up within an attempt: attempts are not multiplied, and a lost cluster is reported soon."""
    tried = 0

    async def connect(host: str, port: int, settings: object) -> PeerConnection:
        nonlocal tried
        tried += 1
        raise PeerUnreachable("no peer is there")

    monkeypatch.setattr(kafkalog.copy.cluster_client, "connect", connect)
    monkeypatch.setattr(kafkalog.copy.cluster_client, "_MAX_PAUSE_MS", 0)
    client = ClusterClient("kafka://b:1", [("b", 1)], peer_settings({}))
    with pytest.raises(PeerUnreachable):
        asyncio.run(list_offset(client, TopicPartition("t", 0), LATEST_TIMESTAMP, 0))
    assert tried == ATTEMPTS


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many attempts as ever, soon after one another."""
    monkeypatch.setattr(kafkalog.copy.cluster_client, "_MAX_PAUSE_MS", 100)


@pytest.mark.usefixtures("short_pauses")
def test_places_that_are_none(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data)
    here = str(data)
    cases: list[tuple[object, str, type[Exception], str]] = [
        (here, "kafka://nobody", IllegalArgument, "is not HOST:PORT"),
        (here, "kafka://127.0.0.1:1", PeerUnreachable, "no connection"),
        (str(tmp_path / "missing"), str(tmp_path / "c"), PartitionNotFound, "does not exist"),
        (here, here, IllegalArgument, "overlap"),
        (here, str(data / "inner"), IllegalArgument, "overlap"),
        (here, "s3://bucket/data", ReadOnlyLog, "only for reading"),
        (["kafka://a:1", here], str(tmp_path / "c"), IllegalArgument, "give one cluster"),
    ]
    for source, target, kind, message in cases:
        with pytest.raises(kind, match=message):
            copy_topics(source, target, apply=True)  # type: ignore[arg-type]
    with pytest.raises(UnknownTopicOrPartition, match="there is no topic u"):
        copy_topics(here, str(tmp_path / "c"), ["u"])
    with pytest.raises(IllegalArgument, match="group 'none' has no offsets"):
        copy_topics(here, str(tmp_path / "c"), groups=["none"])
    with kafkalog.open_dirs(tmp_path / "locked", "a"), pytest.raises(DirectoryLocked):
        copy_topics(here, str(tmp_path / "locked"), apply=True)
    assert not os.path.exists(tmp_path / "c")


def test_clusters_that_refuse_a_setting_or_are_the_same(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data)
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.alter_topic("t", {"segment.bytes": 1 << 14})
    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        with pytest.raises(ConfigError, match="segment.bytes") as caught:
            copy_topics(str(data), target)
        assert "create the topic there with other settings" in str(caught.value)
        with kafkalog.open_dirs(data, "a") as dirs:
            dirs.alter_topic("t", {"segment.bytes": 1 << 20})
        copy_topics(str(data), target, apply=True)
        with pytest.raises(IllegalArgument, match="same cluster"):
            copy_topics(target, target)


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
def test_a_batch_that_the_target_refuses_is_named(tmp_path: Path, isolation: str) -> None:
    """A batch from before segment.bytes was lowered: the error has its place in the source, and what is there stays."""
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("t", 1, KEEP)
        dirs["t", 0].append([b"a"])
        dirs["t", 0].append([os.urandom(100_000)])
    TopicStore(str(tmp_path / "data")).alter("t", {**KEEP, "segment.bytes": 50_000})
    with pytest.raises(RecordBatchTooLarge) as caught:
        copy_topics(str(tmp_path / "data"), str(tmp_path / "copied"), ["t"], isolation=isolation, apply=True)
    error = caught.value
    assert error.path == str(tmp_path / "data" / "t-0" / f"{0:020d}.log")
    assert (error.offset, error.position) == (1, 69) and "segment.bytes" in str(error.hint)
    assert len(records_in(tmp_path / "copied" / "t-0")) == 1
