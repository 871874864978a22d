"""Figures of damaged logs: what was compared with checksums, the damaged places, and the sound rest counted."""

import json
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cli.main import run
from kafkalog.inspect.report import page
from kafkalog.tools.report import make_report
from tests import raw_batches
from tests.tools.test_verify_damage import write_log
from tests.tools.test_verify_offsets import SECOND, spoil

DAMAGE = [(3, 70, 1, "crc"), (3, 8, 128, "size"), (3, 6, 1, "order")]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Two segments of 12 batches of 3 records each."""
    write_log(tmp_path / "data" / "t-0", raw_batches.batches(0, 12, 3))
    write_log(tmp_path / "data" / "t-0", raw_batches.batches(36, 12, 3), SECOND)
    return tmp_path / "data" / "t-0"


def test_a_sound_log_was_checked_whole_and_shows_no_damage(directory: Path) -> None:
    with kafkalog.open(directory) as log:
        stats = log.stats()
    assert (stats.damage, stats.problems, stats.checked_batches) == ((), (), 24)
    assert stats.checked().startswith("24 batches checked, ") and stats.checked().endswith(": no damage found")


@pytest.mark.parametrize(("batch", "byte", "mask", "kind"), DAMAGE, ids=lambda value: str(value))
def test_damage_is_shown_with_its_offsets_and_the_rest_is_counted(
    directory: Path, batch: int, byte: int, mask: int, kind: str
) -> None:
    first = directory / "00000000000000000000.log"
    spoil(first, batch, byte, mask)
    with kafkalog.open(directory) as log:
        stats = log.stats()
    (place,) = stats.damage
    position = sum(map(len, raw_batches.batches(0, 3, 3)))
    assert (place.segment, place.position, place.kind) == (str(first), position, kind)
    assert (place.last_sound_offset, place.next_sound_offset) == (8, 12)
    assert (stats.records, stats.checked_batches) == (69, 23)
    assert [problem for problem in stats.problems if "offsets 9 to 11" in problem]
    assert "23 batches checked" in repr(stats) and "1 damaged place" in repr(stats)


def test_damage_in_the_last_segment_is_shown(directory: Path) -> None:
    spoil(directory / SECOND, 5, 70)
    with kafkalog.open(directory) as log:
        (place,) = log.stats().damage
    assert (place.last_sound_offset, place.next_sound_offset) == (50, 54)


CLOSED = [(11, 70, 1), (11, 8, 128), (11, 16, 4)]
"""A checksum, a size and a format of the last batch."""


@pytest.mark.parametrize(("batch", "byte", "mask"), CLOSED)
@pytest.mark.parametrize("sample_bytes", [None, 1000])
def test_damage_at_the_end_of_a_closed_log_is_shown(
    directory: Path, batch: int, byte: int, mask: int, sample_bytes: int | None
) -> None:
    (directory.parent / ".kafka_cleanshutdown").write_bytes(b"")
    spoil(directory / SECOND, batch, byte, mask)
    with kafkalog.open(directory) as log:
        (place,) = log.stats(sample_bytes=sample_bytes).damage
    position = sum(map(len, raw_batches.batches(36, 11, 3)))
    assert (place.segment, place.position, place.last_sound_offset) == (str(directory / SECOND), position, 68)


def test_zeros_at_the_end_of_a_closed_log_are_shown(directory: Path) -> None:
    (directory.parent / ".kafka_cleanshutdown").write_bytes(b"")
    path = directory / SECOND
    path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    with kafkalog.open(directory) as log:
        assert [one.segment for one in log.stats().damage] == [str(path)]
        assert [one.path for one in log.problems] == [str(path)]


@pytest.mark.parametrize("mode", ["r", "a"])
def test_batch_cut_off_at_the_end_of_an_earlier_segment_is_shown(directory: Path, mode: str) -> None:
    path = directory / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-7])
    (directory.parent / ".kafka_cleanshutdown").write_bytes(b"")
    with kafkalog.open(directory, mode) as log:  # type: ignore[call-overload]
        stats = log.stats()
    assert [(one.segment, one.last_sound_offset) for one in stats.damage] == [(str(path), 32)]


def test_batch_of_an_unknown_format_is_shown(directory: Path) -> None:
    spoil(directory / "00000000000000000000.log", 3, 16, 4)
    with kafkalog.open(directory) as log:
        (place,) = log.stats().damage
    assert (place.last_sound_offset, place.next_sound_offset) == (8, 12)


def test_a_sample_says_that_only_a_part_was_checked(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", raw_batches.batches(0, 4000, 3))
    with kafkalog.open(tmp_path / "t-0") as log:
        stats = log.stats(sample_bytes=130 << 10)
    assert 0 < stats.checked_batches < 4000 and "checked as a sample" in stats.checked()


def test_the_page_and_the_commands_show_damage_and_what_was_checked(
    directory: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    spoil(directory / "00000000000000000000.log", 3, 70)
    text = page(make_report([str(directory.parent)]))
    assert "Checksums: 23 batches checked" in text and "offsets 9 to 11" in text
    assert run(["report", "-q", "-o", str(tmp_path / "page.html"), str(directory.parent)]) == 1
    assert run(["stats", str(directory)]) == 1
    shown = capsys.readouterr().err
    assert "checksums: 23 batches checked" in shown and "1 damaged place" in shown and "offsets 9 to 11" in shown
    assert run(["stats", "-J", str(directory)]) == 1
    (found,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert found["checked_batches"] == 23 and found["checked_bytes"] == found["read_bytes"]
    assert [(one["kind"], one["last_sound_offset"]) for one in found["damage"]] == [("crc", 8)]


def test_damage_in_a_sample_is_shown_and_its_segment_is_not_read_whole(tmp_path: Path) -> None:
    log_file = write_log(tmp_path / "t-0", raw_batches.batches(0, 4000, 3))
    spoil(log_file, 2, 70)
    with kafkalog.open(tmp_path / "t-0") as log:
        stats = log.stats(sample_bytes=130 << 10)
    (place,) = stats.damage
    assert (place.position, place.last_sound_offset, place.next_sound_offset) == (0, -1, None)
    assert "`kafkalog verify` shows the extent" in stats.problems[0]
