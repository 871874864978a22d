"""Copies into a directory of backups: one more backup, which links to earlier ones; whole or not there."""

import os
import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog.backup import create_backup, restore_backup
from kafkalog.backup.store import BackupStore
from kafkalog.backup.verify import verify_backup
from kafkalog.copy import copy_topics
from kafkalog.copy.backup_target import BackupTarget
from kafkalog.errors import CorruptRecord, DirectoryLocked, IllegalArgument, IllegalState
from kafkalog.server.groups.stored import commit_all, committed_offsets
from kafkalog.testing import kafka_server
from kafkalog.util.file_lock import open_locked
from kafkalog.util.fileio import OS
from tests.copy.test_runs_again import append, rows
from tests.copy.topics import SERVER, records_in
from tests.elsewhere import in_a_thread


def test_a_cluster_into_backups(tmp_path: Path) -> None:
    """The second copy adds what is new to the newest backup, and shares its other files."""
    data, backups, restored = tmp_path / "data", tmp_path / "backups", tmp_path / "restored"
    append(data, rows(0, 3))
    commit_all(str(data), {"readers": {"t": {0: 2}}})
    with kafka_server(directory=shutil.copytree(data, tmp_path / "served"), settings=SERVER) as server:
        source = f"kafka://{server.bootstrap}"
        assert copy_topics(source, f"backup:{backups}").partitions[0].stop == 3
        assert not backups.exists()
        report = copy_topics(source, f"backup:{backups}", apply=True)
        assert report.records == 3 and report.target == str(backups)
    append(data, rows(3, 2), topic="u")
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["t", 0].roll()
        dirs["t", 0].append([b"more"])
    assert [one.before for one in copy_topics(str(data), str(backups)).partitions] == [3, 0]
    assert copy_topics(str(data), str(backups), apply=True).records == 3
    assert sorted(os.listdir(tmp_path)) == ["backups", "data", "served"]
    older, newer = BackupStore(backups).ids()
    assert verify_backup(backups, newer).ok
    assert (backups / older / "dir0/t-0/00000000000000000000.log").stat().st_nlink == 2
    restore_backup(backups, restored)
    assert records_in(restored / "u-0") == records_in(data / "u-0")
    assert records_in(restored / "t-0") == records_in(data / "t-0")
    assert committed_offsets([str(restored)])["readers"]["t"] == {0: 2}


def test_a_copy_that_failed_is_no_backup_and_is_continued(tmp_path: Path) -> None:
    data, backups = tmp_path / "data", tmp_path / "backups"
    append(data, rows(0, 3))
    create_backup(data, backups, committed=committed_offsets)
    (tmp_path / "backups.kafkalog-copy.stored").mkdir()  # a kill left it
    append(data, rows(3, 3), rows(6, 3))
    (segment,) = (data / "t-0").glob("*.log")
    sound = segment.read_bytes()
    segment.write_bytes(sound[:-5] + bytes(5))
    with pytest.raises(CorruptRecord):
        copy_topics(str(data), str(backups), apply=True)
    assert len(BackupStore(backups).ids()) == 1
    assert len(records_in(tmp_path / "backups.kafkalog-copy" / "t-0")) == 6
    segment.write_bytes(sound)
    assert copy_topics(str(data), str(backups), apply=True).records == 3
    newest = BackupStore(backups).find()
    assert records_in(Path(newest) / "dir0" / "t-0") == records_in(data / "t-0")
    assert sorted(os.listdir(tmp_path)) == ["backups", "data"]


def test_a_copy_of_other_topics_leaves_one_that_failed_alone(tmp_path: Path) -> None:
    """Half of a topic is never in a backup: its copy is completed with the others, or begins again."""
    data, backups, left = tmp_path / "data", tmp_path / "backups", tmp_path / "backups.kafkalog-copy"
    append(data, rows(0, 3))
    append(data, rows(0, 3), topic="u")
    create_backup(data, backups)
    append(data, rows(3, 3), rows(6, 3))
    (segment,) = (data / "t-0").glob("*.log")
    sound = segment.read_bytes()
    segment.write_bytes(sound[:-5] + bytes(5))
    for apply in (True, False):
        with pytest.raises(CorruptRecord if apply else IllegalState):
            copy_topics(str(data), str(backups), ["t"] if apply else ["u"], apply=apply)
    with pytest.raises(IllegalState, match="of topic t was not completed") as caught:
        copy_topics(str(data), str(backups), ["u"], apply=True)
    assert caught.value.path == str(left) and len(BackupStore(backups).ids()) == 1
    segment.write_bytes(sound)
    copy_topics(str(data), str(backups), ["t", "u"], apply=True)
    newest = Path(BackupStore(backups).find()) / "dir0"
    assert records_in(newest / "t-0") == records_in(data / "t-0") and not left.exists()


