"""Lost segments, partitions and foreign directories are reported, also where no batch shows them."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord
from kafkalog.log.open_writable import OnDamage
from kafkalog.storage.damage import Skipped
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import Severity, verify
from tests import raw_batches
from tests.builder import message_v1
from tests.commands import kafkalog as run
from tests.tools.test_repair_directories import MARKS, POINTS, data_directory
from tests.tools.test_verify_damage import LOG, write_log

Opens = Callable[..., None]


def found(root: Path) -> list[tuple[str, str]]:
    """Kind and file name of each finding, notes too."""
    return [(one.kind, os.path.basename(one.path)) for one in verify(root).findings]


@pytest.mark.parametrize("name", ["lost+found", "nodash", "orders-0.old", "orders-0 (copy)", "orders-0-delete"])
def test_a_directory_that_stops_a_broker_is_a_note(tmp_path: Path, name: str) -> None:
    root = data_directory(tmp_path / "data", "a")
    (root / name).mkdir()
    (root / "remote-log-index-cache").mkdir()
    report = verify(root)
    assert report.ok and [(one.kind, os.path.basename(one.path)) for one in report.notes] == [("foreign", name)]
    assert "a broker does not start" in report.notes[0].what


def test_a_directory_with_an_illegal_topic_stops_no_broker(tmp_path: Path) -> None:
    root = data_directory(tmp_path / "data", "a")
    (root / "a b-0").mkdir()
    (note,) = verify(root).notes
    assert note.kind == "foreign" and "a broker" not in note.what


def test_a_partition_without_segments_is_compared_with_the_checkpoints(tmp_path: Path) -> None:
    root = data_directory(tmp_path / "data", "a", "b")
    (root / POINTS).write_text("0\n2\na 0 100\nb 0 100\n")
    assert found(root) == []
    for file in (root / "a-0").iterdir():
        file.unlink()
    assert found(root) == [("log-end", POINTS)]
    assert [change.kind for change in repair(root).changes] == ["rebuild"]
    (root / POINTS).write_text("0\n2\na 0 70\nb 0 100\n")
    (root / "log-start-offset-checkpoint").write_text("0\n1\na 0 70\n")
    assert verify(root).ok and repair(root).ok  # emptied and started again at 70


def test_files_of_segments_without_any_log_are_damage(tmp_path: Path) -> None:
    root = data_directory(tmp_path / "data", "a")
    (root / "a-0" / LOG).unlink()
    report = verify(root / "a-0")
    assert [(one.severity, one.kind) for one in report] == [(Severity.DAMAGE, "no-segments")]


def test_a_missing_partition_that_had_records_is_a_note(tmp_path: Path) -> None:
    root = data_directory(tmp_path / "data", "a")
    (root / "gone-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    (root / POINTS).write_text("0\n4\na 0 100\ngone 0 9\nlost 1 50\nnew 0 0\n")
    report = verify(root)
    (note,) = [one for one in report.notes if one.kind == "partition-missing"]
    assert report.ok and note.what == "lost-1 was on disk up to offset 50, but its directory is missing"


def test_a_segment_that_ends_before_its_index_lost_its_end(tmp_path: Path) -> None:
    write_log(tmp_path / "t-0", raw_batches.batches(0, 20, 5))
    write_log(tmp_path / "t-0", raw_batches.batches(100, 20, 5), "00000000000000000100.log")
    assert verify(tmp_path / "t-0").ok
    os.truncate(tmp_path / "t-0" / LOG, 0)
    report = verify(tmp_path / "t-0")
    (damage,) = [one for one in report if one.severity is Severity.DAMAGE]
    assert (damage.kind, damage.lost, report.lost_offsets) == ("cut-short", (0, 100), 100)


@pytest.mark.parametrize("batches", [0, 13])
def test_readers_raise_where_a_closed_segment_ends_before_its_index(
    tmp_path: Path, batches: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Cut between two batches it looks like a log that was compacted; the index knows that records are missing."""
    root = data_directory(tmp_path / "data", "other")
    parts = raw_batches.batches(0, 20, 5)
    path = write_log(root / "t-0", parts)
    write_log(root / "t-0", raw_batches.batches(100, 20, 5), "00000000000000000100.log")
    (root / POINTS).write_text("0\n1\nt 0 200\n")
    end, position = 5 * batches, sum(map(len, parts[:batches]))
    os.truncate(path, position)
    with kafkalog.open(root / "t-0") as log:
        for read in (log.records, log.batches, log.scan, lambda: [log[end]], lambda: log.records(end, end + 1)):
            with pytest.raises(CorruptRecord, match="ends before its index") as caught:
                list(read())  # type: ignore[operator]
            error = caught.value
            assert (error.path, error.offset, error.position) == (str(path), end, position)
            assert error.next_sound_offset == 100 and error.hint
        assert [one.offset for one in log[:end]] == list(range(end))
        assert [one.offset for one in log.records(100)] == list(range(100, 200))
        skipped: list[Skipped] = []
        assert len(list(log.records(on_damage="skip", skipped=skipped))) == end + 100
        assert [(one.position, one.size_bytes, one.offset, one.next_offset) for one in skipped] == [
            (position, 0, end, 100)
        ]
    (root / ".kafka_cleanshutdown").rename(tmp_path / "marker")
    with kafkalog.open(root / "t-0") as log:
        assert len(list(log.records())) == end + 100, "an index that is being written to may not fit yet"
    (tmp_path / "marker").rename(root / ".kafka_cleanshutdown")
    with kafkalog.open(root / "t-0", "a") as log:  # which rebuilds the index
        assert len(list(log.records())) == end + 100
    assert "entries behind the end of its segment" in caplog.text
    with kafkalog.open(root / "t-0") as log:
        assert len(list(log.records())) == end + 100, "once the index is rebuilt this is only a gap"


