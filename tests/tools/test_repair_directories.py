"""`repair` of whole data directories: checkpoints, snapshots, leader epochs, several at once, one by one."""

import errno
import json
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import DirectoryLocked, IllegalArgument
from kafkalog.storage.producer_snapshot import format_snapshot
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import verify
from tests import raw_batches
from tests.builder import message_v1
from tests.faults import FaultFS
from tests.tools.test_repair import MARKER, content, tree
from tests.tools.test_verify_damage import LOG, write_log

POINTS, STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"
MARKS, CLEANED = "replication-offset-checkpoint", "cleaner-offset-checkpoint"
EPOCHS = "leader-epoch-checkpoint"


def data_directory(root: Path, *topics: str) -> Path:
    """Closed well, a partition of 100 records for each topic."""
    for topic in topics:
        write_log(root / f"{topic}-0", raw_batches.batches(0, 20, 5))
    (root / ".kafka_cleanshutdown").write_bytes(MARKER)
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    return root


def test_offsets_above_the_end_of_a_log(tmp_path: Path) -> None:
    """LOAD-13: a log start is dropped, so that all stays readable; the other three are lowered."""
    root = data_directory(tmp_path / "data", "a", "b")
    for name in (POINTS, STARTS, MARKS, CLEANED):
        (root / name).write_text("0\n3\na 0 7\nb 0 500\ngone 0 9\n")
    before = tree(root)
    dry_run = repair(root)
    assert tree(root) == before and not dry_run.ok
    assert {Path(change.path).name for change in dry_run.changes} == {POINTS, STARTS, MARKS, CLEANED}
    assert all("b-0" in change.what and "a-0" not in change.what for change in dry_run.changes)
    assert not verify(root).ok
    report = repair(root, apply=True, backup_dir=tmp_path / "kept")
    assert report.ok and verify(root).ok
    lowered = "0\n3\na 0 7\nb 0 100\ngone 0 9\n"
    assert [(root / name).read_text() for name in (POINTS, MARKS, CLEANED)] == [lowered] * 3
    assert (root / STARTS).read_text() == "0\n2\na 0 7\ngone 0 9\n"
    assert (tmp_path / "kept" / "checkpoints" / POINTS).read_text() == "0\n3\na 0 7\nb 0 500\ngone 0 9\n"
    assert len(json.loads((tmp_path / "kept" / "checkpoints" / "repair.json").read_text())["changes"]) == 4
    assert (root / ".kafka_cleanshutdown").read_bytes() == MARKER
    with kafkalog.open(root / "b-0", "a") as log:
        assert (log.start_offset, log.end_offset) == (0, 100)


@pytest.mark.parametrize(
    ("damage", "kept"),
    [
        ("0\n9\na 0 7\nb 0 8\n", "0\n2\na 0 7\nb 0 8\n"),
        ("0\n2\na 0 7\nb zero 8\n", "0\n1\na 0 7\n"),
        ("0\n9\ra 0 7\rb 0 8\r", "0\n2\na 0 7\nb 0 8\n"),
        ("0\n2\na 0 7\nb 2147483648 8\n", "0\n1\na 0 7\n"),
        ("7\n1\na 0 7\n", "0\n1\na 0 7\n"),
        ("\0\0\0\0", "0\n0\n"),
        ("0\n1\na 0 700\nb 0 -8\n", "0\n1\na 0 100\n"),
    ],
)
def test_a_malformed_checkpoint_keeps_what_can_be_read(tmp_path: Path, damage: str, kept: str) -> None:
    root = data_directory(tmp_path / "data", "a", "b")
    (root / POINTS).write_bytes(damage.encode())
    (change,) = repair(root).changes
    assert "malformed checkpoint, line" in change.what and change.size_after == len(kept)
    assert repair(root, apply=True).ok
    assert (root / POINTS).read_text() == kept
    assert repair(root).ok and verify(root).ok


def test_the_end_after_the_cut_counts(tmp_path: Path) -> None:
    """One run is enough: a torn end is cut, and the checkpoint is lowered to what is left."""
    root = data_directory(tmp_path / "data", "a")
    path = root / "a-0" / LOG
    path.write_bytes(path.read_bytes()[:-7])
    (root / POINTS).write_text("0\n1\na 0 100\n")
    assert [change.kind for change in repair(root).changes] == ["cut", "rebuild"]
    assert repair(root, apply=True).ok
    assert (root / POINTS).read_text() == "0\n1\na 0 95\n" and verify(root).ok


