"""Findings of damage say which offsets lie between the sound batches around, and the summary how many."""

import json
from pathlib import Path

import pytest

import kafkalog
from kafkalog.cli.main import run
from kafkalog.errors import StorageError
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import Severity, verify
from tests import raw_batches
from tests.tools.test_verify_damage import LOG, write_log

Around = tuple[int | None, int | None]
SECOND = "00000000000000000036.log"


def spoil(path: Path, batch: int, byte: int, mask: int = 1) -> None:
    """Flip bits in the byte of a batch of the segment."""
    data = bytearray(path.read_bytes())
    at = 0
    for _ in range(batch):
        at += int.from_bytes(data[at + 8 : at + 12], "big") + 12
    data[at + byte] ^= mask
    path.write_bytes(data)


@pytest.fixture
def segments(tmp_path: Path) -> list[Path]:
    """Two segments of 12 batches of 3 records."""
    parts = raw_batches.batches(0, 12, 3)
    later = raw_batches.batches(36, 12, 3)
    return [write_log(tmp_path / "t-0", parts), write_log(tmp_path / "t-0", later, SECOND)]


@pytest.mark.parametrize(
    ("segment", "batch", "byte", "mask", "kind", "around"),
    [(0, 3, 70, 1, "crc", (8, 12)), (0, 3, 8, 128, "size", (8, 12)), (0, 3, 8, 64, "torn", (8, 12)),
     (0, 3, 16, 1, "magic", (8, 12)), (0, 3, 6, 1, "order", (8, 12)), (0, 3, 3, 128, "range", (8, 12)),
     (0, 0, 70, 1, "crc", (None, 3)), (1, 0, 70, 1, "crc", (35, 39)), (0, 11, 70, 1, "tail-crc", (32, 36)),
     (0, 11, 6, 1, "order", (32, 36)), (1, 5, 7, 4, "order", (50, 54))],
)  # fmt: skip
def test_damage_names_the_sound_offsets_around_it(
    tmp_path: Path, segments: list[Path], segment: int, batch: int, byte: int, mask: int, kind: str, around: Around
) -> None:
    size = len(raw_batches.batches(36 * segment, 12, 3)[batch])
    spoil(segments[segment], batch, byte, mask)
    report = verify(tmp_path / "t-0")
    (finding,) = [one for one in report if one.path == str(segments[segment])]
    assert (finding.severity, finding.kind, finding.size) == (Severity.DAMAGE, kind, size), str(report)
    assert (finding.last_sound_offset, finding.next_sound_offset) == around
    first = 0 if around[0] is None else around[0] + 1
    assert finding.lost == (first, around[1]) and finding.offset == first
    assert report.lost_offsets == 3 and "1 damaged, 3 offsets in damaged places" in report.summary()
    assert f"({size} bytes), offsets {first} to {first + 2}: " in str(report)


def test_offsets_of_neighbouring_places_count_once(tmp_path: Path, segments: list[Path]) -> None:
    spoil(segments[0], 3, 70)
    spoil(segments[0], 4, 6)
    spoil(segments[1], 5, 70)
    report = verify(tmp_path / "t-0")
    assert [one.lost for one in report if one.path.endswith(".log")] == [(9, 15), (9, 15), (51, 54)]
    assert report.lost_offsets == 9


def test_damage_over_the_end_of_a_segment_ends_at_the_next_sound_batch(tmp_path: Path, segments: list[Path]) -> None:
    spoil(segments[0], 11, 70)
    spoil(segments[1], 0, 70)
    report = verify(tmp_path / "t-0")
    assert [one.lost for one in report if one.path.endswith(".log")] == [(33, 39), (33, 39)]
    assert report.lost_offsets == 6


def test_a_torn_end_has_no_sound_offset_behind_it_and_counts_none(tmp_path: Path, segments: list[Path]) -> None:
    segments[1].write_bytes(segments[1].read_bytes()[:-5])
    report = verify(tmp_path / "t-0")
    (finding,) = [one for one in report if one.path == str(segments[1])]
    assert (finding.last_sound_offset, finding.next_sound_offset, finding.lost) == (68, None, None)
    assert report.lost_offsets == 0 and "offset 69 and on" in str(report) and "places" not in report.summary()


def test_json_has_the_offsets_around_the_bytes(
    tmp_path: Path, segments: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    spoil(segments[0], 3, 70)
    assert run(["verify", "-J", str(tmp_path / "t-0")]) == 1
    *findings, report = map(json.loads, capsys.readouterr().out.splitlines())
    (found,) = [one for one in findings if one["kind"] == "crc"]
    assert (found["last_sound_offset"], found["next_sound_offset"]) == (8, 12)
    assert found["position"] == sum(map(len, raw_batches.batches(0, 3, 3))) and found["size"] > 100
    assert report["lost_offsets"] == 3


def test_a_link_to_nothing_with_the_name_of_a_segment_is_reported(tmp_path: Path, segments: list[Path]) -> None:
    link = segments[0].with_name("00000000000000000072.log")
    link.symlink_to(tmp_path / "moved" / LOG)
    found = [one for one in verify(tmp_path / "t-0") if one.path == str(link)]
    assert [(one.kind, one.severity) for one in found] == [("link", Severity.DAMAGE)]
    assert "target is missing" in found[0].what
    assert [one.kind for one in repair(tmp_path / "t-0").left] == ["link"]
    for mode in ("r", "a"):
        with pytest.raises(StorageError, match="target of a symbolic link is missing") as caught:
            kafkalog.open(tmp_path / "t-0", mode)
        assert caught.value.path == str(link) and "restore its target" in str(caught.value.hint)


@pytest.mark.parametrize("junk", [b"\xff" * 50, b"\0" * 50, b"junk"])
def test_repair_cuts_the_junk_that_verify_finds_behind_a_bootstrap_checkpoint(
    tmp_path: Path, segments: list[Path], junk: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    kept = tmp_path_factory.mktemp("kept")
    snapshot = tmp_path / "bootstrap.checkpoint"
    whole = raw_batches.batch(0, [b"a", b"b"])
    snapshot.write_bytes(whole + junk)
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"")
    found = [one for one in verify(tmp_path) if one.path == str(snapshot)]
    report = repair(tmp_path)
    assert [one.severity for one in found] == [Severity.REPAIRABLE]
    assert [(one.kind, one.path, one.size_after) for one in report.changes] == [("cut", str(snapshot), len(whole))]
    assert repair(tmp_path, apply=True, backup_dir=kept).ok
    assert snapshot.read_bytes() == whole and verify(tmp_path).ok
    assert (kept / "checkpoints" / f"{snapshot.name}.from-{len(whole)}").read_bytes() == junk
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_repair_leaves_the_damage_that_verify_finds_in_a_bootstrap_checkpoint(
    tmp_path: Path, segments: list[Path]
) -> None:
    snapshot = tmp_path / "bootstrap.checkpoint"
    snapshot.write_bytes(b"".join(raw_batches.batches(0, 3, 1)))
    spoil(snapshot, 1, 70)
    assert [one.kind for one in verify(tmp_path)] == ["crc"]
    report = repair(tmp_path, excise=True)
    assert not report.changes and [one.kind for one in report.left] == ["crc"] and not report.ok
