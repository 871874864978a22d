"""`verify` on what the real Kafka wrote: sound where the reference has nothing to say, found where it has."""

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import IllegalArgument, NotAPartition, PartitionNotFound
from kafkalog.tools.verify.directories import Report, Severity, verify
from tests import golden_cases
from tests.golden_cases import Case
from tests.recovery_cases import damaged_copy, log_sizes

PLAIN = {"--files", "--deep-iteration", "--print-data-log", "--verify-index-only"}


def tree(root: Path) -> list[tuple[str, int, int, bytes]]:
    """Everything about the files below a directory that a reader must not change."""
    return sorted(
        (str(path.relative_to(root)), path.stat().st_mtime_ns, path.stat().st_size, path.read_bytes())
        for path in root.rglob("*")
        if path.is_file()
    )


def complaints(case: Case) -> set[str]:
    """The `.log` files of which the reference's dump says that bytes are bad."""
    bad = set()
    for name in case.expected_with(".txt"):
        text = case.expected_path(name).read_text("utf-8", "replace")
        if "isvalid: false" in text or "invalid bytes at the end" in text:
            bad.add(Path(name).name.partition(".log")[0] + ".log")
    return bad


@pytest.mark.parametrize("kind", ["logdir", "legacy", "crash"])
def test_what_the_reference_wrote_is_sound(kind: str) -> None:
    """LOG-12 of a stopped broker's directory, of one that was killed, and of old formats: no batch, entry or file is at
    fault unless the reference's own dump says so."""
    for case in golden_cases.partitions(kind):
        report = verify(case.directory, deep=True)
        assert {os.path.basename(one.path) for one in report} <= complaints(case), str(report)


@pytest.mark.parametrize("kind", ["logdir", "crash"])
def test_a_data_directory_is_looked_at_whole(kind: str, tmp_path: Path) -> None:
    cases = golden_cases.partitions(kind)
    if not cases:
        pytest.skip("the capture has no such directory")
    root = cases[0].directory.parent
    before = tree(root)
    report = verify(root, deep=True, threads=2)
    assert report.ok, str(report)
    assert report.sums.partitions >= len({case.name for case in cases})
    assert report.sums.segments == len(list(root.glob("*/*.log")))
    assert report.sums.bytes == sum(path.stat().st_size for path in root.glob("*/*.log"))
    assert tree(root) == before


def extra() -> tuple[Path, list[dict[str, Any]]]:
    """The directory of damaged copies, and the reference's runs over it."""
    folder = golden_cases.GOLDEN / "dump-extra"
    if not (folder / "data.tar.gz").is_file():
        pytest.skip("the capture has no damaged copies")
    runs = json.loads(gzip.decompress((folder / "runs.json.gz").read_bytes()))["runs"]
    return golden_cases.extracted("dump-extra/data.tar.gz") / "data", runs


def test_damaged_copies_are_found_and_the_others_are_not() -> None:
    """The reference's dump and `verify` complain about the same files of a partition, and no others."""
    root, runs = extra()
    theirs: dict[str, set[str]] = {}
    for run in runs:
        flags = {word for word in run["args"] if word.startswith("-")}
        files = [word for word in run["args"] if "/" in word]
        if not flags <= PLAIN or len(files) != 1 or "," in files[0] or "/" not in files[0]:
            continue
        partition, name = files[0].split("/", 1)
        if not (root / partition / name).is_file() or not name.endswith((".log", "index", ".snapshot")):
            continue
        trouble = run["exit"] or run["stderr"] or "isvalid: false" in run["stdout"] or "invalid bytes" in run["stdout"]
        if trouble:
            theirs.setdefault(partition, set()).add(name)
    report = verify(root, deep=True)
    found: dict[str, set[str]] = {}
    for one in report.findings:
        path = Path(one.path)
        if path.parent.parent == root:
            found.setdefault(path.parent.name, set()).add(path.name)
    for partition, names in theirs.items():
        # an index is at fault for the reference also where only its log is, or the index beside it
        own = {name for name in names if name.endswith((".log", ".txnindex", ".snapshot"))}
        assert own <= found.get(partition, set()), partition
        assert found.get(partition), partition
    # what the reference's dump does not look at (a format above 2, a cut transaction index), we do
    for partition in found.keys() - theirs.keys():
        assert partition.removesuffix("-0").endswith(("magic", "txishort", "noindex")), partition
    kinds = {one.kind for one in report}
    assert {"crc", "size", "magic", "tail-torn", "tail-crc", "tail-zeros", "snapshot", "txn-version"} <= kinds