def test_checkpoints_of_a_damaged_log_and_of_single_partitions_stay(tmp_path: Path) -> None:
    """An uncertain end supports no conclusion; a partition alone says nothing of the others."""
    root = data_directory(tmp_path / "data", "a")
    (root / POINTS).write_text("0\n1\na 0 500\n")
    alone = repair(root / "a-0")
    assert not alone.changes and [one.kind for one in alone.left] == ["log-end"]
    data = bytearray((root / "a-0" / LOG).read_bytes())
    data[70] ^= 1
    (root / "a-0" / LOG).write_bytes(data)
    report = repair(root)
    assert not report.changes and [one.kind for one in report.left] == ["crc"]


def test_snapshots_that_are_wrong_go_and_producers_are_read_again(tmp_path: Path) -> None:
    """PSM-19, LOAD-23: the clean shutdown marker is removed with them, so that no producer is forgotten (LOAD-21)."""
    root = tmp_path / "data"
    with kafkalog.open(root / "a-0", "a") as log:
        log.append_bytes(bytearray(raw_batches.batches(0, 4, 5)[0]))
    (snapshot,) = (root / "a-0").glob("*.snapshot")
    snapshot.write_bytes(b"damaged")
    above = root / "a-0" / f"{2:020d}.snapshot"
    above.write_bytes(format_snapshot([(7, 0, 0, 44, 0, 1000, -1, -1)]))
    sizes = [one.stat().st_size for one in (above, snapshot)]
    report = repair(root, apply=True, backup_dir=tmp_path / "kept")
    removed = sorted((one.kind, one.path, one.size_before, one.size_after, one.offset) for one in report.changes)
    assert removed == [("remove", str(above), sizes[0], 0, 2), ("remove", str(snapshot), sizes[1], 0, 5)] and report.ok
    assert (tmp_path / "kept" / "a-0" / snapshot.name).read_bytes() == b"damaged"
    assert not list((root / "a-0").glob("*.snapshot")) and not (root / ".kafka_cleanshutdown").exists()
    assert str(report).splitlines()[0].startswith("removed ")
    with kafkalog.open(root / "a-0", "a") as log:
        assert log.end_offset == 5


