"""`repair(excise=True)`: a damaged segment is rewritten without the damaged bytes, and nothing sound goes with them."""

import errno
import json
import os
import shutil
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import DirectoryLocked, KafkalogError
from kafkalog.storage.index.aborted_txns import read_aborted_txns
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import verify
from tests import raw_batches
from tests.faults import WRITING_CALLS, FaultFS, each_failure
from tests.tools.test_repair import MARKER, content, tree
from tests.tools.test_verify_damage import ABORT, LOG, txn_batch, txn_entry, write_log

SECOND = "00000000000000000036.log"


def offsets_of(partition: Path) -> list[int]:
    with kafkalog.open(partition) as log:
        return [record.offset for record in log.records()]


def write_damaged(partition: Path) -> tuple[Path, list[bytes]]:
    """Two segments of 12 batches of 3 records; in the first the batch of offset 9 is damaged, and 21 reads as 4117."""
    parts = raw_batches.batches(0, 12, 3)
    path = write_log(partition, parts)
    write_log(partition, raw_batches.batches(36, 12, 3), SECOND)
    data = bytearray(path.read_bytes())
    data[sum(map(len, parts[:3])) + 70] ^= 1
    data[sum(map(len, parts[:7])) + 6] ^= 16
    path.write_bytes(data)
    return path, parts


def test_damage_is_left_out_only_on_request_and_only_with_apply(tmp_path: Path) -> None:
    write_damaged(tmp_path / "data" / "t-0")
    before = tree(tmp_path)
    assert [one.kind for one in repair(tmp_path / "data").left] == ["crc", "order"]
    report = repair(tmp_path / "data", excise=True)
    assert tree(tmp_path) == before
    (change,) = [one for one in report.changes if one.kind == "excise"]
    assert [(one.kind, one.lost) for one in change.pieces] == [("crc", (9, 12)), ("order", (21, 24))]
    assert not report.left and not report.ok and "give --apply" in report.summary()
    assert "offsets 9 to 11: the checksum" in str(report)


def test_a_damaged_size_that_ends_with_a_later_batch_takes_no_sound_one_along(tmp_path: Path) -> None:
    """One bit of a size claims the next batch too, where both are as long as its value: only the damaged one goes."""
    parts = [raw_batches.batch(n, [b"v" * 954]) for n in range(10)]
    assert {len(part) for part in parts} == {1024}
    path = write_log(tmp_path / "data" / "t-0", parts)
    data = bytearray(path.read_bytes())
    data[3 * 1024 + 10] ^= 4
    path.write_bytes(data)
    with kafkalog.open(path.parent) as log:
        (found,) = (one for one in log.verify() if one.severity == "damage")
        assert (found.position, found.size, found.lost) == (3 * 1024, 1024, (3, 4))
    repair(tmp_path / "data", excise=True, apply=True)
    assert path.read_bytes() == b"".join(parts[:3] + parts[4:])
    assert offsets_of(path.parent) == [0, 1, 2, *range(4, 10)]


def test_an_excised_segment_holds_its_sound_batches_and_the_backup_the_rest(tmp_path: Path) -> None:
    path, parts = write_damaged(tmp_path / "data" / "t-0")
    damaged = path.read_bytes()
    kept = tmp_path / "kept"
    report = repair(tmp_path / "data", excise=True, apply=True, backup_dir=kept)
    assert report.ok and path.read_bytes() == b"".join(parts[:3] + parts[4:7] + parts[8:])
    assert verify(tmp_path / "data", deep=True).ok
    assert offsets_of(path.parent) == [n for n in range(72) if n not in (9, 10, 11, 21, 22, 23)]
    manifest = json.loads((kept / "t-0" / "repair.json").read_bytes())
    (pieces,) = [one["pieces"] for one in manifest["changes"] if one["kind"] == "excise"]
    third, seventh = sum(map(len, parts[:3])), sum(map(len, parts[:7]))
    wanted = [("crc", third, len(parts[3]), 8, 12), ("order", seventh, len(parts[7]), 20, 24)]
    names = ("reason", "position", "bytes", "last_sound_offset", "next_sound_offset")
    assert [tuple(one[name] for name in names) for one in pieces] == wanted
    for piece in pieces:
        start = piece["position"]
        assert (kept / "t-0" / piece["file"]).read_bytes() == damaged[start : start + piece["bytes"]]
    assert not repair(tmp_path / "data", excise=True).changes


