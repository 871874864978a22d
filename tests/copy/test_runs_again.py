"""Later runs: after gaps at the end, without a marker, without settings, after damage to groups, after a Ctrl-C."""

import os
import signal
from pathlib import Path

import pytest

import kafkalog
from kafkalog.copy import copy_topics
from kafkalog.errors import CorruptRecord, IllegalArgument, IllegalState, TopicExists
from kafkalog.server.groups.stored import commit_all, committed_offsets
from kafkalog.testing import kafka_server
from tests import commands
from tests.builder import R, batch
from tests.copy.topics import SERVER, cluster_on, records_in

KEEP = {"retention.ms": -1}
TRANSACTIONAL, CONTROL = 0x10, 0x20


def append(data: Path, *batches: bytes, topic: str = "t") -> None:
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        if topic not in dirs.topics:
            dirs.create_topic(topic, 1, KEEP)
        for one in batches:
            dirs[topic, 0].replicate(one)


def rows(base: int, count: int, timestamp: int = 5_000, **fields: int) -> bytes:
    records = [R(b"the same", b"k%d" % n, timestamp=timestamp) for n in range(count)]
    return batch(records, base_offset=base, leader_epoch=0, **fields)


def commit_marker(base: int) -> bytes:
    """The end of a transaction."""
    record = R(b"\0\0\0\0\0\0", b"\0\0\0\1")
    kind = {"attributes": TRANSACTIONAL | CONTROL, "producer_id": 7, "producer_epoch": 0}
    return batch([record], base_offset=base, leader_epoch=0, **kind)


def delete(data: Path, before: int) -> None:
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["t", 0].flush()
        dirs["t", 0].delete_before(before)


DIES_AT_APPEND = """
import os, sys
from kafkalog.copy import copy_topics

def die(frame, event, _):
    if (event, frame.f_code.co_name) == (sys.argv[3], "append_as_follower"):
        os._exit(9)

sys.setprofile(die)
copy_topics(sys.argv[1], sys.argv[2], apply=True)
"""
"""A copy that ends as by a kill before or after its first append."""


def test_records_behind_a_marker_that_was_the_last_one(tmp_path: Path) -> None:
    """The first run keeps offsets, the second one cannot: groups follow the records, and `keep` is refused."""
    data = tmp_path / "data"
    append(data, rows(0, 3, attributes=TRANSACTIONAL, producer_id=7, producer_epoch=0, base_sequence=0))
    append(data, commit_marker(3))
    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        assert copy_topics(str(data), target, apply=True).partitions[0].offsets == "kept"
        append(data, rows(4, 4))
        commit_all(str(data), {"readers": {"t": {0: 6}}})
        with pytest.raises(IllegalArgument, match="cannot be kept"):
            copy_topics(str(data), target, offsets="keep", apply=True)
        report = copy_topics(str(data), target, apply=True)
        assert report.partitions[0].offsets == "new" and report.partitions[0].end == 7
    assert committed_offsets([str(tmp_path / "cluster")])["readers"]["t"][0] == 5