def test_another_copy_does_not_write_to_one_that_is_being_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its data directory is closed then, and gone afterwards: records that were added would be gone with it."""
    data, backups, met = tmp_path / "data", tmp_path / "backups", list[int]()
    append(data, rows(0, 3))

    def create(*given: object, **more: object) -> object:
        if not met:
            met.append(1)
            append(data, rows(3, 3))
            error = in_a_thread(lambda: copy_topics(str(data), str(backups), apply=True))
            assert isinstance(error, DirectoryLocked) and "another copy into these backups" in str(error)
        return create_backup(*given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("kafkalog.copy.backup_target.create_backup", create)
    assert copy_topics(str(data), f"backup:{backups}", apply=True).records == 3 and met
    assert copy_topics(str(data), str(backups), apply=True).records == 3
    assert records_in(Path(BackupStore(backups).find()) / "dir0" / "t-0") == records_in(data / "t-0")
    assert sorted(os.listdir(tmp_path)) == ["backups", "data"]


@pytest.mark.parametrize("has_backup", [True, False])
def test_what_kills_left_beside_the_backups_is_removed_and_the_copy_continued(
    tmp_path: Path, has_backup: bool
) -> None:
    data, backups = tmp_path / "data", tmp_path / "backups"
    append(data, rows(0, 3))
    if has_backup:
        create_backup(data, backups)
    append(data, rows(3, 3))
    copy_topics(str(data), str(tmp_path / "backups.kafkalog-copy"), apply=True)  # killed before it was stored
    for name in ("restored", "stored"):
        append(tmp_path / f"backups.kafkalog-copy.{name}", rows(0, 2))
    assert copy_topics(str(data), f"backup:{backups}", apply=True).records == 0
    assert records_in(Path(BackupStore(backups).find()) / "dir0" / "t-0") == records_in(data / "t-0")
    assert sorted(os.listdir(tmp_path)) == ["backups", "data"]


def test_places_that_take_no_backup(tmp_path: Path) -> None:
    one, two, backups = tmp_path / "one", tmp_path / "two", tmp_path / "backups"
    append(one, rows(0, 3))
    append(two, rows(0, 3), topic="u")
    create_backup([one, two], backups)
    cases = [
        (two, str(backups), "has 2 data directories"), (two, f"backup:{one}", "not a directory of backups"),
        (two, "backup:", "has no path"), (two, f"backup:{two}/inner", "overlap"),
    ]  # fmt: skip
    for source, target, message in cases:
        with pytest.raises(IllegalArgument, match=message):
            copy_topics(str(source), target, apply=True)


def test_a_copy_that_ends_between_plan_and_lock_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, backups = tmp_path / "data", tmp_path / "backups"
    append(data, rows(0, 3))
    real = BackupTarget._prepare

    def prepare(target: BackupTarget) -> None:
        monkeypatch.setattr(BackupTarget, "_prepare", real)
        in_a_thread(lambda: copy_topics(str(data), f"backup:{backups}", apply=True))
        try:
            real(target)
        finally:
            lock = open_locked(OS, str(backups / "kafkalog.copying"), "create")
            assert lock is not None, "one that did not prepare keeps no lock"
            lock.close()

    monkeypatch.setattr(BackupTarget, "_prepare", prepare)
    with pytest.raises(IllegalState, match="another copy into these backups ended"):
        copy_topics(str(data), f"backup:{backups}", apply=True)
    assert len(BackupStore(backups).ids()) == 1
    assert sorted(os.listdir(tmp_path)) == ["backups", "data"]
    assert copy_topics(str(data), f"backup:{backups}", apply=True).records == 0