def test_an_excised_log_is_appended_to_at_its_old_end(tmp_path: Path) -> None:
    write_damaged(tmp_path / "data" / "t-0")
    repair(tmp_path / "data", excise=True, apply=True)
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        assert log.append(b"next").first_offset == 72
        assert [record.offset for record in log.records(68)] == [68, 69, 70, 71, 72]
        assert log[8].offset == 8 and log[12].offset == 12


def test_the_last_segment_is_excised_with_its_torn_end_or_without(tmp_path: Path) -> None:
    parts = raw_batches.batches(0, 12, 3)
    path = write_log(tmp_path / "data" / "t-0", parts)
    data = bytearray(path.read_bytes() + parts[0][:40])
    data[sum(map(len, parts[:3])) + 70] ^= 1
    path.write_bytes(data)
    sound = b"".join(parts[:3] + parts[4:])
    report = repair(tmp_path / "data", excise=True, truncate_tail=False, checkpoints=False, apply=True)
    assert path.read_bytes() == sound + parts[0][:40]
    assert [one.kind for one in report.left] == ["tail-torn"]
    path.write_bytes(data)
    assert repair(tmp_path / "data", excise=True, apply=True).ok
    assert path.read_bytes() == sound and verify(tmp_path / "data").ok


def test_a_torn_end_alone_is_cut_and_not_excised(tmp_path: Path) -> None:
    path = write_log(tmp_path / "data" / "t-0", raw_batches.batches(0, 12, 3))
    path.write_bytes(path.read_bytes()[:-7])
    assert "excise" not in [one.kind for one in repair(tmp_path / "data", excise=True).changes]
    report = repair(tmp_path / "data", excise=True, truncate_tail=False, rebuild_indexes=False, checkpoints=False)
    assert not report.changes and [one.kind for one in report.left] == ["tail-torn"]


def test_a_segment_without_a_sound_batch_ends_up_empty_and_the_rest_is_read(tmp_path: Path) -> None:
    path = write_log(tmp_path / "data" / "t-0", raw_batches.batches(0, 4, 3))
    middle = write_log(path.parent, raw_batches.batches(12, 4, 3), "00000000000000000012.log")
    write_log(path.parent, raw_batches.batches(24, 4, 3), "00000000000000000024.log")
    middle.write_bytes(b"\0" * middle.stat().st_size)
    report = repair(tmp_path / "data", excise=True, apply=True)
    (piece,) = [piece for change in report.changes for piece in change.pieces]
    assert (piece.kind, piece.lost) == ("tail-zeros", (12, 24))
    assert middle.stat().st_size == 0 and verify(tmp_path / "data").ok
    assert offsets_of(path.parent) == [*range(12), *range(24, 36)]


def test_a_batch_above_the_next_segment_is_left_out(tmp_path: Path) -> None:
    parts = raw_batches.batches(0, 12, 3)
    path = write_log(tmp_path / "data" / "t-0", parts)
    write_log(path.parent, raw_batches.batches(36, 2, 3), SECOND)
    data = bytearray(path.read_bytes())
    data[len(data) - len(parts[-1]) + 7] ^= 64  # the last batch: 33 reads as 97
    path.write_bytes(data)
    (finding,) = verify(path.parent)
    assert (finding.kind, finding.lost) == ("order", (33, 36))
    assert repair(path.parent, excise=True, apply=True).ok
    assert path.read_bytes() == b"".join(parts[:-1]) and verify(path.parent).ok


