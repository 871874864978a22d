"""Damage of every kind is found and classified: in the middle, at the end, in a field outside the checksum."""

import os
import random
import struct
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.tools.verify.directories import Report, Severity, verify
from kafkalog.util.fileio import FileSystem
from tests import raw_batches
from tests.builder import varint

LOG = "00000000000000000000.log"
ABORT, COMMIT = 0, 1
TRANSACTIONAL, CONTROL = 0x10, 0x20


def write_log(directory: Path, parts: list[bytes], name: str = LOG) -> Path:
    """A segment of these batches with the indexes that belong to them."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / name
    base = int(name.split(".")[0])
    path.write_bytes(b"".join(parts))
    index, times = raw_batches.index_entries(base, parts, 256)
    path.with_suffix(".index").write_bytes(index)
    path.with_suffix(".timeindex").write_bytes(times)
    return path


def severities(report: Report) -> set[str]:
    return {str(one.severity) for one in report}


def kinds(report: Report) -> list[str]:
    return [one.kind for one in report]


@pytest.fixture
def parts() -> list[bytes]:
    return raw_batches.batches(0, 40, 5)


def test_an_undamaged_log_has_no_findings(tmp_path: Path, parts: list[bytes]) -> None:
    write_log(tmp_path / "t-0", parts)
    report = verify(tmp_path / "t-0", deep=True)
    assert report.ok and not report.notes, str(report)
    assert (report.sums.batches, report.sums.records) == (40, 200)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_flipped_byte_is_found(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes under the checksum by it; base offset, size, leader epoch and magic by what stands around them. Of the last
    batch a larger base offset is a gap, and a larger leader epoch one that the checkpoint does not know: notes."""
    parts = raw_batches.batches(0, 12, 3)
    path = write_log(tmp_path / "t-0", parts)
    (path.parent / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    content = bytearray(path.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    path.write_bytes(content)
    report = verify(path.parent)
    if report.ok:
        place = at - (len(content) - len(parts[-1]))
        wanted = "gap" if 0 <= place < 8 else "epoch-late" if 12 <= place < 16 else "a problem"
        assert [one.kind for one in report.notes] == [wanted], at


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_every_flipped_byte_of_an_index_is_found(tmp_path: Path, data: st.DataObject) -> None:
    path = write_log(tmp_path / "t-0", raw_batches.batches(0, 12, 3))
    name = data.draw(st.sampled_from([".index", ".timeindex"]))
    index = path.with_suffix(name)
    content = bytearray(index.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    index.write_bytes(content)
    report = verify(path.parent)
    # an entry that says a later batch's end is what releases before 3.9.1 wrote, where it is one
    assert {one.path for one in report.findings} == {str(index)}, (at, str(report))


@pytest.mark.parametrize(
    ("cut", "kind"),
    [(lambda log: log[:-1], "tail-torn"), (lambda log: log[:-100], "tail-torn"),
     (lambda log: log + b"\0" * 4096, "tail-zeros"), (lambda log: log + b"\0\0\0", "tail-zeros"),
     (lambda log: log[:-1] + b"!", "tail-crc"), (lambda log: log + b"\xff" * 300, "tail-size")],
)  # fmt: skip
def test_an_end_that_is_no_batch_is_repairable(
    tmp_path: Path, parts: list[bytes], cut: Callable[[bytes], bytes], kind: str
) -> None:
    """SEG-22, FILE-12: what a crash leaves at the end of the last segment costs no whole batch."""
    path = write_log(tmp_path / "t-0", parts)
    path.write_bytes(cut(path.read_bytes()))
    tails = [one for one in verify(path.parent) if one.path == str(path)]
    assert [(one.severity, one.kind) for one in tails] == [(Severity.REPAIRABLE, kind)]
    assert tails[0].position in (sum(map(len, parts)), sum(map(len, parts[:-1])))


def test_the_same_end_is_damage_where_more_follows_or_the_directory_was_closed_well(
    tmp_path: Path, parts: list[bytes]
) -> None:
    path = write_log(tmp_path / "t-0", parts)
    write_log(tmp_path / "t-0", raw_batches.batches(200, 5, 5), "00000000000000000200.log")
    path.write_bytes(path.read_bytes()[:-1])
    report = verify(path.parent)
    assert "damage" in severities(report) and "later" in str(report)
    last = write_log(tmp_path / "u-0", parts)
    last.write_bytes(last.read_bytes()[:-1])
    assert severities(verify(last.parent)) == {"repairable"}
    (tmp_path / ".kafka_cleanshutdown").write_bytes(b"")
    assert "damage" in severities(verify(last.parent)) and "closed cleanly" in str(verify(last.parent))


@pytest.mark.parametrize("field", ["size", "crc", "length past the end"])
def test_damage_in_the_middle_is_damage_and_what_follows_is_read(
    tmp_path: Path, parts: list[bytes], field: str
) -> None:
    """The next sound batch is found, whatever the damaged one says of its size."""
    path = write_log(tmp_path / "t-0", parts)
    content = bytearray(path.read_bytes())
    at = sum(map(len, parts[:20]))
    if field == "crc":
        content[at + 80] ^= 1
    else:
        struct.pack_into(">i", content, at + 8, 5 if field == "size" else 1 << 28)
    path.write_bytes(content)
    report = verify(path.parent, deep=True)
    assert severities(report) == {"damage"} and len(report.problems) == 1, str(report)
    assert report.problems[0].position == at and str(at + len(parts[20])) in report.problems[0].what
    assert report.sums.batches == 39


def test_many_damaged_batches_are_one_finding_where_they_touch_and_at_most_a_hundred(tmp_path: Path) -> None:
    parts = raw_batches.batches(0, 1200, 1)
    path = write_log(tmp_path / "t-0", parts)
    content = bytearray(path.read_bytes())
    at = 0
    for n, part in enumerate(parts[:-1]):
        if n % 3:
            content[at + 70] ^= 1
        at += len(part)
    path.write_bytes(content)
    report = verify(path)
    assert len(report.problems) == 101 and "300 more" in report.problems[-1].what


def deceiving_bytes() -> bytes:
    """Headers that promise large batches at every place."""
    decoy = struct.pack(">qiibIhi", 0, (1 << 22) - 12, 0, 2, 0, 0, 0) + bytes(30) + struct.pack(">i", 1)
    return b"\xff" * 100 + decoy * (8 << 20 >> 6)


def test_bytes_made_to_deceive_do_not_hold_the_search_up(tmp_path: Path) -> None:
    """The search gives up and says so, and calls it damage."""
    path = tmp_path / "t-0" / LOG
    path.parent.mkdir()
    path.write_bytes(deceiving_bytes())
    report = verify(path)
    assert severities(report) == {"damage"} and "abandoned" in str(report)


@pytest.mark.parametrize(
    ("make", "kind", "words"),
    [(lambda: raw_batches.batch(0, [b"x"], magic=3), "magic", "format 3"),
     (lambda: raw_batches.batch(0, [b"x"], attributes=6), "header", "attributes 0x6"),
     (lambda: raw_batches.batch(0, [b"x", b"y"], last_delta=0), "header", "2 records"),
     (lambda: raw_batches.batch(0, [b"x"], last_delta=-5), "header", "0 to -5"),
     (lambda: raw_batches.batch(1 << 40, [b"x"]), "range", "are outside")],
)  # fmt: skip
def test_headers_that_cannot_be_though_the_checksum_holds(
    tmp_path: Path, make: Callable[[], bytes], kind: str, words: str
) -> None:
    path = tmp_path / "t-0" / LOG
    path.parent.mkdir()
    path.write_bytes(make() + raw_batches.batch(1 if kind != "range" else 0, [b"z"]))
    report = verify(path)
    assert kind in kinds(report) and words in str(report), str(report)


def test_offsets_that_go_back_and_segments_that_overlap(tmp_path: Path) -> None:
    path = tmp_path / "t-0" / LOG
    path.parent.mkdir()
    path.write_bytes(raw_batches.batch(0, [b"a"] * 5) + raw_batches.batch(3, [b"b"] * 5))
    report = verify(path)
    assert kinds(report) == ["order"] and "ends at 4" in str(report)
    path.write_bytes(raw_batches.batch(0, [b"a"] * 5))
    path.with_name("00000000000000000003.log").write_bytes(raw_batches.batch(3, [b"b"]))
    assert "overlap" in kinds(verify(path.parent))


def test_records_that_contradict_their_batch_need_the_deep_check(tmp_path: Path) -> None:
    path = tmp_path / "t-0" / LOG
    path.parent.mkdir()
    broken = bytearray(raw_batches.batch(3, [b"value"] * 2))
    broken[61] += 2  # the first record's length
    body = bytes(broken[21:])
    path.write_bytes(
        raw_batches.batch(0, [b"a"] * 3, deltas=[0, 2, 1], last_delta=2) + raw_batches.framed(3, body)
        + raw_batches.batch(5, [b"a"] * 2, deltas=[0, 7], last_delta=1) + raw_batches.batch(9, [b"a"])
    )  # fmt: skip
    assert verify(path).ok
    report = verify(path, deep=True)
    assert [(one.kind, one.severity) for one in report] == [("record", Severity.DAMAGE)] * 3
    assert [one.offset for one in report] == [1, 3, 12]


def epochs_of(directory: Path, *epochs: tuple[int, int]) -> None:
    lines = "".join(f"{epoch} {start}\n" for epoch, start in epochs)
    (directory / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs)}\n{lines}")


def test_leader_epochs_against_the_checkpoint(tmp_path: Path) -> None:
    """A batch's epoch is that of the checkpoint; one that the checkpoint does not know yet comes from a crash."""
    parts = [raw_batches.batch(n, [b"x"], epoch=epoch) for n, epoch in enumerate((1, 1, 2, 2, 5))]
    path = write_log(tmp_path / "t-0", parts)
    epochs_of(path.parent, (1, 0), (2, 2), (5, 4))
    assert verify(path.parent).ok
    epochs_of(path.parent, (1, 0), (2, 2))
    assert verify(path.parent).ok and [one.kind for one in verify(path.parent).notes] == ["epoch-late"]
    epochs_of(path.parent, (1, 0), (2, 1), (5, 4))
    assert kinds(verify(path.parent)) == ["epoch"]
    (path.parent / "leader-epoch-checkpoint").unlink()
    path.write_bytes(b"".join([*parts, raw_batches.batch(5, [b"x"], epoch=4)]))
    assert kinds(verify(path.parent)) == ["epoch"]
    (path.parent / "leader-epoch-checkpoint").write_text("0\n9\n")
    assert "checkpoint" in kinds(verify(path.parent))


def txn_batch(offset: int, producer: int, *, marker: int | None = None) -> bytes:
    """A transactional batch of one record, or the marker that ends the producer's transaction."""
    if marker is None:
        body = b"\0\0" + varint(0) + varint(-1) + varint(1) + b"x" + varint(0)
        attributes = TRANSACTIONAL
    else:
        key, value = struct.pack(">hh", 0, marker), struct.pack(">hi", 0, 0)
        body = b"\0\0" + varint(0) + varint(len(key)) + key + varint(len(value)) + value + varint(0)
        attributes = TRANSACTIONAL | CONTROL
    record = varint(len(body)) + body
    return raw_batches.framed(offset, struct.pack(">hiqqqhii", attributes, 0, 5, 5, producer, 0, -1, 1) + record)


def txn_entry(producer: int, first: int, last: int, stable: int) -> bytes:
    return struct.pack(">hqqqq", 0, producer, first, last, stable)


@pytest.mark.parametrize(
    ("index", "found"),
    [([(9, 0, 3, 2), (8, 2, 5, 6)], []), ([(9, 0, 3, 2)], ["txn-missing"]),
     ([(8, 2, 5, 6)], ["txn-missing"]), ([(9, 0, 3, 2), (8, 2, 6, 6)], ["txn-entry", "txn-missing"]),
     ([(9, 1, 3, 2), (8, 2, 5, 6)], ["txn-entry"]), ([(8, 2, 5, 6), (9, 0, 3, 2)], ["txn-entry"]),
     ([(9, 0, 3, 9), (8, 2, 5, 6)], ["txn-entry"]), ([(9, 4, 3, 2), (8, 2, 5, 6)], ["txn-entry", "txn-entry"])],
)  # fmt: skip
def test_transaction_index_against_the_markers(
    tmp_path: Path, index: list[tuple[int, int, int, int]], found: list[str]
) -> None:
    """TXN-2: an entry for each aborted transaction, and a marker for each entry."""
    path = tmp_path / "t-0" / LOG
    path.parent.mkdir()
    path.write_bytes(
        txn_batch(0, 9) + txn_batch(1, 9) + txn_batch(2, 8) + txn_batch(3, 9, marker=ABORT) + txn_batch(4, 8)
        + txn_batch(5, 8, marker=ABORT) + txn_batch(6, 9) + txn_batch(7, 9, marker=COMMIT)
        + txn_batch(8, 7, marker=ABORT)
    )  # fmt: skip
    path.with_suffix(".txnindex").write_bytes(b"".join(txn_entry(*entry) for entry in index))
    assert kinds(verify(path)) == found
    # data below the log start is never read, and may have lost its entry to a delete that a crash stopped
    (tmp_path / "log-start-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    assert "txn-missing" not in kinds(verify(tmp_path))


def test_indexes_only_leaves_checksums_out(tmp_path: Path, parts: list[bytes]) -> None:
    path = write_log(tmp_path / "t-0", parts)
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    path.write_bytes(content)
    assert verify(path.parent, indexes_only=True).ok and not verify(path.parent).ok
    path.with_suffix(".index").write_bytes(path.with_suffix(".index").read_bytes()[8:16] * 2)
    assert kinds(verify(path.parent, indexes_only=True)) == ["index-order"]


def test_small_files_that_are_damaged(tmp_path: Path, parts: list[bytes]) -> None:
    """CKPT-5, PSM: each file of a partition and of the data directory is read as its owner reads it."""
    path = write_log(tmp_path / "t-0", parts)
    (path.parent / "00000000000000000005.snapshot").write_bytes(b"\0\1")
    (path.parent / "partition.metadata").write_bytes(b"version: 0\ntopic_id: short")
    (tmp_path / "meta.properties").write_bytes(b"#x\nversion=1\nnode.id=a\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_bytes(b"0\n1\nt 0 201\n")
    (tmp_path / "log-start-offset-checkpoint").write_bytes(b"0\n2\nt 0 1\n")
    (tmp_path / "replication-offset-checkpoint").write_bytes(b"0\n1\nt 0 200\n")
    report = verify(tmp_path)
    expected = ["checkpoint", "checkpoint", "log-end", "meta-properties", "meta-properties", "snapshot"]
    assert sorted(kinds(report)) == expected
    assert "ends at 200" in str(report) and "offset 201" in str(report)


def test_what_cannot_be_read_is_told_and_the_rest_is_looked_at(tmp_path: Path, parts: list[bytes]) -> None:
    from tests.faults import FaultFS

    write_log(tmp_path / "t-0", parts)
    write_log(tmp_path / "t-1", parts)
    fs = FaultFS()
    fs.fail("open_read", path="/t-0/" + LOG, code=13)
    report = verify(tmp_path, fs=fs)
    assert [(one.severity, one.path) for one in report] == [(Severity.UNREADABLE, str(tmp_path / "t-0" / LOG))]
    assert report.sums.batches == 40
    fs.heal()
    fs.fail("preadv", path="/t-1/" + LOG, code=5, nth=1)
    assert [one.kind for one in verify(tmp_path, fs=fs)] == ["unreadable"]
    fs.heal()
    meta = tmp_path / "meta.properties"
    meta.write_text("version=1\nnode.id=1\ncluster.id=x\n")
    fs.fail("open_read", path="/meta.properties", code=13)
    (found,) = verify(tmp_path, fs=fs)
    assert (found.severity, found.path) == (Severity.UNREADABLE, str(meta)) and "Permission denied" in found.what


def test_beside_a_writer(tmp_path: Path) -> None:
    """Half-done work of a running owner is no damage: its log is open, and its last batch is being written."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b"x" * 100] * 100)
        report = verify(tmp_path)
        assert report.ok, str(report)
        path = tmp_path / "t-0" / LOG
        with path.open("ab") as file:
            file.write(path.read_bytes()[:40])
        report = verify(tmp_path)
        assert report.ok and "in use" in str(report), str(report)
        log.truncate_to(50)
    assert severities(verify(tmp_path / "t-0")) <= {"repairable"}


def test_a_cut_inside_a_batch_is_no_damage(tmp_path: Path) -> None:
    """LOG-53: the batch goes whole, the snapshot of the offset asked for stays; checkpoints show a lost end."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b"x"] * 100)
        log.append([b"x"] * 100)
        log.truncate_to(150)
    report = verify(tmp_path, deep=True)
    assert report.ok and "snapshot-ahead" in {finding.kind for finding in report.findings}, str(report)
    marker = tmp_path / ".kafka_cleanshutdown"
    data = marker.read_bytes()
    marker.unlink()
    assert severities(verify(tmp_path)) == {"repairable"}
    marker.write_bytes(data)
    (tmp_path / "t-0" / LOG).write_bytes(b"")
    assert "damage" in severities(verify(tmp_path))


def test_beside_a_writer_that_rolls_cuts_and_deletes(tmp_path: Path) -> None:
    """LOG-26 for a check: whatever changes between two reads of it, a sound log is never called damaged."""
    rng = random.Random(3)
    rounds = 0
    done = threading.Event()

    def write(log: kafkalog.Log) -> None:
        while not done.wait(0.001):  # slower than a check, whose work would grow without end otherwise
            log.append([b"x" * rng.choice([10, 3000])] * rng.randrange(1, 60))
            turn = rng.random()
            if turn < 0.04:
                log.roll()
            elif turn < 0.08:
                log.truncate_to(rng.randrange(max(log.start_offset, log.end_offset - 500), log.end_offset + 1))
            elif turn < 0.1:
                log.delete_before(max(log.start_offset, log.end_offset - rng.randrange(5000)))

    with kafkalog.open(tmp_path / "t-0", "a", segment_bytes=1 << 20, index_interval_bytes=512) as log:
        log.append([b"first"])
        thread = threading.Thread(target=write, args=(log,))
        thread.start()
        try:
            for rounds in range(40):
                report = verify(tmp_path, threads=2, deep=rounds % 4 == 0)
                assert report.ok, str(report)
        finally:
            done.set()
            thread.join()
    assert rounds == 39 and verify(tmp_path, deep=True).ok


class Unsteady(FileSystem):
    """Each read of a log shows another of its bytes changed, as if its owner wrote between two looks."""

    def __init__(self) -> None:
        self.reads = 0

    def preadv(self, fd: int, buffers: tuple[memoryview], position: int) -> int:  # type: ignore[override]
        read = os.preadv(fd, buffers, position)
        if position == 0 and read > 1000:
            buffers[0][70 + 200 * self.reads] ^= 1
            self.reads += 1
        return read


def test_a_problem_counts_when_a_second_look_finds_it_too(tmp_path: Path) -> None:
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        for _ in range(20):
            log.append([b"x" * 130])
        fs = Unsteady()
        assert verify(tmp_path, fs=fs).ok and fs.reads >= 2
        path = tmp_path / "t-0" / LOG
        content = bytearray(path.read_bytes())
        content[70] ^= 1
        path.write_bytes(content)
        assert [(one.kind, one.position) for one in verify(tmp_path)] == [("crc", 0)]
    content[70] ^= 1
    path.write_bytes(content)
    (tmp_path / ".lock").unlink()
    assert not verify(tmp_path, fs=Unsteady()).ok, "without a writer the read bytes count"


def test_room_reserved_by_a_running_owner_is_not_told(tmp_path: Path, parts: list[bytes]) -> None:
    """FILE-11: a preallocated segment is mostly zeros while it is written."""
    with kafkalog.open(tmp_path / "t-0", "a") as log:
        log.append([b"x"])
        path = write_log(tmp_path / "u-0", parts)
        os.truncate(path, 300 << 20)
        report = verify(tmp_path)
        assert report.ok and not report.notes, str(report)
    report = verify(tmp_path / "u-0")
    assert [(one.kind, one.position) for one in report] == [("tail-zeros", sum(map(len, parts)))]


def test_files_in_transit_and_kraft_snapshots_can_be_looked_at(tmp_path: Path, parts: list[bytes]) -> None:
    path = write_log(tmp_path / "t-0", parts)
    snapshot = path.with_name("00000000000000000200-0000000001.checkpoint")
    snapshot.write_bytes(path.read_bytes())
    assert verify(path.parent).ok and verify(snapshot).ok
    snapshot.write_bytes(path.read_bytes()[:-1])
    assert [one.path for one in verify(path.parent)] == [str(snapshot)]
    snapshot.unlink()
    for suffix in (".deleted", ".cleaned", ".swap"):
        moved = path.with_name(LOG + suffix)
        moved.write_bytes(path.read_bytes())
        assert verify(moved).ok and verify(moved).sums.batches == 40
        moved.write_bytes(path.read_bytes()[:-1])
        assert not verify(moved).ok and verify(path.parent).ok
        moved.unlink()


class CutsAtRead(FileSystem):
    """The `nth` read of a log finds it cut to so many bytes, as its owner may at any moment."""

    def __init__(self, path: Path, nth: int, length: int) -> None:
        self.path, self.left, self.length = path, nth, length

    def preadv(self, fd: int, buffers: tuple[memoryview], position: int) -> int:  # type: ignore[override]
        self.left -= 1
        if self.left == 0:
            os.truncate(self.path, self.length)
        return os.preadv(fd, buffers, position)


@pytest.mark.parametrize("size", [10, 3000, 70_000])
@pytest.mark.parametrize("nth", [1, 2, 3])
@pytest.mark.parametrize("back", [0, 1, 45, 2000])
def test_a_file_that_is_cut_while_it_is_read_ends_there(tmp_path: Path, size: int, nth: int, back: int) -> None:
    """Inside a small batch, inside one that is read in pieces, before any: the rest is reported, and it ends."""
    parts = [raw_batches.batch(n, [b"x" * size], timestamp=1000 + n) for n in range(9)]
    path = write_log(tmp_path / "t-0", parts)
    length = max(0, sum(map(len, parts[:5])) - back)
    report = verify(path, fs=CutsAtRead(path, nth, length))
    left, read = path.stat().st_size, max(0, nth - 1) * 262_144 // len(parts[0])
    whole = len(parts) if left > length else max(read, length // len(parts[0]))
    assert report.sums.batches == whole and "damage" not in severities(report), str(report)
    assert left > length or "the file was truncated to" in str(report)


class EndsAt(FileSystem):
    """Reads of a log return an end that its length does not show, `times` times: as on a network file system."""

    def __init__(self, end: int, times: int) -> None:
        self.end, self.times = end, times

    def preadv(self, fd: int, buffers: tuple[memoryview], position: int) -> int:  # type: ignore[override]
        if self.times == 0 or position + len(buffers[0]) <= self.end:
            return os.preadv(fd, buffers, position)
        room = max(0, self.end - position)
        self.times -= room == 0
        return os.preadv(fd, (buffers[0][:room],), position) if room else 0


def test_a_file_that_does_not_give_what_its_length_tells_is_unreadable(tmp_path: Path) -> None:
    """Nothing is known of the rest, so nothing is to be cut; where it comes after all, it is read."""
    path = write_log(tmp_path / "t-0", [raw_batches.batch(n, [b"x" * 3000], timestamp=1000 + n) for n in range(9)])
    report = verify(path, fs=EndsAt(10_000, -1))
    assert severities(report) == {"unreadable"} and "only 10000 of the" in str(report)
    assert verify(path, fs=EndsAt(10_000, 2)).sums.batches == 9