def test_a_target_without_a_marker_that_has_the_same_values_at_other_times(tmp_path: Path) -> None:
    """Only the last batch is compared, with its time; if the target deleted it, nothing shows what is there."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    from tests.copy.test_failures import delete_group

    data, other = tmp_path / "data", tmp_path / "other"
    append(data, rows(0, 3), rows(3, 3))
    append(other, rows(0, 3), rows(3, 3, timestamp=6_000), rows(6, 3))
    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        copy_topics(str(data), target, apply=True)
        delete_group(server.bootstrap, "kafkalog-copy")
        with pytest.raises(TopicExists, match="not the source's"):
            copy_topics(str(other), target, apply=True)
        assert copy_topics(str(data), target, apply=True).records == 0
        delete_group(server.bootstrap, "kafkalog-copy")
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        for future in admin.delete_records([TopicPartition("t", 0, 6)]).values():
            future.result(60)
        with pytest.raises(IllegalState, match="no record before its end"):
            copy_topics(str(data), target, apply=True)


def test_a_marker_that_expired_after_the_source_deleted_or_compacted_records(tmp_path: Path) -> None:
    """The last batch of the target is found again in the source: at its offsets, or by its records and their time."""
    from tests.copy.test_failures import delete_group

    data, gaps = tmp_path / "data", tmp_path / "gaps"
    append(data, rows(0, 3), rows(3, 3, timestamp=6_000))
    append(gaps, *(rows(5 * n, 3, timestamp=5_000 + n) for n in range(4)), topic="g")
    commit_all(str(gaps), {"readers": {"g": {0: 16}}})
    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        copy_topics(str(data), target, apply=True)
        assert copy_topics(str(gaps), target, apply=True).records == 12
        delete_group(server.bootstrap, "kafkalog-copy")
        append(data, rows(6, 2))
        append(gaps, rows(20, 2), topic="g")
        for place, name, start in ((data, "t", 3), (gaps, "g", 5)):
            with kafkalog.open_dirs(place, "a") as dirs:
                dirs[name, 0].flush()
                dirs[name, 0].delete_before(start)
        commit_all(str(gaps), {"readers": {"g": {0: 20}}})
        kept, moved = (copy_topics(str(place), target, apply=True) for place in (data, gaps))
        assert (kept.records, kept.partitions[0].offsets, kept.partitions[0].end) == (2, "kept", 8)
        assert (moved.records, moved.partitions[0].offsets, moved.partitions[0].end) == (2, "new", 14)
        delete_group(server.bootstrap, "kafkalog-copy")
        append(gaps, rows(25, 1), rows(30, 1), rows(35, 1), topic="g")
        assert copy_topics(str(gaps), target, apply=True).records == 3
        delete_group(server.bootstrap, "kafkalog-copy")
        with pytest.raises(TopicExists, match="not the source's"):  # three batches look like the last one
            copy_topics(str(gaps), target, apply=True)
        with pytest.raises(TopicExists, match="not the source's"):
            copy_topics(str(gaps), target, apply=True)
    assert committed_offsets([str(tmp_path / "cluster")])["readers"]["g"][0] == 12
    assert [one.offset for one in records_in(tmp_path / "cluster" / "g-0")] == list(range(17))


def test_an_expired_marker_of_records_that_were_appended_behind_others(tmp_path: Path) -> None:
    from tests.copy.test_failures import delete_group

    data = tmp_path / "data"
    append(data, rows(0, 3), rows(3, 3, timestamp=6_000))
    with kafka_server(directory=tmp_path / "cluster", settings=SERVER, topics=["t"]) as server:
        target = f"kafka://{server.bootstrap}"
        append(tmp_path / "other", rows(0, 1))
        copy_topics(str(tmp_path / "other"), target, apply=True)
        assert copy_topics(str(data), target, offsets="new", apply=True).records == 6
        delete_group(server.bootstrap, "kafkalog-copy")
        append(data, rows(6, 2, timestamp=7_000))
        assert copy_topics(str(data), target, offsets="new", apply=True).records == 2
    assert len(records_in(tmp_path / "cluster" / "t-0")) == 9


def test_groups_of_a_compacted_topic_whose_settings_are_unknown(tmp_path: Path) -> None:
    """A broker's directory without its metadata does not show that the topic is not compacted; the table does."""
    data = tmp_path / "data"
    append(data, rows(0, 2), *(rows(base, 1) for base in range(5, 10)))
    commit_all(str(data), {"ahead": {"t": {0: 10}}})
    (data / "kafkalog.topics.json").unlink()
    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        report = copy_topics(str(data), target, ["t"], groups=["ahead"], apply=True)
        assert ("t", "settings") in [row[:2] for row in report.not_kept]
        compacted = tmp_path / "compacted"
        append(compacted, rows(0, 2), rows(5, 1), rows(8, 1), rows(9, 1))
        commit_all(str(compacted), {"late": {"t": {0: 5}}})
        (compacted / "kafkalog.topics.json").unlink()
        metadata = (data / "t-0" / "partition.metadata").read_bytes()
        (compacted / "t-0" / "partition.metadata").write_bytes(metadata)
        report = copy_topics(str(compacted), target, ["t"], apply=True)
        assert report.groups_left == ("late",)
    assert "late" not in committed_offsets([str(tmp_path / "cluster")])