@pytest.mark.parametrize("text", ["", "xx", "[1]", "{}"])
def test_a_malformed_quorum_state(tmp_path: Path, text: str) -> None:
    root = data_directory(tmp_path / "data", "a")
    write_log(root / "__cluster_metadata-0", raw_batches.batches(0, 2, 1))
    (root / "__cluster_metadata-0" / "quorum-state").write_text('{"leaderEpoch":3,"data_version":0}')
    assert verify(root).ok
    (root / "__cluster_metadata-0" / "quorum-state").write_text(text)
    assert found(root) == [("checkpoint", "quorum-state")]


def test_a_repair_leaves_what_verify_finds_in_the_directory(tmp_path: Path) -> None:
    """The exit status of `repair` is 1 as long as a broker would refuse the directory."""
    root = data_directory(tmp_path / "data", "a")
    (root / "meta.properties").write_text("version=1\ncluster.id=x\n")
    report = repair(root)
    assert not report.ok and [one.kind for one in report.left] == ["meta-properties"]


def test_a_repair_of_a_partition_names_the_checkpoints_of_its_directory(tmp_path: Path) -> None:
    root = data_directory(tmp_path / "data", "a")
    (root / POINTS).write_text("0\n1\na 0 500\n")
    (root / MARKS).write_text("0\n1\na 0 500\n")
    alone = repair(root / "a-0", apply=True, backup_dir=tmp_path / "before")
    assert not alone.changes and [one.kind for one in alone.left] == ["log-end"] * 2
    assert all("of the data directory" in (one.hint or "") for one in alone.left)
    assert repair(root, apply=True, backup_dir=tmp_path / "before").ok and verify(root).ok


@pytest.mark.parametrize("arguments", [("offsets", "get"), ("stats",)])
def test_a_partition_that_cannot_be_opened_hides_no_other(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    root = data_directory(tmp_path / "data", "a", "b", "c")
    for file in (root / "b-0").iterdir():
        file.unlink()
    done = run(*arguments, "-d", root)
    assert done.returncode == 1 and b"b-0" in done.stderr
    assert b"a" in done.stdout and b"c" in done.stdout


def test_a_partition_without_segments_is_described(tmp_path: Path) -> None:
    root = data_directory(tmp_path / "data", "a")
    (root / "a-1").mkdir()
    done = run("topics", "describe", "-d", root)
    assert done.returncode == 0 and b"Partition: 1\tStart: 0\tEnd: 0\tSegments: 0" in done.stdout


def lose_the_end(data: Path, is_clean: bool) -> Path:
    """Return a data directory whose log ends at offset 100, before its recovery point."""
    root = data_directory(data, "a")
    (root / POINTS).write_text("0\n1\na 0 500\n")
    if not is_clean:
        (root / ".kafka_cleanshutdown").unlink()
    return root


def open_one(root: Path, on_damage: OnDamage = "recover") -> None:
    kafkalog.open(root / "a-0", "a", on_damage=on_damage).close()


def open_all(root: Path, on_damage: OnDamage = "recover") -> None:
    with kafkalog.open_dirs(root, "a", on_damage=on_damage) as dirs:
        dirs["a", 0]


@pytest.mark.parametrize("opens", [open_one, open_all])
@pytest.mark.parametrize("is_clean", [True, False])
def test_opening_a_log_that_lost_its_end_warns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, is_clean: bool, opens: Opens
) -> None:
    root = lose_the_end(tmp_path / "data", is_clean)
    for _ in range(2):  # the second opening has a corrected checkpoint
        opens(root)
    (said,) = [one for one in caplog.messages if "batches are missing" in one]
    assert said.endswith("a-0: the log was on disk up to offset 500, but ends at 100: batches are missing")


