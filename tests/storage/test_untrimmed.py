"""A log that was closed cleanly but not trimmed, as Kafka 4.4 leaves one: no record is lost, and nothing is damage.

Free space follows the entries of the last indexes; in a preallocated segment zeros follow the last batch.
"""

import os
from pathlib import Path

import pytest

import kafkalog
from kafkalog.backup import create_backup, restore_backup
from kafkalog.errors import CorruptRecord
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from kafkalog.storage.readonly.view import LogView
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import verify
from kafkalog.tools.verify.report import Severity
from tests.raw_batches import batches, write_segment

MARKER = '{"version":0,"brokerEpoch":-1}'
RECORDS = 400
KEEP = {"retention_ms": -1, "segment_ms": 2**62, "internal_segment_bytes": 1 << 16}


def last_file(partition: Path, suffix: str = ".log") -> Path:
    return max(partition.glob(f"*{suffix}"))


def leave_untrimmed(data: Path, zeros: int, room: int = 1000, interval: int = 500) -> Path:
    """Two segments; the second has `zeros` bytes after its last batch, and room for `room` entries in its indexes."""
    partition = data / "t-0"
    write_segment(partition, 0, batches(0, 40, 5), interval=500)
    write_segment(partition, 200, batches(200, 40, 5), interval=interval, preallocated=room)
    with last_file(partition).open("ab") as file:
        file.write(bytes(zeros))
    (data / CLEAN_SHUTDOWN_FILE).write_text(MARKER)
    (data / "recovery-point-offset-checkpoint").write_text(f"0\n1\nt 0 {RECORDS}\n")
    return partition


@pytest.fixture(params=[0, 3, 50_000], ids=["indexes", "few-zeros", "many-zeros"])
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return leave_untrimmed(tmp_path / "data", request.param)


def all_offsets(partition: Path) -> list[int]:
    with kafkalog.open(partition) as log:
        return [record.offset for record in log.records()]


def test_it_is_read_whole_and_without_damage(left: Path) -> None:
    assert all_offsets(left) == list(range(RECORDS))
    with LogView(left) as view:
        assert (view.log_end_offset, view.tail_damage) == (RECORDS, None)
        assert all("middle of a batch" in problem.message for problem in view.problems), "a few zeros look torn"
        assert view.offset_for_time(1000 + 377).offset == 377  # type: ignore[union-attr]
        assert view.offset_for_time(10**9) is None


@pytest.mark.parametrize("checkpoint", [None, "0\n1\nnonsense\n"], ids=["recovery point", "malformed"])
def test_zeros_in_place_of_the_last_batch_are_damage(tmp_path: Path, checkpoint: str | None) -> None:
    """The index names no batch there, but the recovery point says that records were on disk."""
    partition = leave_untrimmed(tmp_path / "data", 0, interval=1 << 20)
    log = last_file(partition)
    size = log.stat().st_size
    os.truncate(log, size - len(batches(395, 1, 5)[0]))
    os.truncate(log, size + 1000)
    if checkpoint is not None:
        (tmp_path / "data" / "recovery-point-offset-checkpoint").write_text(checkpoint)
    with pytest.raises(CorruptRecord):
        all_offsets(partition)


def test_an_opening_for_writing_trims_it_and_appends_follow(left: Path) -> None:
    """Zeros that are cut are logged as a loss: a batch that the disk zeroed looks the same."""
    with kafkalog.open(left, "a", **KEEP) as log:
        assert (log.start_offset, log.end_offset) == (0, RECORDS)
        log.append([b"new"])
    assert all_offsets(left) == list(range(RECORDS + 1))
    assert len(list(left.glob("*.log"))) == 2, "the segment was not full"
    report = verify(left.parent)
    assert report.ok and not report.notes, str(report)