def test_damage_in_the_log_of_the_groups(tmp_path: Path) -> None:
    """Their offsets would be missing or old without a word: an error, before anything is written."""
    data, copied = tmp_path / "data", tmp_path / "copied"
    append(data, rows(0, 3))
    commit_all(str(data), {"readers": {"t": {0: 2}}})
    (segment,) = (one for one in data.glob("__consumer_offsets-*/*.log") if one.stat().st_size)
    content = bytearray(segment.read_bytes())
    content[-10] ^= 0xFF
    segment.write_bytes(content)
    for apply in (False, True):
        with pytest.raises(CorruptRecord, match="without their offsets") as caught:
            copy_topics(str(data), str(copied), apply=apply)
        assert caught.value.path == str(segment) and not copied.exists()
    assert copy_topics(str(data), str(copied), groups=[], apply=True).records == 3


def test_an_interrupt_ends_a_copy_of_files(tmp_path: Path) -> None:
    """Nothing in it waits for anything, so the event loop has to get a turn after each chunk."""
    data, copied, calls = tmp_path / "data", tmp_path / "copied", 0
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("t", 1, KEEP)
        for _ in range(60):
            dirs["t", 0].append([bytes(500_000)])

    def progress(size: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        copy_topics(str(data), str(copied), apply=True, progress=progress)
    assert calls < 50
    assert copy_topics(str(data), str(copied), apply=True).partitions[0].end == 60
    assert records_in(copied / "t-0") == records_in(data / "t-0")


def test_records_that_the_source_deleted_behind_a_copy_that_is_empty_by_now(tmp_path: Path) -> None:
    """The copy's own retention has deleted all that was copied: the gap is reported all the same."""
    data, copied = tmp_path / "data", tmp_path / "copied"
    append(data, rows(0, 3))
    copy_topics(str(data), str(copied), apply=True)
    append(data, rows(3, 3), rows(6, 3))
    for place, start in ((copied, 3), (data, 6)):
        with kafkalog.open_dirs(place, "a", log_cleaner_enable=False) as dirs:
            dirs["t", 0].flush()
            dirs["t", 0].delete_before(start)
    report = copy_topics(str(data), str(copied), apply=True)
    assert [row.what for row in report.not_kept] == ["records of offsets 3 to 6"]
    with kafkalog.open(copied / "t-0") as log:
        assert (log.start_offset, log.end_offset) == (6, 9)


def test_committed_records_behind_another_last_batch(tmp_path: Path) -> None:
    """The copy has the batches without producers; a later run goes on, also with all records, but in the same log."""
    data, copied = tmp_path / "data", tmp_path / "copied"
    producer = {"attributes": TRANSACTIONAL, "producer_id": 7, "producer_epoch": 0}
    append(data, rows(0, 3, base_sequence=0, **producer), commit_marker(3))
    copy_topics(str(data), str(copied), isolation="read_committed", apply=True)
    append(data, rows(4, 2, base_sequence=3, **producer), commit_marker(6))
    assert copy_topics(str(data), str(copied), isolation="read_committed", apply=True).records == 2
    append(data, rows(7, 1))
    assert copy_topics(str(data), str(copied), isolation="read_committed", apply=True).records == 1
    assert copy_topics(str(data), str(copied), apply=True).records == 0
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        dirs["t", 0].truncate_to(7)
        dirs["t", 0].replicate(rows(7, 2))
    with pytest.raises(IllegalState, match="another batch at offset 7"):
        copy_topics(str(data), str(copied), isolation="read_committed", apply=True)
    assert [one.offset for one in records_in(copied / "t-0")] == [0, 1, 2, 4, 5, 7]


@pytest.mark.parametrize("event", ["none", "call", "return"])
def test_records_stay_in_a_copy_whose_source_deleted_a_part_of_their_batch(tmp_path: Path, event: str) -> None:
    """A first copy begins where the source does, inside of a batch, also after a kill; a later one takes nothing."""
    data, copied = tmp_path / "data", tmp_path / "copied"
    append(data, rows(0, 8), rows(8, 2))
    delete(data, 2)
    if event != "none":
        program = tmp_path / "dies.py"
        program.write_text(DIES_AT_APPEND)
        done = commands.run([str(program), str(data), str(copied), event], timeout_s=120)
        assert done.returncode == 9, done.stderr
    for start in (2, 5):
        delete(data, start)
        copy_topics(str(data), str(copied), apply=True)
        with kafkalog.open(copied / "t-0") as log:
            assert [one.offset for one in log] == list(range(2, 10))
