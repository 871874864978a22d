"""Copies into a data directory and a tiered store: closed segments get there once, and are read from there."""

import json
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.copy import copy_topics
from kafkalog.copy.tiering import metadata_partition, tier_closed
from kafkalog.errors import IllegalArgument, StorageError
from kafkalog.manager.known_topics import KnownTopics, read_known_topics
from kafkalog.redact import redact
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.tiered.description import read_description
from kafkalog.tiered.metadata_topic import TOPIC, MetadataTopic
from kafkalog.tiered.segment_bytes import TieredPartition
from kafkalog.tiered.segment_metadata import Copies
from kafkalog.util.fileio import OS, FileSystem
from tests import commands
from tests.builder import R, batch, message_v1
from tests.kills import kill
from tests.manager.metadata_files import topic_values, write_metadata
from tests.tiered_store import KeyPair

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'kafkalog[fs]'")
KEYS = KeyPair()


def write(data: Path, count: int = 60) -> None:
    """Append records to both partitions of a topic with small segments, some in an aborted transaction."""
    with kafkalog.open_dirs(data, "a") as dirs:
        if "t" not in dirs.topics:
            dirs.create_topic("t", 2, {"segment.bytes": 1500, "retention.ms": -1})
        for log in dirs.logs("t"):
            for n in range(log.end_offset, log.end_offset + count, 3):
                log.append([(b"k%d" % m, b"value %d " % m + b"." * 20) for m in range(n, n + 3)])


def describe(root: Path, *, is_encrypted: bool, prefix: str = "p/") -> Path:
    KEYS.write(root / "key1.pem")
    keys = {"key1": "key1.pem"} if is_encrypted else {}
    (root / "tiered.json").write_text(json.dumps({"store": f"file://{root}/store", "prefix": prefix, "keys": keys}))
    return root / "tiered.json"


