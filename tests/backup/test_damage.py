"""A backup copies damaged bytes as they are and says so, each time; a copy as a data directory is refused."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.backup import create_backup, list_backups, restore_backup
from kafkalog.cli.main import run
from kafkalog.errors import CorruptRecord
from kafkalog.exchange.kafka_dir import export_directory
from kafkalog.server.groups.stored import commit_all
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import verify
from tests import commands
from tests.backup.logs import files, fill
from tests.backup.test_create import Later

FIRST_LOG = "orders-0/00000000000000000000.log"


@pytest.fixture
def damaged_data(tmp_path: Path) -> Path:
    """A data directory whose first segment has one damaged batch, of offsets 5 to 9."""
    data = tmp_path / "data"
    fill(data, records=200)
    log = data / FIRST_LOG
    content = bytearray(log.read_bytes())
    content[int.from_bytes(content[8:12], "big") + 12 + 70] ^= 1
    log.write_bytes(content)
    return data


def test_a_backup_notes_damage_and_has_the_bytes_as_they_are(tmp_path: Path, damaged_data: Path) -> None:
    made = create_backup(damaged_data, tmp_path / "backups")
    (note,) = [note for note in made.manifest.notes if note.startswith("damaged: ")]
    assert note.startswith(f"damaged: dir0/{FIRST_LOG}: position ") and "offsets 5 to 9" in note
    assert (Path(made.path) / "dir0" / FIRST_LOG).read_bytes() == (damaged_data / FIRST_LOG).read_bytes()


def test_damage_at_the_end_of_a_closed_log_is_noted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, records=200)
    last = max((data / "orders-0").glob("*.log"))
    content = last.read_bytes()
    last.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    made = create_backup(data, tmp_path / "backups")
    assert [note for note in made.manifest.notes if note.startswith(f"damaged: dir0/orders-0/{last.name}")]
    with pytest.raises(CorruptRecord, match=last.name):
        export_directory(data, tmp_path / "copy")


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_lost_its_end_is_noted(tmp_path: Path, is_clean: bool) -> None:
    """The copy's checkpoint is lowered to the copy, so only the note shows the loss."""
    data = tmp_path / "data"
    fill(data, records=200)
    if not is_clean:
        (data / ".kafka_cleanshutdown").unlink()
    last = max((data / "orders-0").glob("*.log"))
    last.write_bytes(b"")
    for _ in range(2):
        made = create_backup(data, tmp_path / "backups", clock=Later())
        (note,) = [note for note in made.manifest.notes if note.startswith("damaged: ")]
        assert note.startswith("damaged: dir0/orders-0: offset ") and "was on disk up to offset 200" in note
    with pytest.raises(CorruptRecord, match="batches are missing") as raised:
        export_directory(data, tmp_path / "copy")
    assert "kafkalog repair --checkpoints --apply" in (raised.value.hint or "")


def test_last_batch_at_wrong_offsets_is_in_the_backup_and_noted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    fill(data, records=200)
    (data / ".kafka_cleanshutdown").unlink()
    last = max((data / "orders-0").glob("*.log"))
    content = bytearray(last.read_bytes())
    at = 0
    while at + 12 + int.from_bytes(content[at + 8 : at + 12], "big") < len(content):
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    content[at + 7] -= 1  # the last batch begins an offset lower
    last.write_bytes(content)
    made = create_backup(data, tmp_path / "backups")
    assert [note for note in made.manifest.notes if last.name in note and "begins at offset" in note]
    assert (Path(made.path) / "dir0" / "orders-0" / last.name).read_bytes() == content


def test_damage_in_a_file_that_an_earlier_backup_has_is_noted_again(tmp_path: Path, damaged_data: Path) -> None:
    clock = Later()
    create_backup(damaged_data, tmp_path / "backups", clock=clock)
    clock.hours += 1
    again = create_backup(damaged_data, tmp_path / "backups", clock=clock)
    assert again.linked > 0
    first, second = ([note for note in one.notes if "damaged: " in note] for one in list_backups(tmp_path / "backups"))
    assert len(first) == 1 and second == first
    repair(damaged_data, excise=True, apply=True)
    clock.hours += 1
    last = create_backup(damaged_data, tmp_path / "backups", clock=clock)
    assert not [note for note in last.manifest.notes if "damaged: " in note]