def test_verify_notes_it(left: Path) -> None:
    report = verify(left.parent)
    assert report.ok and {one.severity for one in report.notes} == {Severity.NOTE}
    has_zeros = last_file(left).stat().st_size > len(b"".join(batches(200, 40, 5)))
    assert {one.kind for one in report.notes} == {"index-room", *["tail-zeros"] * has_zeros}


def test_repair_cuts_the_zeros_off(left: Path) -> None:
    repair(left.parent, apply=True)
    assert not [one for one in verify(left.parent).notes if one.kind == "tail-zeros"]
    assert last_file(left).read_bytes() == b"".join(batches(200, 40, 5))
    assert all_offsets(left) == list(range(RECORDS))


def test_a_backup_notes_no_damage_and_is_restored_whole(left: Path, tmp_path: Path) -> None:
    made = create_backup(left.parent, tmp_path / "backups")
    assert not [note for note in made.manifest.notes if note.startswith("damaged: ")]
    restore_backup(tmp_path / "backups", tmp_path / "restored")
    assert all_offsets(tmp_path / "restored" / "t-0") == list(range(RECORDS))
    assert verify(tmp_path / "restored").ok


@pytest.mark.parametrize("lost", ["trimmed", "entry"])
def test_zeros_that_an_index_contradicts_stay_damage(tmp_path: Path, lost: str) -> None:
    """The index was trimmed, or names a batch where the zeros are: records were there."""
    partition = leave_untrimmed(tmp_path / "data", 0)
    path, index = last_file(partition), last_file(partition, ".index")
    data = path.read_bytes()
    if lost == "trimmed":
        index.write_bytes(index.read_bytes().rstrip(b"\0"))
        path.write_bytes(data + bytes(500))
    else:
        kept = sum(map(len, batches(200, 10, 5)))
        path.write_bytes(data[:kept] + bytes(len(data) - kept))
    with LogView(partition) as view:
        assert view.tail_damage is not None
    with pytest.raises(CorruptRecord, match="zeros follow the last batch"):
        all_offsets(partition)
    assert not verify(partition.parent).ok
    made = create_backup(partition.parent, tmp_path / "backups")
    assert [note for note in made.manifest.notes if note.startswith("damaged: ")]


@pytest.mark.parametrize("mode", ["r", "a"])
@pytest.mark.parametrize("zeros", [1, 3, 11, 16, 17, 50_000])
def test_zeros_before_the_next_segment_hide_no_record_from_any_reader(tmp_path: Path, zeros: int, mode: str) -> None:
    """A crash undid the trim at the roll; the next segment begins where the last batch of this one ended."""
    partition = leave_untrimmed(tmp_path / "data", 0, room=0)
    with min(partition.glob("*.log")).open("ab") as file:
        file.write(bytes(zeros))
    with kafkalog.open(partition, mode, **(KEEP if mode == "a" else {})) as log:  # type: ignore[call-overload]
        assert [record.offset for record in log] == list(range(RECORDS))
        found = [log.offset_for_time(1000 + offset) for offset in (0, 7, 199, 200, 377)]
        assert [None if one is None else one.offset for one in found] == [0, 7, 199, 200, 377]
        largest = log.offset_for_time(-3)
        assert largest is not None and largest.offset == RECORDS - 1
        assert log.offset_for_time(10**9) is None
        assert [record.offset for record in log.records(since=1000 + 199)] == list(range(199, RECORDS))


@pytest.mark.parametrize("zeros", [3, 50_000])
def test_zeros_in_place_of_records_before_the_next_segment_are_damage(tmp_path: Path, zeros: int) -> None:
    partition = leave_untrimmed(tmp_path / "data", 0, room=0)
    first = min(partition.glob("*.log"))
    os.truncate(first, first.stat().st_size - len(batches(195, 1, 5)[0]))
    with first.open("ab") as file:
        file.write(bytes(zeros))
    with kafkalog.open(partition) as log:
        for call in (lambda: list(log), lambda: log.offset_for_time(1000 + 197), lambda: log.offset_for_time(10**9)):
            with pytest.raises(CorruptRecord):
                call()