def read(path: Path | str, **given: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    with kafkalog.open(path, **given) as log:
        return [(one.offset, one.key, one.value) for one in log.records()]


def stored(root: Path) -> list[str]:
    return sorted(one.name for one in (root / "store").rglob("*") if one.is_file())


def copies_of(data: Path, partition: int) -> Copies:
    metadata = MetadataTopic(OS, [str(data)])
    topic_id = read_partition_metadata(OS, str(data / f"t-{partition}"))
    try:
        return metadata.copies(TieredPartition("t", partition, topic_id or ""))
    finally:
        metadata.close()


def place_of(root: Path, partition: int) -> Path:
    (path,) = (root / "store" / "p").glob(f"t-*/{partition}")
    return path


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_closed_segments_are_in_the_store(tmp_path: Path, is_encrypted: bool) -> None:
    write(tmp_path / "data")
    tiered = describe(tmp_path, is_encrypted=is_encrypted)
    for _ in range(2):
        assert copy_topics(str(tmp_path / "data"), str(tmp_path / "copied"), to_tiered=str(tiered), apply=True).ok
        for number in range(2):
            local = read(tmp_path / "copied" / f"t-{number}")
            assert local == read(tmp_path / "data" / f"t-{number}")
            last = max(int(one.stem) for one in (tmp_path / "copied" / f"t-{number}").glob("*.log"))
            alone = read(f"file://{place_of(tmp_path, number)}", tiered=tiered)
            assert alone == local[:last] and last >= 40
            logs = list(place_of(tmp_path, number).glob("*.log"))
            assert len(logs) == len(list((tmp_path / "copied" / f"t-{number}").glob("*.log"))) - 1
        write(tmp_path / "data")
    names = stored(tmp_path)
    assert copy_topics(str(tmp_path / "data"), str(tmp_path / "copied"), ["t"], to_tiered=str(tiered), apply=True).ok
    assert set(names) < set(stored(tmp_path)), "what was there stays as it was"


def test_the_local_segments_may_go(tmp_path: Path) -> None:
    """A broker's local retention deletes segments that are in the store: the topic is read whole from both."""
    write(tmp_path / "data")
    tiered = describe(tmp_path, is_encrypted=True)
    copy_topics(str(tmp_path / "data"), str(tmp_path / "copied"), to_tiered=str(tiered), apply=True)
    place = tmp_path / "copied" / "t-0"
    last = max(place.glob("*.log"))
    for one in place.glob("0*.*"):
        if one.stem < last.stem:
            one.unlink()
    assert len(read(place)) < 60
    assert read(place, tiered=tiered) == read(tmp_path / "data" / "t-0")
    assert kafkalog.verify(place, deep=True, tiered=tiered).ok
    assert len(list(copy_back(tmp_path, tiered))) == 60


def copy_back(root: Path, tiered: Path) -> list[tuple[int, bytes | None, bytes | None]]:
    copy_topics(str(root / "copied"), str(root / "back"), ["t"], tiered=str(tiered), apply=True)
    return read(root / "back" / "t-0")


def test_a_killed_copy_leaves_no_objects_behind(tmp_path: Path) -> None:
    (tmp_path / "all").mkdir()
    root, saved = tmp_path / "all", tmp_path / "saved"
    write(root / "data", 30)
    tiered = describe(root, is_encrypted=True)
    copy_topics(str(root / "data"), str(root / "copied"), apply=True)
    shutil.copytree(root, saved)

    def work(fs: FileSystem) -> None:
        assert copy_topics(str(root / "data"), str(root / "copied"), to_tiered=str(tiered), apply=True).ok

    work(OS)
    count = len(stored(root))
    assert count >= 6

    def restore() -> None:
        shutil.rmtree(root)
        shutil.copytree(saved, root)

    restore()

    def check() -> None:
        work(OS)
        assert len(stored(root)) == count
        for number in range(2):
            local = read(root / "copied" / f"t-{number}")
            assert local == read(root / "data" / f"t-{number}") and len(local) == 30
            alone = read(f"file://{place_of(root, number)}", tiered=tiered)
            assert alone == local[: len(alone)] and alone
            copies = copies_of(root / "copied", number)
            assert copies.finished and not copies.unfinished and not copies.deleting
        restore()

    steps = {
        "kafkalog/tools/tiered_events.py": {"append"}, "kafkalog/tiered/segment_writer.py": {"_write", "_remove"},
        "kafkalog/util/object_writes.py": {"_write_locally"},
    }  # fmt: skip
    assert kill(work, check, "steps", 6, 1, steps, 5).kills


def test_what_cannot_be_tiered_is_refused(tmp_path: Path) -> None:
    tiered = describe(tmp_path, is_encrypted=False)
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("c", 1, {"cleanup.policy": "compact"})
    given: dict[str, Any] = {"to_tiered": str(tiered)}
    with pytest.raises(IllegalArgument, match="compacted"):
        copy_topics(str(tmp_path / "data"), str(tmp_path / "copied"), **given)
    with pytest.raises(IllegalArgument, match="closed segments of a data directory"):
        copy_topics(str(tmp_path / "data"), f"backup:{tmp_path}/backups", **given)
    description = json.loads(tiered.read_text()) | {"keys": {"a": "a.pem", "b": "b.pem"}}
    tiered.write_text(json.dumps(description))
    with pytest.raises(IllegalArgument, match="one key pair"):
        copy_topics(str(tmp_path / "data"), str(tmp_path / "copied"), **given)
    assert not (tmp_path / "copied").exists() and not (tmp_path / "store").exists()


@pytest.mark.parametrize("is_encrypted", [False, True])
def test_by_the_commands_and_redacted_there(tmp_path: Path, is_encrypted: bool) -> None:
    write(tmp_path / "data")
    tiered = describe(tmp_path, is_encrypted=is_encrypted)
    given = ("copy", "--from", tmp_path / "data", "--to", tmp_path / "copied", "--to-tiered", tiered)
    commands.ok(*given)
    assert not (tmp_path / "store").exists()
    commands.ok(*given, "--apply")
    alone = f"file://{place_of(tmp_path, 0)}"
    assert read(alone, tiered=tiered)[3][2] == b"value 3 " + b"." * 20
    redact = ("redact", "-d", tmp_path / "copied", "-t", "t", "--key", "k3", "--key", "k50", "--tiered", tiered)
    assert "file://" in commands.ok(*redact).decode()
    assert "none of the records is left" in commands.ok(*redact, "--apply").decode()
    assert [offset for offset, _, value in read(alone, tiered=tiered) if not value][:1] == [3]
    assert [offset for offset, _, value in read(tmp_path / "copied" / "t-0") if not value] == [3, 50]


def test_a_store_that_is_no_directory(tmp_path: Path) -> None:
    """Objects of a store in memory: copied there, redacted there, and read back."""
    write(tmp_path / "data")
    url = f"memory://{tmp_path.name}"
    copy_topics(str(tmp_path / "data"), str(tmp_path / "copied"), to_tiered=url, apply=True)
    with kafkalog.open_dirs(tmp_path / "copied") as dirs:
        place = f"{url}/t-{dirs.topics['t'].topic_id}/1"
    before = read(place)
    assert len(before) >= 40 and before == read(tmp_path / "data" / "t-1")[: len(before)]
    report = redact(tmp_path / "copied", "t", keys=[b"k3"], tiered=url, apply=True)
    assert report.ok and report.left == 0 and report.records == 4  # of two partitions, there and here
    assert read(place) == [(offset, key, b"" if offset == 3 else value) for offset, key, value in before]


@pytest.mark.parametrize(
    ("topic_id", "numbers"),
    [("A" * 22, (6, 30, 31)), ("ka0QhMfFRUGqgR5m2U3PZg", (48, 41, 22)), ("gAAAAAAAAAABAgMEBQYHCA", (18, 9, 35))],
)
def test_events_are_where_brokers_look_for_them(tmp_path: Path, topic_id: str, numbers: tuple[int, ...]) -> None:
    """The numbers were calculated with 64-bit and 32-bit numbers that have signs, as Java's are."""
    for number in range(50):
        (tmp_path / f"{TOPIC}-{number}").mkdir()
    for kind in ("delete", "future", "stray"):  # no partitions of the topic
        (tmp_path / f"{TOPIC}-0.{'0' * 32}-{kind}").mkdir()
    (tmp_path / "t-0").mkdir()
    found = [TieredPartition("t", number, topic_id) for number in (0, 1, 7)]
    known = KnownTopics({}, None)
    assert tuple(metadata_partition(one, known, [str(tmp_path)], OS) for one in found) == numbers
    assert metadata_partition(found[0], known, [str(tmp_path / "t-0")], OS) == 0


def test_the_cluster_knows_how_many_partitions_the_events_have(tmp_path: Path) -> None:
    """A node of a cluster has some of them only."""
    write_metadata(tmp_path, topic_values(TOPIC, {}, count=50))
    (tmp_path / f"{TOPIC}-0").mkdir()
    known = read_known_topics([str(tmp_path)])
    assert metadata_partition(TieredPartition("t", 7, "A" * 22), known, [str(tmp_path)], OS) == 31


BATCHES = [
    (3, 0, "plain"), (3, 0, "plain"), (3, 1, "plain"), (3, 1, "data"), (3, 1, "plain"), (1, 2, "plain"),
    (3, 2, "data"), (3, 3, "plain"), (1, 3, "abort"), (3, 5, "plain"), (3, 5, "plain"), (3, 5, "plain"),
]  # fmt: skip
"""Records, leader epoch and kind of each batch; `data` is in the transaction that `abort` ends."""


def write_batches(data: Path) -> tuple[list[int], list[int]]:
    """Write the batches to a topic of small segments; return the epoch and the time of each offset."""
    epochs: list[int] = []
    times: list[int] = []
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("t", 1, {"segment.bytes": 230, "retention.ms": -1})
        for number, (count, epoch, kind) in enumerate(BATCHES):
            fields = {"base_offset": len(epochs), "leader_epoch": epoch}
            if kind != "plain":
                fields |= {"attributes": 0x10, "producer_id": 7, "producer_epoch": 0, "base_sequence": len(epochs)}
            records = [R(b"%d" % n, b"k", timestamp=9_000 - number + n % 2) for n in range(count)]
            if kind == "abort":
                fields |= {"attributes": 0x30, "base_sequence": -1}
                records = [R(b"\0\0\0\0\0\0", b"\0\0\0\0", timestamp=9_000)]
            dirs["t", 0].replicate(batch(records, **fields))
            epochs += [epoch] * count
            times += [record.timestamp for record in records]
    return epochs, times


def test_segments_are_described_as_they_are(tmp_path: Path) -> None:
    """Epochs that begin at the first, a middle and the last offset of a segment; an aborted transaction over two."""
    epochs, times = write_batches(tmp_path / "data")
    tiered = describe(tmp_path, is_encrypted=False)
    copied, place = tmp_path / "copied", tmp_path / "copied" / "t-0"
    assert copy_topics(str(tmp_path / "data"), str(copied), to_tiered=str(tiered), apply=True).ok
    found = copies_of(copied, 0).finished
    bases = sorted(int(one.stem) for one in place.glob("*.log"))
    assert [(one.start, one.end + 1) for one in found] == list(pairwise(bases))
    starts = [n for n in range(len(epochs)) if n == 0 or epochs[n] != epochs[n - 1]]
    assert set(starts) & set(bases) - {0} and set(starts) & {one.end for one in found}, "as the test means it"
    for one in found:
        inside = [n for n in range(one.start, one.end + 1) if n == one.start or n in starts]
        assert one.epochs == tuple((epochs[n], n) for n in inside)
        assert one.size_bytes == (place / f"{one.start:020}.log").stat().st_size
        assert one.max_timestamp == max(times[one.start : one.end + 1])
        (indexes,) = (path.read_bytes() for path in place_of(tmp_path, 0).glob(f"{one.start:020}-*.indexes"))
        aborted = place / f"{one.start:020}.txnindex"
        assert one.is_txn_index_empty != aborted.exists()
        assert not aborted.exists() or indexes.endswith(aborted.read_bytes())
        known = [f"{epochs[n]} {n}" for n in starts if n <= one.end]
        assert "\n".join(["0", str(len(known)), *known, ""]).encode() in indexes
        assert (place / f"{one.end + 1:020}.snapshot").read_bytes() in indexes
    assert {one.is_txn_index_empty for one in found} == {True, False}
    url = f"file://{place_of(tmp_path, 0)}"
    with kafkalog.open(url, tiered=tiered) as log, kafkalog.open(place) as local:
        expected = [one.offset for one in local.records(isolation="read_committed") if one.offset < bases[-1]]
        assert [one.offset for one in log.records(isolation="read_committed")] == expected
        assert len(expected) < bases[-1] - 6
        known = [(one.epoch, one.start_offset) for one in local.epochs]
        assert [(one.epoch, one.start_offset) for one in log.epochs] == [one for one in known if one[1] < bases[-1]]
        assert len(known) == 5


def drop_local(place: Path) -> int:
    """Delete all segments but the last, as the local retention of a broker does; return the base offset of the last."""
    last = max(place.glob("*.log")).stem
    for one in place.glob("0*.*"):
        if one.stem < last:
            one.unlink()
    return int(last)


def test_records_of_old_formats_have_no_epoch(tmp_path: Path) -> None:
    """The leader epochs of the partition begin behind them."""
    (tmp_path / "data").mkdir()
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("t", 1, {"segment.bytes": 1000, "retention.ms": -1})
        for n in range(40):
            old = message_v1(n, b"value %d" % n + b"." * 20, b"k")
            dirs["t", 0].replicate(old if n < 25 else batch([R(b"%d" % n * 40)], base_offset=n, leader_epoch=7))
    expected = read(tmp_path / "data" / "t-0")
    tiered, copied = describe(tmp_path, is_encrypted=False), tmp_path / "copied"
    assert copy_topics(str(tmp_path / "data"), str(copied), to_tiered=str(tiered), apply=True).ok
    with kafkalog.open(copied / "t-0") as log:
        assert [(one.epoch, one.start_offset) for one in log.epochs] == [(7, 25)]
    last = drop_local(copied / "t-0")
    assert last > 30
    assert read(copied / "t-0", tiered=tiered) == expected and len(expected) == 40
    assert read(f"file://{place_of(tmp_path, 0)}", tiered=tiered) == expected[:last]


def test_a_log_start_in_a_batch_cuts_no_segment_there(tmp_path: Path) -> None:
    """The partition's first epoch begins at the log start then, behind the beginning of the segment."""
    write(tmp_path / "data")
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        log.delete_before(10)
    expected = read(tmp_path / "data" / "t-0")
    assert expected[0][0] == 10
    tiered, copied = describe(tmp_path, is_encrypted=False), tmp_path / "copied"
    assert copy_topics(str(tmp_path / "data"), str(copied), to_tiered=str(tiered), apply=True).ok
    last = drop_local(copied / "t-0")
    assert read(copied / "t-0", tiered=tiered) == expected
    alone = read(f"file://{place_of(tmp_path, 0)}", tiered=tiered)
    assert alone[alone.index(expected[0]) :] == expected[: last - 10] and alone[0][0] < 10


def test_a_store_is_copied_to_topics_without_its_prefix(tmp_path: Path) -> None:
    write(tmp_path / "data")
    tiered = str(describe(tmp_path, is_encrypted=False, prefix="x-"))
    assert copy_topics(str(tmp_path / "data"), str(tmp_path / "copied"), to_tiered=tiered, apply=True).ok
    assert copy_topics(f"file://{tmp_path}/store", str(tmp_path / "back"), tiered=tiered, apply=True).ok
    for number in range(2):
        back = read(tmp_path / "back" / f"t-{number}")
        assert back == read(tmp_path / "data" / f"t-{number}")[: len(back)] and len(back) >= 40


def test_a_partition_without_a_topic_id_is_named(tmp_path: Path) -> None:
    write(tmp_path / "data")
    (tmp_path / "data" / "t-1" / "partition.metadata").unlink()
    tiered = read_description(describe(tmp_path, is_encrypted=False))
    with pytest.raises(StorageError, match="no topic id") as caught:
        tier_closed(str(tmp_path / "data"), ["t"], tiered)
    assert caught.value.path == str(tmp_path / "data" / "t-1")
    with pytest.raises(StorageError, match="no topic id") as caught:
        redact(tmp_path / "data", "t", partitions=[1], keys=[b"k3"], tiered=tmp_path / "tiered.json")
    assert caught.value.path == str(tmp_path / "data" / "t-1") and caught.value.hint
