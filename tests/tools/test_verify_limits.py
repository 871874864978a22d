"""`verify` at its limits: the last entry that counts, the hundredth finding, files that vanish or fail meanwhile."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import StorageError
from kafkalog.storage.producer_snapshot import format_snapshot
from kafkalog.tools.verify.directories import Report, Severity, verify
from kafkalog.util.fileio import FileSystem
from tests import raw_batches
from tests.builder import R, batch
from tests.faults import FaultFS
from tests.tools.test_verify_damage import LOG, epochs_of, write_log


def list_findings(report: Report) -> list[tuple[Severity, str]]:
    return [(one.severity, one.kind) for one in report]


@pytest.mark.parametrize("damaged", [99, 100, 101])
def test_a_hundred_findings_of_a_file_are_listed_and_those_beyond_counted(tmp_path: Path, damaged: int) -> None:
    parts = raw_batches.batches(0, 2 * damaged + 1, 1)
    path = write_log(tmp_path / "t-0", parts)
    content = bytearray(path.read_bytes())
    for n in range(damaged):
        content[sum(map(len, parts[: 2 * n])) + 70] ^= 1
    path.write_bytes(content)
    found = verify(path).problems
    assert len(found) == damaged
    assert [one.what for one in found if one.kind == "more"] == (["and 1 more like these"] if damaged > 100 else [])


@pytest.mark.parametrize(
    ("last_offset", "first_of_transaction", "kinds"),
    [(4, 3, []), (5, -1, ["snapshot-entry"]), (4, 5, ["snapshot-entry"]), (4, -1, [])],
)
def test_a_snapshot_knows_nothing_from_its_own_offset_on(
    tmp_path: Path, last_offset: int, first_of_transaction: int, kinds: list[str]
) -> None:
    path = write_log(tmp_path / "t-0", raw_batches.batches(0, 40, 5))
    entry = (9, 0, 0, last_offset, 0, 1000, -1, first_of_transaction)
    (path.parent / "00000000000000000005.snapshot").write_bytes(format_snapshot([entry]))
    assert [one.kind for one in verify(path.parent)] == kinds


@pytest.mark.parametrize(
    ("epochs", "found"),
    [((1, 3, 4, 2), ["epoch", "epoch", "epoch-late"]), ((1, 3, -1, 2), ["epoch", "epoch-late"]),
     ((1, 3, 3, 4), ["epoch-late", "epoch-late"]), ((0, 1, 0), ["epoch"])],
)  # fmt: skip
def test_an_epoch_is_late_only_where_no_lower_one_follows(
    tmp_path: Path, epochs: tuple[int, ...], found: list[str]
) -> None:
    parts = [raw_batches.batch(number, [b"x"], epoch=epoch) for number, epoch in enumerate(epochs)]
    path = write_log(tmp_path / "t-0", parts)
    (path.parent / "leader-epoch-checkpoint").write_text(f"0\n1\n{epochs[0]} 0\n")
    assert [one.kind for one in verify(path.parent).findings] == found


def test_old_entries_behind_those_of_an_open_log_are_a_note(tmp_path: Path) -> None:
    """Zeros at the end of its index show that the log was not closed: entries of the truncated part remain."""
    path = write_log(tmp_path / "t-0", raw_batches.batches(0, 40, 5))
    index = path.with_suffix(".index")
    entries = index.read_bytes()
    index.write_bytes(entries + entries[:16] + bytes(80))
    (note,) = verify(tmp_path).notes[:1]
    assert verify(tmp_path).ok and (note.kind, note.position) == ("index-order", len(entries))
    index.write_bytes(entries + entries[:16] + bytes(72) + entries[:8])
    assert list_findings(verify(tmp_path)) == [(Severity.REPAIRABLE, "index-order")]


@pytest.mark.parametrize(("size", "found"), [(2**31 - 1, []), (2**31, ["size"])])
def test_a_segment_has_less_than_two_gibibytes(tmp_path: Path, size: int, found: list[str]) -> None:
    path = write_log(tmp_path / "t-0", raw_batches.batches(0, 4, 5))
    os.truncate(path, size)
    assert [one.kind for one in verify(path) if one.severity == Severity.DAMAGE] == found


def test_a_data_directory_that_cannot_be_listed_is_named(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", raw_batches.batches(0, 4, 5))
    fs = FaultFS()
    fs.fail("listdir", path=str(tmp_path), nth=2, code=errno.EIO)
    with pytest.raises(StorageError, match="cannot list") as caught:
        verify(tmp_path, fs=fs)
    assert caught.value.path == str(tmp_path)


def test_a_directory_that_waits_for_its_delete_is_noted(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", raw_batches.batches(0, 4, 5))
    gone = tmp_path / "u-0.0123456789abcdef0123456789abcdef-delete"
    gone.mkdir()
    (gone / LOG).write_bytes(b"no batch")
    [note] = [one for one in verify(tmp_path).notes if one.path == str(gone)]
    assert (note.severity, note.kind) == (Severity.NOTE, "in-transit") and "pending deletion" in note.what


def test_a_leader_epoch_is_compared_with_the_checkpoint_or_with_the_batches_before(tmp_path: Path) -> None:
    parts = [raw_batches.batch(n, [b"x"], epoch=epoch) for n, epoch in enumerate((1, 5, 3))]
    path = write_log(tmp_path / "t-0", parts)
    epochs_of(path.parent, (1, 0), (5, 1))
    [finding] = verify(path.parent)
    assert finding.what == "batches up to offset 2 have leader epoch 3, but leader-epoch-checkpoint says 5"
    (path.parent / "leader-epoch-checkpoint").unlink()
    [finding] = verify(path.parent)
    assert finding.what == "batches up to offset 2 have leader epoch 3, but earlier batches have 5"


class GoneAfterRead(FileSystem):
    """A log is deleted by its owner once it was read."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def preadv(self, fd: int, buffers: tuple[memoryview], position: int) -> int:  # type: ignore[override]
        self.path.unlink(missing_ok=True)
        return os.preadv(fd, buffers, position)


