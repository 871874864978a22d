"""Copies of records beside the log: those that recovery kept, leftovers, other directories of the partition."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.redact.directories import redact
from tests.redact.test_redact import make
from tests.storage.test_kept import BATCHES, flip_bits, make_damaged, mark_unclean, positions


def test_kept_records_are_reported_and_removed_on_request(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    make_damaged(data, batch=BATCHES - 1)  # all of what is kept is sound
    kafkalog.open(data / "orders-0", "a").close()
    assert not redact(data, "orders", keys=[b"none"]).copies
    report = redact(data, "orders", offsets={0: [0]}, apply=True)
    (copy,) = report.copies
    assert copy.removed is False and "kafkalog-kept" in copy.path and "--remove-kept" in str(report)
    (copy,) = redact(data, "orders", offsets={0: [0]}, apply=True, remove_kept=True).copies
    assert copy.removed and not (data / "orders-0" / "kafkalog-kept").exists()
    assert not redact(data, "orders", offsets={0: [0]}).copies


def test_leftovers_are_removed_and_other_directories_are_named(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"k", b"v")])
    left = tmp_path / "t-0" / f"{0:020d}.log.deleted"
    left.write_bytes(b"secret")
    (tmp_path / "t-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    report = redact(tmp_path, "t", keys=[b"k"])
    assert [one.what for one in report.copies] == ["a file to be deleted", "the partition's delete directory"]
    report = redact(tmp_path, "t", keys=[b"k"], apply=True)
    assert [one.what for one in report.copies] == ["the partition's delete directory"] and not left.exists()


def test_kept_records_with_damage_between_them_may_hold_any_key(tmp_path: Path) -> None:
    make(tmp_path / "t-0", count=20, per_segment=20)  # offset 15 has the key k7
    segment = tmp_path / "t-0" / f"{0:020d}.log"
    for number in (10, 15):
        flip_bits(segment, positions(segment)[number] + 70)
    mark_unclean(tmp_path / "t-0")
    kafkalog.open(tmp_path / "t-0", "a").close()
    (copy,) = redact(tmp_path, "t", keys=[b"k7"], apply=True, remove_kept=True).copies
    assert copy.removed and not (tmp_path / "t-0" / "kafkalog-kept").exists()


def test_kept_files_without_a_manifest_are_reported_and_removed(tmp_path: Path) -> None:
    """So a recovery or a removal leaves them that is killed; no list of what is kept has them."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([(b"k", b"v")])
    entry = tmp_path / "t-0" / "kafkalog-kept" / f"{0:020d}-0"
    entry.mkdir(parents=True)
    (entry / f"{0:020d}.log.from-0").write_bytes((tmp_path / "t-0" / f"{0:020d}.log").read_bytes())
    (copy,) = redact(tmp_path, "t", keys=[b"k"], apply=True).copies
    assert copy.path == str(entry) and not copy.removed and "--remove-kept" in copy.what and entry.exists()
    (copy,) = redact(tmp_path, "t", keys=[b"k"], apply=True, remove_kept=True).copies
    assert copy.path == str(entry) and copy.removed and not entry.exists()


@pytest.mark.parametrize(
    "place",
    ["data/kafkalog-restore.partial", "data.kafkalog-backup/1/dir0", "data.kafkalog-download/1/dir0",
     "data.kafkalog-restore/1/dir0"],
)  # fmt: skip
def test_what_killed_backups_and_restores_left_is_named(tmp_path: Path, place: str) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("t", 1, {})
        dirs["t", 0].append([(b"k", b"v")])
    (tmp_path / place / "other-0").mkdir(parents=True)
    assert not redact(tmp_path / "data", "t", keys=[b"k"]).copies
    (tmp_path / place / "t-0").mkdir()
    (copy,) = redact(tmp_path / "data", "t", keys=[b"k"], apply=True).copies
    assert copy.path == str(tmp_path / place.removesuffix("/1/dir0")) and "killed" in copy.what and not copy.removed