@pytest.mark.parametrize("opens", [open_one, open_all])
@pytest.mark.parametrize("is_clean", [True, False])
def test_opening_a_log_that_lost_its_end_is_refused(tmp_path: Path, is_clean: bool, opens: Opens) -> None:
    root = lose_the_end(tmp_path / "data", is_clean)
    before = {file.name: file.read_bytes() for file in (root / "a-0").iterdir()}
    for _ in range(2):
        with pytest.raises(CorruptRecord, match="on disk up to offset 500, but ends at 100") as raised:
            opens(root, "refuse")
        assert "on_damage='recover'" in str(raised.value.hint)
        assert {file.name: file.read_bytes() for file in (root / "a-0").iterdir()} == before
    opens(root)
    opens(root, "refuse")


def test_a_partition_without_segments_is_refused_like_one_that_lost_its_end(tmp_path: Path) -> None:
    root = lose_the_end(tmp_path / "data", True)
    for file in (root / "a-0").iterdir():
        file.unlink()
    with pytest.raises(CorruptRecord, match="on disk up to offset 500, but ends at 0"):
        open_all(root, "refuse")


def test_a_reader_of_a_closed_log_raises_at_its_lost_end(tmp_path: Path) -> None:
    root = lose_the_end(tmp_path / "data", True)
    with kafkalog.open(root / "a-0") as log:
        records = log.records()
        assert [next(records).offset for _ in range(100)] == list(range(100))
        with pytest.raises(CorruptRecord, match="on disk up to offset 500, but ends at 100"):
            next(records)
        skipped: list[Skipped] = []
        assert len(list(log.records(on_damage="skip", skipped=skipped))) == 100
        assert [(one.offset, one.next_offset, one.size_bytes) for one in skipped] == [(100, 500, 0)]
        assert len(list(log.records(0, 99))) == 99, "this range ends before"
        with pytest.raises(CorruptRecord):
            log[300]


@pytest.mark.parametrize("skips", [(), ("--on-damage", "skip")])
def test_consume_of_a_closed_log_reports_its_lost_end(tmp_path: Path, skips: tuple[str, ...]) -> None:
    root = lose_the_end(tmp_path / "data", True)
    ran = run("consume", "-d", root, "-t", "a", "-o", "beginning", "-f", r"%o\n", *skips)
    assert ran.stdout.split() == [b"%d" % offset for offset in range(100)]
    assert ran.returncode == 1 and b"on disk up to offset 500, but ends at 100" in ran.stderr


@pytest.mark.parametrize("torn", [b"", b"\0\0\0\0\0\0\0\3\0\0"], ids=["whole", "batch in progress"])
def test_a_reader_of_a_log_that_is_closed_meanwhile_ends_where_it_began(tmp_path: Path, torn: bytes) -> None:
    """The owner's recovery point is then above the end that the reader saw."""
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("a")
        dirs["a", 0].append([b"0", b"1", b"2"])
        path = tmp_path / "a-0" / f"{0:020d}.log"
        before = path.stat().st_size
        with open(path, "ab") as file:
            file.write(torn)
        log = kafkalog.open(tmp_path / "a-0")
        records = log.records()
        assert next(records).offset == 0
        os.truncate(path, before)
        dirs["a", 0].append([b"3", b"4"])
    with log:
        assert [one.offset for one in records] == [1, 2]
        assert len(list(log.records())) == 5


