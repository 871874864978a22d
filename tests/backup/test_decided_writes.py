"""Backups while a write by a commit is decided, but not completely in the logs; ledgers restored at a moment."""

import os
from pathlib import Path

import pytest

import kafkalog
from kafkalog.backup import create_backup, restore_backup
from kafkalog.errors import KafkalogError, StorageError
from kafkalog.landing.commit import Committer
from kafkalog.landing.import_plan import KeptTarget
from kafkalog.landing.ledger import read_ledger
from kafkalog.landing.staging import Job, StageWriter
from kafkalog.redact import redact, redact_backups
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.fileio import OS
from tests.builder import R, batch
from tests.faults import FaultFS
from tests.spark.sink_cases import NOW_MS, QUERY, flat, found, key, stage, staged_names, values

BATCHES = values("x", 9)
LOAD = Job.batch("load-1")


def fail_after_the_decision(data: Path, kind: str) -> None:
    """A commit, or an import with offsets, finds the disk full once it is decided: a part of it landed."""
    data.mkdir()
    fs = FaultFS()
    with kafkalog.open(data / "t-0", "a", internal_segment_bytes=300, segment_index_bytes=1024) as log:
        log.append([(b"k", b"before", NOW_MS - 10_000)])
    if kind == "import":
        writer = StageWriter(str(data), LOAD, 0, 0, 0)
        writer.add(key("kept"), batch([R(b"kept 1", b"k"), R(b"kept 2", b"k")], base_offset=5, leader_epoch=0))
        file = writer.finish()
        assert file is not None
        fs.fail("pwrite", path="kept-0")
        with pytest.raises(KafkalogError):
            Committer(str(data), fs=fs).commit_kept(LOAD, [KeptTarget(key("kept"), 5, 7, file)], {"kept": 1})
        return
    staged = stage(data, QUERY, 4, [{key("t"): BATCHES}])
    fs.fail("pwrite", path="00000000000000000016.log")
    with pytest.raises(StorageError, match="the batch is decided"):
        Committer(str(data), fs=fs).commit(QUERY, 4, staged)


@pytest.mark.parametrize("kind", ["commit", "import"])
def test_a_restored_directory_completes_a_decided_write(tmp_path: Path, kind: str) -> None:
    fail_after_the_decision(tmp_path / "data", kind)
    (tmp_path / "data" / "kafkalog-stage.job-other.0.0.0.00000000").write_bytes(b"not decided")
    made = create_backup(tmp_path / "data", tmp_path / "backups")
    assert [note for note in made.manifest.notes if "skipped" in note] == [
        f"{tmp_path}/data/kafkalog-stage.job-other.0.0.0.00000000: skipped, not a file of a data directory"
    ]
    restored = tmp_path / "restored"
    restore_backup(tmp_path / "backups", restored)
    assert Committer(str(restored)).roll_forward()
    assert found(restored, "t") == [b"before", *(flat(BATCHES) if kind == "commit" else [])]
    assert found(restored, "kept") == ([] if kind == "commit" else [b"kept 1", b"kept 2"])
    assert not staged_names(restored) or kind == "commit"  # those of a query go with its next batch
    assert not Committer(str(restored)).roll_forward()


class Landing(FaultFS):
    """The write is completed right before its staged file is opened for the backup."""

    def open_file(self, path: str, *given: object, **more: object) -> object:
        if os.path.basename(path).startswith("kafkalog-stage.") and "r" in given:
            Committer(os.path.dirname(path)).roll_forward()
            OS.unlink_if_exists(path)
        return super().open_file(path, *given, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["commit", "import"])
def test_a_write_that_is_completed_meanwhile(tmp_path: Path, kind: str) -> None:
    fail_after_the_decision(tmp_path / "data", kind)
    create_backup(tmp_path / "data", tmp_path / "backups", fs=Landing())
    restored = tmp_path / "restored"
    restore_backup(tmp_path / "backups", restored)
    assert Committer(str(restored)).roll_forward() is (kind == "commit")
    assert found(restored, "t") == found(tmp_path / "data", "t")
    assert found(restored, "kept") == found(tmp_path / "data", "kept")
    assert read_ledger(str(restored)).landed(*((QUERY, 4) if kind == "commit" else (LOAD, 0)))


def test_a_write_after_the_moment_can_be_run_again(tmp_path: Path) -> None:
    """Its mark would have it count as landed, and its records are not in the restored logs."""
    data, restored = tmp_path / "data", tmp_path / "restored"
    data.mkdir()
    early = stage(data, QUERY, 0, [{key("t"): values("early", 1)}])
    Committer(str(data)).commit(QUERY, 0, early)
    moment = read_ledger(str(data)).marks[QUERY].committed_ms
    while SYSTEM_CLOCK.milliseconds() <= moment:
        pass
    late = stage(data, LOAD, 0, [{key("t"): values("late", 1)}], timestamp_ms=SYSTEM_CLOCK.milliseconds())
    Committer(str(data)).commit(LOAD, 0, late)
    create_backup(data, tmp_path / "backups")
    manifest = restore_backup(tmp_path / "backups", restored, at=moment)
    assert found(restored, "t") == flat(values("early", 1))
    assert [note for note in manifest.notes if "job-load-1" in note]
    assert not Committer(str(restored)).commit(QUERY, 0, []).landed
    again = stage(restored, LOAD, 0, [{key("t"): values("late", 1)}])
    assert Committer(str(restored)).commit(LOAD, 0, again).records == 3
    assert found(restored, "t") == flat([*values("early", 1), *values("late", 1)])


def test_a_write_whose_records_all_stay_counts_as_landed(tmp_path: Path) -> None:
    """Its records have earlier times than the moment, so nothing is cut off."""
    data, restored = tmp_path / "data", tmp_path / "restored"
    data.mkdir()
    Committer(str(data)).commit(LOAD, 0, stage(data, LOAD, 0, [{key("t"): values("old", 1)}]))
    create_backup(data, tmp_path / "backups")
    assert not restore_backup(tmp_path / "backups", restored, at=NOW_MS + 1000).notes
    assert found(restored, "t") == flat(values("old", 1))
    assert not Committer(str(restored)).commit(LOAD, 0, []).landed


def test_a_write_that_was_decided_after_the_moment_does_not_land(tmp_path: Path) -> None:
    fail_after_the_decision(tmp_path / "data", "commit")
    create_backup(tmp_path / "data", tmp_path / "backups")
    restored = tmp_path / "restored"
    restore_backup(tmp_path / "backups", restored, at=NOW_MS - 5000)
    assert not Committer(str(restored)).roll_forward()
    assert found(restored, "t") == [b"before"]


def test_a_redaction_names_staged_records(tmp_path: Path) -> None:
    """They may be those wanted: a decided write lands after the redaction."""
    data = tmp_path / "data"
    fail_after_the_decision(data, "commit")
    create_backup(data, tmp_path / "backups")
    (name,) = staged_names(data)
    report = redact(data, "t", keys=[b"k"], change="empty", apply=True)
    assert [one.path for one in report.copies] == [str(data / name)]
    assert list(report.lines())[-1].endswith("but what was not redacted may hold them")
    report = redact_backups(tmp_path / "backups", "t", keys=[b"k"], change="empty", apply=True)
    assert [os.path.basename(one.path) for one in report.copies] == [name]
