"""`repair`: a dry run touches nothing, an applied one makes what recovery makes, and no sound batch is ever dropped."""

import errno
import hashlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import DirectoryLocked, IllegalArgument, KafkalogError, NotAPartition, PartitionNotFound
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import verify
from tests import golden_cases, raw_batches
from tests.faults import WRITING_CALLS, FaultFS, each_failure
from tests.recovery_cases import damaged_copy, log_sizes
from tests.tools.test_verify_damage import ABORT, LOG, txn_batch, write_log

MARKER = b'{"version":0,"brokerEpoch":41}'


def tree(root: Path) -> list[tuple[str, int, int, bytes]]:
    """Names, times, inodes and content of all that lies below a directory, and of itself."""
    return sorted(
        (str(path), path.stat().st_mtime_ns, path.stat().st_ino, path.read_bytes() if path.is_file() else b"")
        for path in (root, *root.rglob("*"))
    )


def content(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A data directory that was closed well, with a wrong index, a torn end and damage in the middle."""
    root = tmp_path / "data"
    parts = raw_batches.batches(0, 40, 5)
    index = write_log(root / "index-0", parts).with_suffix(".index")
    index.write_bytes(bytes([*index.read_bytes()[:4], 0, 0, 0, 9, *index.read_bytes()[8:]]))
    torn = write_log(root / "torn-0", parts)
    torn.write_bytes(torn.read_bytes()[:-7])
    middle = write_log(root / "middle-0", parts)
    bad = bytearray(middle.read_bytes())
    bad[len(parts[0]) + 70] ^= 1
    middle.write_bytes(bad)
    write_log(root / "sound-0", parts)
    (root / ".kafka_cleanshutdown").write_bytes(MARKER)
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=x\n")
    return root


def test_a_dry_run_changes_no_byte_no_time_and_makes_no_file(directory: Path, tmp_path: Path) -> None:
    before = tree(tmp_path)
    report = repair(directory)
    assert tree(tmp_path) == before
    assert [(change.kind, Path(change.path).parent.name) for change in report.changes] == [
        ("rebuild", "index-0"), ("cut", "torn-0"),
    ]  # fmt: skip
    assert [Path(one.path).parent.name for one in report.left] == ["middle-0"]
    assert not report.applied and not report.ok and report.backup is None
    assert "nothing was changed: give --apply; 1 left unrepaired" in str(report)


def test_apply_changes_what_was_told_and_keeps_the_rest(directory: Path, tmp_path: Path) -> None:
    before = content(directory)
    planned = repair(directory).changes
    backup = tmp_path / "kept"
    report = repair(directory, apply=True, backup_dir=backup)
    assert report.changes == planned and report.backup == str(backup)
    after = content(directory)
    changed = {name for name in before if after.get(name) != before[name]}
    assert changed == {"index-0/00000000000000000000.index", f"torn-0/{LOG}", ".kafka_cleanshutdown"}
    assert set(after) - set(before) <= {".lock"}
    torn = before[f"torn-0/{LOG}"]
    assert torn.startswith(after[f"torn-0/{LOG}"])
    # all that went is in the backup
    name = "index-0/00000000000000000000.index"
    assert (backup / name).read_bytes() == before[name]
    cut = len(after[f"torn-0/{LOG}"])
    assert after[f"torn-0/{LOG}"] + (backup / "torn-0" / f"{LOG}.from-{cut}").read_bytes() == torn
    assert json.loads((backup / "torn-0" / "repair.json").read_bytes())["changes"][0]["size_after"] == cut
    assert not (backup / "middle-0").exists()
    again = repair(directory)
    assert not again.changes and [Path(one.path).parent.name for one in again.left] == ["middle-0"]
    assert verify(directory / "index-0").ok and verify(directory / "torn-0").ok


def test_the_mark_of_a_clean_shutdown_stays_where_only_indexes_change(directory: Path) -> None:
    """LOAD-10: after a cut the next open has to recover, after an index it need not."""
    repair(directory / "index-0", apply=True)
    assert (directory / ".kafka_cleanshutdown").read_bytes() == MARKER
    report = repair(directory, apply=True, truncate_tail=True, rebuild_indexes=False)
    assert [change.kind for change in report.changes] == ["cut"]
    assert not (directory / ".kafka_cleanshutdown").exists()
    assert report.backup is not None and Path(report.backup).parent == directory.parent


def test_a_log_that_is_open_is_not_repaired(directory: Path) -> None:
    before = content(directory / "torn-0")
    with kafkalog.open(directory / "new-0", "a"):
        with pytest.raises(DirectoryLocked, match="in use"):
            repair(directory, apply=True)
    assert content(directory / "torn-0") == before
    pid = os.fork()
    if pid == 0:
        import fcntl
        import time

        fd = os.open(directory / ".lock", os.O_RDWR | os.O_CREAT)
        fcntl.lockf(fd, fcntl.LOCK_EX)
        (directory.parent / "held").touch()
        time.sleep(60)
        os._exit(0)
    try:
        while not (directory.parent / "held").exists():
            pass
        with pytest.raises(DirectoryLocked):
            repair(directory, apply=True)
        assert repair(directory).changes  # a dry run asks for no lock
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)


def test_bad_calls(directory: Path) -> None:
    with pytest.raises(IllegalArgument, match="inside the data directory"):
        repair(directory, apply=True, backup_dir=directory / "kept")
    full = directory.parent / "full"
    full.mkdir()
    (full / "x").touch()
    with pytest.raises(IllegalArgument, match="not empty"):
        repair(directory, apply=True, backup_dir=full)
    with pytest.raises(IllegalArgument, match="every kind of repair is disabled"):
        repair(directory, rebuild_indexes=False, truncate_tail=False, checkpoints=False)
    with pytest.raises(IllegalArgument, match="interval"):
        repair(directory, index_interval_bytes=-1)
    with pytest.raises(PartitionNotFound):
        repair(directory / "none-0")
    with pytest.raises(NotAPartition, match="with its partition"):
        repair(directory / "torn-0" / LOG)
    with pytest.raises(NotAPartition, match="no partition"):
        repair(full)


@golden_cases.each_entry("recovery")
def test_rebuilt_files_are_those_of_the_reference_s_recovery(entry: dict[str, Any], tmp_path: Path) -> None:
    """SEG-20, SEG-22, SEG-24, SEG-35: the same bytes in every index of each segment whose log stays as long as it does
    there; and where the reference cuts the end of the last segment, so do we."""
    if entry["cleanShutdown"] or entry["recoveryPoint"] != 0 or "filesAfterClose" not in entry["result"]:
        pytest.skip("no recovery of the whole log")
    path = damaged_copy(entry, tmp_path / "data")
    config = entry["config"]
    repair(
        path, apply=True, all_indexes=True, backup_dir=tmp_path / "kept",
        index_interval_bytes=int(config.get("index.interval.bytes", 4096)),
    )  # fmt: skip
    expected = {row[0]: row for row in entry["result"]["filesAfterClose"]}
    theirs = log_sizes(entry["result"]["filesAfterClose"])
    ours = {one.name: one.stat().st_size for one in path.glob("*.log")}
    compared = 0
    for name, size in ours.items():
        if theirs.get(name) != size:
            continue
        stem = name.removesuffix(".log")
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            mine = path / (stem + suffix)
            row = expected.get(mine.name)
            data = mine.read_bytes() if mine.exists() else b""
            if row is None:
                assert not data, mine.name
                continue
            assert hashlib.sha256(data).hexdigest() == row[2], (mine.name, len(data), row[1])
            compared += 1
    dropped = len(theirs) < len(ours)
    if not dropped:
        assert compared >= len(theirs) - 1


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_sound_batch_is_ever_dropped(tmp_path: Path, data: st.DataObject) -> None:
    """SEG-21 with a difference: what lies behind damage stays."""
    shutil.rmtree(tmp_path / "data", ignore_errors=True)
    shutil.rmtree(tmp_path / "kept", ignore_errors=True)
    parts = raw_batches.batches(0, 12, 3)
    path = write_log(tmp_path / "data" / "t-0", parts)
    bad = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        bad[data.draw(st.integers(0, len(bad) - 1))] ^= data.draw(st.integers(1, 255))
    if data.draw(st.booleans()):
        del bad[data.draw(st.integers(0, len(bad))) :]
    path.write_bytes(bad)
    whole = [part for part in parts if part in bytes(bad)]
    report = repair(tmp_path / "data", apply=True, backup_dir=tmp_path / "kept")
    left = path.read_bytes()
    assert bytes(bad).startswith(left)
    assert all(part in left for part in whole)
    assert all(change.kind != "cut" or change.size_after == len(left) for change in report.changes)
    assert not repair(tmp_path / "data").changes


@pytest.mark.parametrize("base", [-(2**63), -1, 2**62, 2**63 - 1])
def test_an_offset_that_no_segment_has_gets_no_entry_in_a_new_index(tmp_path: Path, base: int) -> None:
    """It lies outside of its batch's checksum, so the batch counts as sound; an entry has 31 bits for it."""
    path = write_log(tmp_path / "t-0", [raw_batches.batch(n, [b"x" * 5000], timestamp=1000 + n) for n in range(6)])
    data = bytearray(path.read_bytes())
    at = 3 * len(data) // 6
    data[at : at + 8] = base.to_bytes(8, "big", signed=True)
    path.write_bytes(data)
    path.with_suffix(".timeindex").write_bytes(b"\1" * 12)
    repair(tmp_path, apply=True)
    assert path.read_bytes() == data
    times = path.with_suffix(".timeindex").read_bytes()
    offsets = [int.from_bytes(times[n + 8 : n + 12], "big", signed=True) for n in range(0, len(times), 12)]
    assert offsets == sorted(offsets) and all(0 <= offset < 6 for offset in offsets)


def test_a_base_offset_that_is_too_high_hides_no_batch(tmp_path: Path) -> None:
    """It lies outside of its batch's checksum; what follows the next damage is sound, though its offsets are lower."""
    parts = raw_batches.batches(0, 12, 3)
    path = write_log(tmp_path / "data" / "t-0", parts)
    bad = bytearray(path.read_bytes())
    third, fourth = sum(map(len, parts[:2])), sum(map(len, parts[:3]))
    bad[third + 4] ^= 1  # 16,777,216 offsets
    bad[fourth + 8] ^= 1  # 16 MiB
    path.write_bytes(bad)
    report = repair(tmp_path / "data", apply=True, backup_dir=tmp_path / "kept")
    assert path.read_bytes() == bad
    assert [finding.kind for finding in report.left] == ["order", "torn"]


def test_a_crash_at_any_call_leaves_old_or_new_and_a_whole_backup(directory: Path, tmp_path: Path) -> None:
    """LOAD-10: each call that changes a file fails once; what is on disk then is repaired by the next try."""
    before = content(directory)
    plan = {os.path.relpath(change.path, directory): change for change in repair(directory).changes}
    done = 0
    for nth in each_failure():
        shutil.rmtree(directory)
        for name, data in before.items():
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_bytes(data)
        kept = tmp_path / f"kept{nth}"
        fs = FaultFS()
        rule = fs.fail(*WRITING_CALLS, path=str(tmp_path), nth=nth, times=1, code=errno.EIO)
        try:
            repair(directory, apply=True, backup_dir=kept, fs=fs)
        except (KafkalogError, OSError):
            pass
        after = content(directory)
        if not rule.fired:
            done = nth
            break
        for name, data in before.items():
            if name not in plan:
                assert after.get(name, b"") in (data, b"") if name.startswith(".") else after[name] == data
                continue
            assert after[name] == data or len(after[name]) == plan[name].size_after, (nth, name)
            if after[name] != data:
                saved = content(kept)
                assert any(data.endswith(one) and one for one in saved.values()), (nth, name)
                assert ".kafka_cleanshutdown" not in after or plan[name].kind == "rebuild"
        assert not [name for name in after if name.endswith(".repair")]
        repair(directory, apply=True, backup_dir=tmp_path / f"again{nth}")
        assert not repair(directory).changes
    assert done > 10


def test_a_new_index_has_the_owner_and_the_rights_of_the_old_one(directory: Path) -> None:
    index = directory / "index-0" / "00000000000000000000.index"
    index.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(index, 65534, 65534)
    missing = index.with_suffix(".timeindex")
    missing.unlink()
    repair(directory, apply=True)
    status = index.stat()
    assert stat.S_IMODE(status.st_mode) == 0o640
    assert (status.st_uid, status.st_gid) == ((65534, 65534) if os.geteuid() == 0 else (os.geteuid(), os.getegid()))
    assert missing.exists() and verify(directory / "index-0").ok


def test_the_topic_s_own_interval_is_taken_where_it_is_known(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "data" / "t-0", "a", index_interval_bytes=256) as log:
        for n in range(50):
            log.append([(None, b"x" * 100, 1000 + n)])
    index = tmp_path / "data" / "t-0" / "00000000000000000000.index"
    before = index.read_bytes()
    assert len(before) > 8 * 8
    index.write_bytes(before[:-3])
    repair(tmp_path / "data", apply=True)
    assert index.read_bytes() == before


def test_aborted_transactions_are_found_again(tmp_path: Path) -> None:
    """TXN-2, SEG-24: first offset of data, offset of the marker, the last stable offset after it; over segments."""
    path = tmp_path / "data" / "t-0" / LOG
    path.parent.mkdir(parents=True)
    path.write_bytes(txn_batch(0, 9) + txn_batch(1, 8) + txn_batch(2, 9, marker=ABORT))
    later = path.with_name("00000000000000000003.log")
    later.write_bytes(txn_batch(3, 8, marker=ABORT) + txn_batch(4, 7, marker=ABORT))
    repair(path.parent, apply=True, all_indexes=True, backup_dir=tmp_path / "kept")
    from kafkalog.storage.index.aborted_txns import read_aborted_txns

    assert [tuple(one) for one in read_aborted_txns(path.with_suffix(".txnindex"))] == [(0, 9, 0, 2, 1)]
    assert [tuple(one) for one in read_aborted_txns(later.with_suffix(".txnindex"))] == [(0, 8, 1, 3, 4)]
    assert verify(path.parent).ok