def test_a_sound_log_has_no_note_of_damage(tmp_path: Path) -> None:
    fill(tmp_path / "data", records=200)
    made = create_backup(tmp_path / "data", tmp_path / "backups")
    assert not [note for note in made.manifest.notes if "damaged" in note]


def test_the_command_names_damage_even_when_quiet_and_ends_with_1(
    tmp_path: Path, damaged_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["backup", "-q", "-d", str(damaged_data), str(tmp_path / "backups")]) == 1
    captured = capsys.readouterr()
    assert "offsets 5 to 9" in captured.err and "unchanged" in captured.err
    assert len(list_backups(tmp_path / "backups")) == 1


def test_a_restored_backup_of_damage_is_excised_and_sound(tmp_path: Path, damaged_data: Path) -> None:
    create_backup(damaged_data, tmp_path / "backups")
    restore_backup(tmp_path / "backups", [tmp_path / "back"])
    assert repair(tmp_path / "back", excise=True, apply=True).ok
    assert verify(tmp_path / "back").ok


def test_a_data_directory_with_damage_is_not_exported_as_one(
    tmp_path: Path, damaged_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = files(damaged_data)
    with pytest.raises(CorruptRecord, match="offsets 5 to 9") as raised:
        export_directory(damaged_data, tmp_path / "out")
    assert raised.value.path == str(damaged_data / FIRST_LOG) and raised.value.position > 0
    assert sorted(one.name for one in tmp_path.iterdir()) == ["data"] and files(damaged_data) == before
    line = ["export", "-q", "-d", str(damaged_data), "-t", "orders", "--format", "kafka-dir", str(tmp_path / "out")]
    assert run(line) == 1
    captured = capsys.readouterr()
    assert "exported" not in captured.out and "offsets 5 to 9" in captured.err
    repair(damaged_data, excise=True, apply=True)
    assert run(line) == 0 and verify(tmp_path / "out").ok


def test_damage_in_the_log_of_the_groups_is_noted(tmp_path: Path) -> None:
    """The manifest has no offsets then: those before the damage may be old."""
    fill(tmp_path / "data")
    commit_all(str(tmp_path / "data"), {"readers": {"orders": {0: 2}}})
    (segment,) = (one for one in (tmp_path / "data").glob("__consumer_offsets-*/*.log") if one.stat().st_size)
    content = bytearray(segment.read_bytes())
    content[-10] ^= 0xFF
    segment.write_bytes(content)
    done = commands.kafkalog("backup", "-d", tmp_path / "data", tmp_path / "backups")
    assert done.returncode == 1 and b"the manifest lacks group offsets" in done.stderr
    assert [one.groups for one in list_backups(tmp_path / "backups")] == [{}]


@pytest.mark.parametrize("is_clean", [True, False])
def test_sound_batches_behind_damage_in_the_last_segment_are_below_the_copys_end(
    tmp_path: Path, is_clean: bool
) -> None:
    """The copy ended at the damage: its high watermark and its recovery point did too, and no producer was known."""
    data, restored = tmp_path / "data", tmp_path / "restored"
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        dirs.create_topic("orders", 1)
        for number in range(5):
            dirs["orders", 0].append(b"value %d" % number)
    spoil(data / "orders-0" / f"{0:020d}.log")
    if not is_clean:
        (data / ".kafka_cleanshutdown").unlink()
    made = create_backup(data, tmp_path / "backups")
    assert (made.manifest.partitions[0].end_offset, made.manifest.partitions[0].high_watermark) == (5, 5)
    restore_backup(tmp_path / "backups", restored)
    own, copied = ({one.name: one.read_bytes() for one in at.rglob("*.*") if one.is_file()} for at in (data, restored))
    assert copied == own if is_clean else copied.keys() == own.keys()
    with kafkalog.open(restored / "orders-0") as log:
        found = log.records(isolation="high_watermark", on_damage="skip", skipped=[])
        assert [one.offset for one in found] == [0, 1, 3, 4]


def spoil(segment: Path) -> None:
    """Change a byte of the batch in the middle."""
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    segment.write_bytes(content)