def test_damage_of_a_segment_that_its_owner_deletes_meanwhile_is_no_problem(tmp_path: Path) -> None:
    parts = raw_batches.batches(0, 40, 5)
    path = write_log(tmp_path / "u-0", [bytes([*parts[0][:-1], parts[0][-1] ^ 1]), *parts[1:]])
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).unlink()
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b"x"])
        report = verify(tmp_path / "u-0", fs=GoneAfterRead(path))
    assert report.ok, str(report)
    assert [(one.kind, one.path) for one in report.notes] == [("changed", str(path))]


def test_a_transaction_index_that_cannot_be_read_is_told_of_its_segment(tmp_path: Path) -> None:
    path = write_log(tmp_path / "t-0", raw_batches.batches(0, 40, 5))
    path.with_suffix(".txnindex").write_bytes(b"")
    fs = FaultFS()
    fs.fail("open_read", path=".txnindex", code=errno.EIO)
    report = verify(path.parent, fs=fs)
    assert [str(one.severity) for one in report] == ["unreadable"]
    assert report.sums.batches == 40


@pytest.mark.parametrize(
    "name",
    ["t-0/00000000000000000200.snapshot", "t-0/leader-epoch-checkpoint", "t-0/partition.metadata", "meta.properties",
     "recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint"],
)  # fmt: skip
def test_a_small_file_that_cannot_be_read_is_named_and_the_log_checked(tmp_path: Path, name: str) -> None:
    write_log(tmp_path / "t-0", raw_batches.batches(0, 40, 5))
    file = tmp_path / name
    file.write_text("0\n0\n")
    fs = FaultFS()
    fs.fail("open_read", path="/" + name, code=errno.EIO)
    (found,) = (report := verify(tmp_path, fs=fs))
    assert (str(found.severity), found.kind, found.path) == ("unreadable", "unreadable", str(file))
    assert "Input/output error" in found.what and report.sums.batches == 40


@pytest.mark.parametrize("name", ["leader-epoch-checkpoint", "partition.metadata"])
def test_a_malformed_small_file_is_named_and_the_log_checked(tmp_path: Path, name: str) -> None:
    file = write_log(tmp_path / "t-0", raw_batches.batches(0, 40, 5)).parent / name
    file.write_text("nonsense")
    (found,) = (report := verify(tmp_path))
    assert (str(found.severity), found.kind, found.path) == ("damage", "checkpoint", str(file))
    assert report.sums.batches == 40


def test_a_largest_time_that_the_records_contradict_is_a_note(tmp_path: Path) -> None:
    parts = [batch([b"a"]), batch([R(b"b", timestamp=5)], base_offset=1, max_timestamp=9)]
    path = write_log(tmp_path / "t-0", parts)
    assert not verify(path.parent).notes
    (found,) = (report := verify(path.parent, deep=True)).notes
    assert report.ok and (found.kind, found.offset, found.position) == ("record-time", 1, len(parts[0]))
    assert found.what == "the batch states 9 as its largest timestamp, but its records differ"