def test_a_segment_whose_search_was_given_up_is_left_alone(tmp_path: Path) -> None:
    from tests.tools.test_verify_damage import deceiving_bytes

    path = tmp_path / "data" / "t-0" / LOG
    path.parent.mkdir(parents=True)
    path.write_bytes(deceiving_bytes())
    report = repair(tmp_path / "data", excise=True)
    assert "excise" not in [one.kind for one in report.changes] and [one.kind for one in report.left] == ["size"]


def test_an_aborted_transaction_stays_aborted_though_its_marker_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "data" / "t-0" / LOG
    path.parent.mkdir(parents=True)
    marker = bytearray(txn_batch(1, 9, marker=ABORT))
    marker[70] ^= 1
    path.write_bytes(txn_batch(0, 9) + marker + txn_batch(2, 8) + txn_batch(3, 8, marker=ABORT))
    entries = txn_entry(9, 0, 1, 2) + txn_entry(8, 2, 3, 4)
    path.with_suffix(".txnindex").write_bytes(entries)
    repair(tmp_path / "data", excise=True, all_indexes=True, apply=True)
    assert [one.last_offset for one in read_aborted_txns(path.with_suffix(".txnindex"))] == [1, 3]
    assert verify(path.parent).ok, str(verify(path.parent))


@pytest.mark.parametrize("place", ["cut", "excised"])
def test_markers_that_are_cut_off_or_belong_to_the_next_segment_leave_the_transaction_index(
    tmp_path: Path, place: str
) -> None:
    """A repair that leaves nothing to do is one after which nothing is found."""
    path = tmp_path / "data" / "t-0" / LOG
    path.parent.mkdir(parents=True)
    sound = txn_batch(0, 8) + txn_batch(1, 8, marker=ABORT) + txn_batch(2, 9)
    marker = txn_batch(3, 9, marker=ABORT)
    path.write_bytes(sound + marker)
    path.with_suffix(".txnindex").write_bytes(txn_entry(8, 0, 1, 2) + txn_entry(9, 2, 3, 4))
    if place == "cut":
        path.write_bytes(sound + marker[:-1])
    else:
        following = write_log(path.parent, [marker], f"{3:020d}.log")
        following.with_suffix(".txnindex").write_bytes(txn_entry(9, 2, 3, 4))
    report = repair(tmp_path / "data", excise=True, apply=True)
    assert report.ok and verify(path.parent).ok, str(verify(path.parent))
    assert [one.last_offset for one in read_aborted_txns(path.with_suffix(".txnindex"))] == [1]
    with kafkalog.open(path.parent) as log:
        assert list(log.records(isolation="read_committed")) == []