@golden_cases.each_entry("recovery")
def test_what_recovery_cuts_is_found(entry: dict[str, Any], tmp_path: Path) -> None:
    """SEG-21: where the reference's recovery drops bytes of a log, the report on that log is not sound."""
    path = damaged_copy(entry, tmp_path)
    before = log_sizes([[one.name, one.stat().st_size] for one in path.iterdir()])
    after = log_sizes(entry["result"].get("filesAfterClose", []))
    report = verify(path)
    if entry["result"].get("filesAfterClose") and not entry["cleanShutdown"] and entry["recoveryPoint"] == 0:
        if any(after.get(name, 0) < size for name, size in before.items()):
            assert not report.ok, str(report)
    if not entry["steps"]:
        assert report.ok and not report.notes, str(report)


def copy_of(case: Case, to: Path) -> Path:
    shutil.copytree(case.directory, to / case.name)
    return to / case.name


def one_partition(where: str = "logdir") -> Case:
    """A partition of the capture with several segments."""
    for case in golden_cases.partitions(where):
        if len(case.files_with(".log")) > 1 and sum(case.path(name).stat().st_size for name in case.files) < 1 << 20:
            return case
    pytest.skip("the capture has no partition of several segments")


def test_report_as_text_and_as_json(tmp_path: Path) -> None:
    path = copy_of(one_partition(), tmp_path)
    log = sorted(path.glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    data[30] ^= 1
    log.write_bytes(data)
    report = verify(path)
    first = report.problems[0]
    assert (first.severity, first.kind, first.path, first.position) == (Severity.DAMAGE, "crc", str(log), 0)
    assert str(log) in str(report) and "damage" in str(report) and "replica" in str(report)
    lines = [json.loads(line) for line in report.json_lines()]
    assert lines[0] | {"type": "finding", "severity": "damage", "kind": "crc", "position": 0} == lines[0]
    assert lines[-1]["type"] == "report" and lines[-1]["ok"] is False and lines[-1]["damage"] == 1
    assert repr(report).startswith("<Report 1 problems") and not report.ok and list(report) == list(report.problems)


def test_a_log_verifies_itself(tmp_path: Path) -> None:
    path = copy_of(one_partition(), tmp_path)
    with kafkalog.open(path) as log:
        report = log.verify(deep=True)
        assert report.ok and report.sums.records == sum(len(batch.records()) for batch in log.batches())
        assert kafkalog.verify(path).sums.segments == len(log.segments)


def test_single_files(tmp_path: Path) -> None:
    """A file is looked at alone; an index with the log beside it, and then only the index is reported on."""
    path = copy_of(one_partition(), tmp_path)
    log = sorted(path.glob("*.log"))[0]
    index = log.with_suffix(".index")
    assert verify([log, index, log.with_suffix(".timeindex"), path / "leader-epoch-checkpoint"]).ok
    data = bytearray(log.read_bytes())
    data[30] ^= 1
    log.write_bytes(data)
    assert not verify(log).ok
    assert verify(index).ok
    index.write_bytes(index.read_bytes()[:-1])
    assert [one.kind for one in verify(index)] == ["index-size"]
    index.unlink()
    assert [one.kind for one in verify(log)] == ["crc"]
    assert "index-missing" in [one.kind for one in verify(path)]


def test_snapshots_and_topic_ids_are_verified_as_single_files(tmp_path: Path) -> None:
    snapshot, topic_id = tmp_path / "00000000000000000005.snapshot", tmp_path / "partition.metadata"
    snapshot.write_bytes(b"\0\1")
    topic_id.write_bytes(b"version: 0\ntopic_id: short")
    report = verify([snapshot, topic_id])
    assert [(one.kind, one.path) for one in report] == [("snapshot", str(snapshot)), ("checkpoint", str(topic_id))]
    assert report.sums.files == 2


def test_a_data_directory_may_be_named_like_a_partition(tmp_path: Path) -> None:
    """Directories in it show that it is none."""
    path = tmp_path / "data-1"
    shutil.copytree(one_partition().directory, path / "t-0")
    (path / "log-start-offset-checkpoint").write_text("0\n0\n")
    report = verify(path)
    assert report.sums.segments > 1 and [one.kind for one in report.notes] == ["unclean"], str(report)


def test_paths_that_are_nothing(tmp_path: Path) -> None:
    with pytest.raises(PartitionNotFound, match="no such file"):
        verify(tmp_path / "none-0")
    with pytest.raises(NotAPartition, match="no partition"):
        verify(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(NotAPartition, match="not a file of a partition"):
        verify(tmp_path / "notes.txt")
    (tmp_path / "00000000000000000000.index").write_bytes(b"")
    with pytest.raises(PartitionNotFound, match="log of this index"):
        verify(tmp_path / "00000000000000000000.index")
    with pytest.raises(IllegalArgument, match="threads"):
        verify(tmp_path, threads=0)
    with pytest.raises(IllegalArgument, match="indexes_only"):
        verify(tmp_path, deep=True, indexes_only=True)


def test_an_empty_partition_and_an_empty_log_are_sound(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    path.mkdir()
    assert verify(path).ok
    (path / "00000000000000000000.log").write_bytes(b"")
    assert verify(path).ok and isinstance(verify(path), Report)
