"""What groups had committed comes along with the topics of a data directory, when that is asked for."""

import json
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.exchange.kafka_dir import EXPORT_FILE
from kafkalog.testing import kafka_server
from tests import commands
from tests.backup.load import until_loaded
from tests.exchange.damaged_groups import spoilt_groups
from tests.server.groups.other_kinds import share_records

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed: pip install kafkalog[test]")
GROUPS = {f"group {n}": n + 1 for n in range(5)}


def consumer(bootstrap: str, group: str) -> Any:
    from confluent_kafka import Consumer

    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})


def read_committed(bootstrap: str, topic: str) -> dict[str, list[int]]:
    from confluent_kafka import TopicPartition

    found = {}
    for group in GROUPS:
        one = consumer(bootstrap, group)
        found[group] = [until_loaded(one, TopicPartition(topic, n)).offset for n in range(2)]
        one.close()
    return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two topics, in each of which five groups have committed."""
    from confluent_kafka import TopicPartition

    where = tmp_path_factory.mktemp("groups") / "data"
    with kafkalog.open_dirs(where, "a") as dirs:
        for topic in ("orders", "others"):
            dirs.create_topic(topic, 2, {})
            for number in range(2):
                dirs[topic, number].append([b"%d" % n for n in range(100)])
    with kafka_server(directory=where, settings={"offsets.topic.num.partitions": "3"}) as server:
        for group, at in GROUPS.items():
            one = consumer(server.bootstrap, group)
            places = [TopicPartition(topic, n, at + 10 * n) for topic in ("orders", "others") for n in range(2)]
            one.commit(offsets=places, asynchronous=False)
            one.close()
    return where


@pytest.mark.parametrize("with_manifest", [True, False])
def test_groups_go_on_where_they_were(data: Path, tmp_path: Path, with_manifest: bool) -> None:
    source = data
    if with_manifest:
        source = tmp_path / "exported"
        commands.ok("export", "--format", "kafka-dir", "-d", data, "-t", "orders", source)
        assert (source / EXPORT_FILE).exists() and not (source / "__consumer_offsets-0").exists()
    line = ("import", "--format", "kafka-dir", source, "-t", "orders", "-d", tmp_path / "new")
    commands.ok(*line, "--group-offsets")
    commands.ok(*line, "--group-offsets", "--resume")
    with kafka_server(directory=tmp_path / "new") as server:
        assert read_committed(server.bootstrap, "orders") == {group: [at, at + 10] for group, at in GROUPS.items()}
        assert set(map(max, read_committed(server.bootstrap, "others").values())) == {-1001}, (
            "only those of what is imported"
        )


def test_the_topic_that_is_there_is_used_and_not_made_unasked(data: Path, tmp_path: Path) -> None:
    line = ("import", "--format", "kafka-dir", data, "-d", tmp_path / "new")
    commands.ok(*line, "-t", "orders")
    assert not list((tmp_path / "new").glob("__consumer_offsets-*"))
    commands.ok(*line, "-t", "__consumer_offsets", "--group-offsets")
    assert len(list((tmp_path / "new").glob("__consumer_offsets-*"))) == 3
    commands.ok(*line, "-t", "others", "--group-offsets")
    assert len(list((tmp_path / "new").glob("__consumer_offsets-*"))) == 3
    with kafka_server(directory=tmp_path / "new") as server:
        assert read_committed(server.bootstrap, "others") == {group: [at, at + 10] for group, at in GROUPS.items()}


def test_names_of_a_brokers_groups_are_left_out(data: Path, tmp_path: Path) -> None:
    taken, *others = GROUPS
    with kafkalog.open_dirs(tmp_path / "new", "a") as dirs:
        dirs.create_topic("__consumer_offsets", 1, {"cleanup.policy": "compact"})
        dirs["__consumer_offsets", 0].append([(*one, 1) for one in share_records(taken, "m")])
    done = commands.kafkalog(
        "import", "--format", "kafka-dir", data, "-t", "orders", "-d", tmp_path / "new", "--group-offsets"
    )
    assert done.returncode == 1 and f"no offsets were committed for {taken!r}".encode() in done.stderr
    with kafka_server(directory=tmp_path / "new") as server:
        found = read_committed(server.bootstrap, "orders")
        assert found == {taken: [-1001, -1001]} | {group: [GROUPS[group], GROUPS[group] + 10] for group in others}


def test_files_of_records_have_none(tmp_path: Path) -> None:
    done = commands.kafkalog("import", tmp_path / "x.jsonl", "-d", tmp_path / "new", "--group-offsets")
    assert done.returncode == 2 and b"--group-offsets needs --format kafka-dir" in done.stderr


@pytest.mark.parametrize("with_manifest", [True, False])
def test_damage_in_the_log_of_the_groups(tmp_path: Path, with_manifest: bool) -> None:
    """Newer offsets may lie behind it: an export notes that it has none, and an import of them writes nothing."""
    source, target = tmp_path / "data", tmp_path / "target"
    spoilt_groups(source)
    if with_manifest:
        said = commands.kafkalog("export", "-d", source, "--format", "kafka-dir", "-t", "orders", tmp_path / "exported")
        assert said.returncode == 0 and b"note: the manifest lacks group offsets: " in said.stderr, said
        source = tmp_path / "exported"
        assert json.loads((source / EXPORT_FILE).read_bytes())["groups"] == {}
    given = ("import", "-d", target, source, "--format", "kafka-dir", "-t", "orders")
    said = commands.kafkalog(*given, "--group-offsets")
    assert said.returncode == 1 and b"__consumer_offsets" in said.stderr and b"Traceback" not in said.stderr, said
    assert not target.exists()
    commands.ok(*given)
    with kafkalog.open(target / "orders-0") as log:
        assert log.end_offset == 3