def test_the_mark_of_a_clean_shutdown_and_snapshots_ahead_go(tmp_path: Path) -> None:
    parts = raw_batches.batches(0, 12, 3)
    path = write_log(tmp_path / "data" / "t-0", parts)
    (tmp_path / "data" / ".kafka_cleanshutdown").write_bytes(MARKER)
    data = bytearray(path.read_bytes())
    data[len(parts[0]) + 70] ^= 1
    path.write_bytes(data)
    repair(tmp_path / "data", excise=True, apply=True)
    assert not (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_an_excised_segment_has_the_owner_and_the_rights_of_the_old_one(tmp_path: Path) -> None:
    path, _ = write_damaged(tmp_path / "data" / "t-0")
    path.chmod(0o640)
    path.with_suffix(".index").chmod(0o604)
    if os.geteuid() == 0:
        os.chown(path, 65534, 65534)
    repair(tmp_path / "data", excise=True, apply=True)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert stat.S_IMODE(path.with_suffix(".index").stat().st_mode) == 0o604
    assert path.stat().st_uid == (65534 if os.geteuid() == 0 else os.geteuid())


def test_a_log_that_is_open_is_not_excised(tmp_path: Path) -> None:
    path, _ = write_damaged(tmp_path / "data" / "t-0")
    before = path.read_bytes()
    with kafkalog.open(tmp_path / "data" / "other-0", "a"):
        with pytest.raises(DirectoryLocked, match="in use"):
            repair(tmp_path / "data", excise=True, apply=True)
    assert path.read_bytes() == before


def test_a_crash_at_any_call_of_an_excision_leaves_the_old_or_the_new_log(tmp_path: Path) -> None:
    path, parts = write_damaged(tmp_path / "data" / "t-0")
    before = content(tmp_path / "data")
    old, new = path.read_bytes(), b"".join(parts[:3] + parts[4:7] + parts[8:])
    seen = set()
    for nth in each_failure():
        shutil.rmtree(tmp_path / "data")
        for name, data in before.items():
            (tmp_path / "data" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "data" / name).write_bytes(data)
        kept = tmp_path / f"kept{nth}"
        fs = FaultFS()
        rule = fs.fail(*WRITING_CALLS, path=str(tmp_path), nth=nth, times=1, code=errno.EIO)
        try:
            repair(tmp_path / "data", excise=True, apply=True, backup_dir=kept, fs=fs)
        except (KafkalogError, OSError):
            pass
        if not rule.fired:
            break
        seen.add(path.read_bytes() == new)
        assert path.read_bytes() in (old, new)
        assert not [name for name in content(tmp_path / "data") if name.endswith(".repair")]
        if path.read_bytes() == new:
            pieces = [data for name, data in content(kept).items() if ".from-" in name]
            assert sorted(pieces) == sorted(old[at : at + len(part)] for at, part in _pieces(parts))
            wrong = [one for one in verify(path.parent) if one.kind != "index-missing"]
            assert not wrong, (nth, wrong)
        assert repair(tmp_path / "data", excise=True, apply=True, backup_dir=tmp_path / f"again{nth}").ok
        assert path.read_bytes() == new and verify(tmp_path / "data").ok
    assert seen == {True, False} and nth > 20


def _pieces(parts: list[bytes]) -> list[tuple[int, bytes]]:
    return [(sum(map(len, parts[:n])), parts[n]) for n in (3, 7)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_batch_that_was_not_touched_is_left_out(tmp_path: Path, data: st.DataObject) -> None:
    """Flipped bytes and batches that are doubled, zeroed or removed: all others are there, and in order."""
    for name in ("data", "kept"):
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    parts = raw_batches.batches(0, 12, 3)
    spoiled = [bytearray(part) for part in parts]
    touched = set(data.draw(st.lists(st.integers(0, 11), min_size=1, max_size=2, unique=True)))
    for n in sorted(touched, reverse=True):
        how = data.draw(st.sampled_from(["flip", "zero", "double", "remove"]))
        if how == "flip":
            place = data.draw(st.integers(0, len(parts[n]) - 1).filter(lambda at: not 12 <= at < 16))  # no leader epoch
            spoiled[n][place] ^= data.draw(st.integers(1, 255))
        elif how == "zero":
            spoiled[n] = bytearray(len(parts[n]))
        else:
            spoiled[n : n + 1] = [bytearray(parts[n])] * 2 if how == "double" else []
    path = write_log(tmp_path / "data" / "t-0", parts)
    path.write_bytes(b"".join(spoiled))
    repair(tmp_path / "data", excise=True, apply=True, backup_dir=tmp_path / "kept")
    left = path.read_bytes()
    at = 0
    for part in (part for n, part in enumerate(parts) if n not in touched):
        assert part in left[at:]
        at = left.index(part, at) + len(part)
    remaining = [one.kind for one in verify(path.parent)]
    assert not remaining, remaining
    with kafkalog.open(path.parent) as log:
        found = [record.offset for record in log.records()]
    assert found == sorted(set(found))
    untouched = {offset for n in range(12) if n not in touched for offset in range(3 * n, 3 * n + 3)}
    assert untouched <= set(found)