def test_snapshots_behind_a_cut_go_with_it(tmp_path: Path) -> None:
    """One repair is enough: nothing that it has done makes another thing wrong."""
    root = tmp_path / "data"
    with kafkalog.open(root / "a-0", "a") as log:
        for part in raw_batches.batches(0, 2, 5):
            log.append_bytes(bytearray(part))
        log.roll()
        for part in raw_batches.batches(10, 2, 5):
            log.append_bytes(bytearray(part))
    last = root / "a-0" / f"{10:020d}.log"
    last.write_bytes(last.read_bytes()[:-1])
    ahead = root / "a-0" / f"{20:020d}.snapshot"
    planned = [(one.kind, one.path, one.size_before, one.size_after, one.offset) for one in repair(root).changes]
    size = last.stat().st_size
    assert ("remove", str(ahead), ahead.stat().st_size, 0, 20) in planned
    assert ("cut", str(last), size, (size + 1) // 2, 15) in planned
    assert repair(root, apply=True, backup_dir=tmp_path / "kept").ok
    assert not repair(root).changes and verify(root).ok
    kept, gone = (f"{offset:020d}.snapshot" for offset in (10, 20))
    assert (root / "a-0" / kept).exists() and (tmp_path / "kept" / "a-0" / gone).exists()
    with kafkalog.open(root / "a-0", "a") as log:
        assert log.end_offset == 15


@pytest.mark.parametrize("damage", ["0\n1\nx y\n", "0\n1\n0 0\n"], ids=["malformed", "late"])
def test_leader_epochs_come_from_the_log(tmp_path: Path, damage: str) -> None:
    """LOG-59: a malformed file keeps a log from opening; one that is late lacks the last epochs."""
    root = tmp_path / "data"
    parts = [raw_batches.batch(n, [b"x"], epoch=epoch) for n, epoch in ((0, 0), (1, 0), (2, 3), (3, 4))]
    write_log(root / "a-0", parts)
    (root / ".kafka_cleanshutdown").write_bytes(MARKER)
    (root / "a-0" / EPOCHS).write_text(damage)
    (change,) = repair(root).changes
    assert change.path.endswith(EPOCHS) and "leader epoch" in change.what
    assert repair(root, apply=True, backup_dir=tmp_path / "kept").ok and verify(root).ok
    assert (root / "a-0" / EPOCHS).read_text() == "0\n3\n0 0\n3 2\n4 3\n"
    assert (tmp_path / "kept" / "a-0" / EPOCHS).read_text() == damage


@pytest.mark.parametrize("written", ["0\n1\nx y\n", "0\n1\n3 0\n"], ids=["malformed", "late"])
def test_epochs_before_a_batch_of_an_old_format_are_left_out(tmp_path: Path, written: str) -> None:
    """LOG-59: as an append does; a batch of v2 without an epoch ends none."""
    root = tmp_path / "data"
    batches = [raw_batches.batch(n, [b"x"], epoch=epoch) for n, epoch in ((0, 3), (2, 4), (3, -1), (4, 6))]
    write_log(root / "a-0", batches)
    (root / "a-0" / LOG).write_bytes(b"".join((batches[0], message_v1(1, b"old"), *batches[1:])))
    (root / ".kafka_cleanshutdown").write_bytes(MARKER)
    (root / "a-0" / EPOCHS).write_text(written)
    assert repair(root, apply=True, backup_dir=tmp_path / "kept").ok and verify(root).ok
    assert (root / "a-0" / EPOCHS).read_text() == "0\n2\n4 2\n6 4\n"
    assert not repair(root).changes


def test_several_directories_are_repaired_in_one_run(tmp_path: Path) -> None:
    """Each with its lock and its part of the backup, also where they have the same name."""
    roots = [data_directory(tmp_path / parent / "data", "a", "b") for parent in ("x", "y")]
    for root in roots:
        (root / "a-0" / LOG).with_suffix(".timeindex").unlink()
    report = repair(roots, apply=True, backup_dir=tmp_path / "kept")
    assert report.ok and len(report.partitions) == 4
    assert [one.path for one in report.partitions if not one.ok] == [str(root / "a-0") for root in roots]
    assert (tmp_path / "kept" / "data" / "a-0" / "repair.json").exists()
    assert (tmp_path / "kept" / "data-1" / "a-0" / "repair.json").exists()
    assert all(verify(root).ok for root in roots)
    with pytest.raises(IllegalArgument, match="inside the data directory"):
        repair(roots, apply=True, backup_dir=roots[1] / "kept")
    with kafkalog.open(roots[0] / "new-0", "a"), pytest.raises(DirectoryLocked):
        repair(roots[0], apply=True)


def test_what_cannot_be_read_is_left_and_the_others_are_repaired(tmp_path: Path) -> None:
    root = data_directory(tmp_path / "data", "a", "b")
    for topic in "ab":
        (root / f"{topic}-0" / LOG).with_suffix(".timeindex").unlink()
    (root / POINTS).write_text("7\n")
    fs = FaultFS()
    fs.fail("listdir", "scandir", path="a-0", code=errno.EIO)
    report = repair(root, apply=True, fs=fs)
    assert [(Path(one.path).name, len(one.changes), len(one.left)) for one in report.partitions] == [
        ("a-0", 0, 1), ("b-0", 1, 0), ("data", 1, 0),
    ]  # fmt: skip
    assert report.left[0].severity == "unreadable" and not report.ok
    assert verify(root / "b-0").ok and not verify(root / "a-0").ok


def test_each_file_is_on_disk_before_the_repair_returns(tmp_path: Path) -> None:
    """Its content, then its name in the directory."""
    path = write_log(tmp_path / "data" / "t-0", raw_batches.batches(0, 40, 5))
    path.with_suffix(".index").write_bytes(b"\1" * 8)
    fs = FaultFS()
    assert repair(tmp_path / "data", apply=True, fs=fs).ok
    calls = [(call.op, call.path) for call in fs.calls if "/data/t-0" in call.path and call.op in ("fsync", "rename")]
    fresh = str(path.with_suffix(".index")) + ".repair"
    assert calls == [("fsync", fresh), ("rename", fresh), ("fsync", str(path.parent))]


def test_every_failure_of_the_disk_leaves_old_or_new(tmp_path: Path) -> None:
    """Each call that changes a file fails once; the next run ends what was begun, and all that went has a backup."""
    for nth in range(1, 200):
        root = data_directory(tmp_path / str(nth) / "data", "a")
        (root / POINTS).write_text("0\n1\na 0 500\n")
        (root / "a-0" / f"{100:020d}.snapshot").write_bytes(b"damaged")
        before = content(root)
        fs = FaultFS()
        rule = fs.fail(nth=nth, times=1, code=errno.EIO)
        try:
            repair(root, apply=True, fs=fs, backup_dir=tmp_path / str(nth) / "kept")
        except OSError:
            pass
        kept = content(tmp_path / str(nth) / "kept") if (tmp_path / str(nth) / "kept").exists() else {}
        for name, data in before.items():
            here = content(root).get(name)
            if here != data and name not in (".kafka_cleanshutdown", ".lock"):
                assert data in kept.values(), name
        assert repair(root, apply=True).ok and verify(root).ok
        if not rule.fired:
            return
    raise AssertionError("it never comes to its end")


def test_a_checkpoint_that_links_to_itself_is_reported(tmp_path: Path) -> None:
    """The system refuses its status, not only its content; the other checkpoints are compared."""
    root = data_directory(tmp_path / "data", "a")
    (root / MARKS).symlink_to(root / MARKS)
    report = repair(root)
    assert not report.ok and MARKS in str(report), str(report)