def test_a_reader_of_a_log_in_use_ends_at_its_end(tmp_path: Path) -> None:
    """A broker that truncates a log writes the recovery point later."""
    root = lose_the_end(tmp_path / "data", False)
    with kafkalog.open(root / "a-0") as log:
        assert len(list(log.records())) == 100


@pytest.mark.parametrize(("is_clean", "is_ok"), [(True, False), (False, True)])
def test_an_empty_epoch_file_is_late(tmp_path: Path, is_clean: bool, is_ok: bool) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("a")
        dirs["a", 0].append([b"x"])
    root = tmp_path / "data"
    (root / "a-0" / "leader-epoch-checkpoint").write_text("0\n0\n")
    if not is_clean:
        (root / ".kafka_cleanshutdown").unlink()
    report = verify(root)
    late = [one for one in report.findings if one.kind == "epoch-late"]
    assert len(late) == 1 and "leader-epoch-checkpoint is empty" in late[0].what and report.ok == is_ok
    if is_clean:
        assert repair(root, apply=True, backup_dir=tmp_path / "before").ok and verify(root).ok
        assert (root / "a-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_an_empty_epoch_file_of_a_log_without_visible_records_is_right(tmp_path: Path) -> None:
    """An opening forgets epochs that end at the log start, as of a log whose records were all deleted."""
    root = tmp_path / "data"
    with kafkalog.open_dirs(root, "a") as dirs:
        dirs.create_topic("a")
        dirs["a", 0].append([b"x", b"y"])
        dirs["a", 0].delete_before(2)
    with kafkalog.open_dirs(root, "a"):
        pass
    assert (root / "a-0" / "leader-epoch-checkpoint").read_text() == "0\n0\n"
    assert (root / "a-0" / LOG).stat().st_size > 0 and not verify(root).findings


def test_an_epoch_file_that_an_old_format_emptied_is_right(tmp_path: Path) -> None:
    """A follower's batch of an old format ends what was known of epochs; the next epoch has to be in the file."""
    path = tmp_path / "data" / "a-0"
    with kafkalog.open(path, "a") as log:
        log.replicate(raw_batches.batch(0, [b"x"], epoch=3))
        log.replicate(message_v1(1, b"old"))
    assert (path / "leader-epoch-checkpoint").read_text() == "0\n0\n" and not verify(path).findings
    with kafkalog.open(path, "a") as log:
        log.replicate(raw_batches.batch(2, [b"y"], epoch=4))
    (path / "leader-epoch-checkpoint").write_text("0\n0\n")
    (late,) = verify(path).findings
    assert (late.kind, late.offset) == ("epoch-late", 2)


def test_a_partition_of_another_topic_id_is_reported(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("a", partitions=3)
        dirs.create_topic("b", partitions=1)
        for partition in range(3):
            dirs["a", partition].append([b"x"])
    root = tmp_path / "data"
    assert verify(root).ok
    (root / "a-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAQACAAAAAAAAAAg")
    (one,) = verify(root).findings
    assert one.kind == "topic-id" and one.path.endswith("a-0/partition.metadata") and "the topic id is AAAA" in one.what
    assert not repair(root).ok, "it is left"
    with kafkalog.open_dirs(root, "a") as dirs:
        assert not dirs.problems and len(list(dirs["a", 0].records())) == 1


def test_a_log_truncated_to_its_start_is_sound(tmp_path: Path) -> None:
    """Its last batch ends below the log start: the records before it were compacted away, or lie in the same batch."""
    for name, rows in (("gap-0", [3, 3, 3]), ("within-0", [3, 6])):
        with kafkalog.open(tmp_path / name, "a", cleanup_policy="compact") as log:
            for count in rows:
                log.append([(b"key", b"%d" % number) for number in range(count)])
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs["gap", 0].roll()
        dirs.clean("gap")
        for topic in ("gap", "within"):
            dirs[topic, 0].delete_before(7)
            dirs[topic, 0].truncate_to(7)
    assert list(verify(tmp_path)) == []
    assert not [change for change in repair(tmp_path).changes if change.path.endswith("-offset-checkpoint")]
    for name in ("gap-0", "within-0"):
        with kafkalog.open(tmp_path / name) as log:
            assert (log.start_offset, log.end_offset) == (7, 7)
        with kafkalog.open(tmp_path / name, "a", on_damage="refuse") as log:
            assert log.append([(b"key", b"next")]).first_offset == 7
