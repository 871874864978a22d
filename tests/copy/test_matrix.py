"""Each source into each target: what arrives, read plainly from the target's segment files."""

from pathlib import Path

import pytest

from kafkalog.copy import copy_topics
from kafkalog.errors import IllegalArgument
from kafkalog.server.groups.stored import committed_offsets
from kafkalog.storage.partition_metadata import read_partition_metadata
from kafkalog.util.fileio import OS
from tests import commands
from tests.copy.topics import GROUPS, TRANSACTIONS, cluster_on, expected_of, fill, records_in, source_of
from tests.redact.model import read_all
from tests.tiered.test_readers import make_data, make_log
from tests.tiered_store import values_of

SOURCES = ("directory", "backup", "cluster", "tiered")
TOPICS = ("compacted", "old", "plain", "transactions", "trimmed")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("copy") / "data"
    fill(where)
    return where


def groups_of(kind: str) -> set[str]:
    return set() if kind == "tiered" else set(GROUPS)


@pytest.mark.parametrize("kind", SOURCES)
def test_a_directory_gets_the_same_batches_offsets_and_groups(kind: str, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "copied"
    with source_of(kind, data, tmp_path) as source:
        plan = copy_topics(source, str(target), TOPICS)
        assert not target.exists() and not plan.applied and plan.groups == len(groups_of(kind))
        report = copy_topics(source, str(target), TOPICS, apply=True)
        again = copy_topics(source, str(target), TOPICS, apply=True)
    assert report.applied and report.ok and again.records == again.size == 0
    assert report.not_kept == plan.not_kept == again.not_kept
    kept = {row.what for row in report.not_kept}
    expected = {f"records from offset {TRANSACTIONS.stable} on"} | ({"settings"} if kind == "tiered" else set())
    assert kept == expected
    for name, wanted in expected_of(data).items():
        found = read_all(target / name)
        if kind == "tiered" and name == "trimmed-0":  # a store has whole segments, and no start inside one
            wanted = wanted._replace(batches=read_all(data / name))
        assert found == wanted.batches, name
    ends = {(one.topic, one.partition): (one.first, one.end) for one in report.partitions}
    assert ends["trimmed", 0] == ((0, 20) if kind == "tiered" else (10, 20))
    offsets = committed_offsets([str(target)])
    if kind != "tiered":
        assert {group: offsets[group] for group in GROUPS} == GROUPS
        for name in ("plain-0", "trimmed-0"):
            assert read_partition_metadata(OS, str(target / name)) == read_partition_metadata(OS, str(data / name))


@pytest.mark.parametrize("kind", SOURCES)
def test_a_cluster_gets_the_committed_records_at_consecutive_offsets(kind: str, data: Path, tmp_path: Path) -> None:
    with source_of(kind, data, tmp_path) as source, cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        plan = copy_topics(source, target, TOPICS)
        assert not list((tmp_path / "cluster").glob("plain-*"))
        report = copy_topics(source, target, TOPICS, apply=True)
        again = copy_topics(source, target, TOPICS, apply=True)
    assert report.ok and again.records == 0 and {row.what for row in plan.not_kept} >= {"topic id, leader epochs"}
    for name, wanted in expected_of(data).items():
        if kind == "tiered" and name == "trimmed-0":
            wanted = wanted._replace(records=records_in(data / name))
        found = records_in(tmp_path / "cluster" / name)
        assert [one[1:] for one in found] == [one[1:] for one in wanted.records], name
        assert [one.offset for one in found] == list(range(len(found)))
        is_kept = [one.offset for one in wanted.records] == list(range(len(found)))
        reported = next(one for one in report.partitions if f"{one.topic}-{one.partition}" == name)
        assert reported.offsets == ("kept" if is_kept else "new") and reported.end == len(found)
        rows = [row for row in report.not_kept if row.where == name and row.what == "offsets"]
        assert bool(rows) is not is_kept, name
    offsets = committed_offsets([str(tmp_path / "cluster")])
    for group in groups_of(kind):
        for topic, partitions in GROUPS[group].items():
            for number, offset in partitions.items():
                records = expected_of(data)[f"{topic}-{number}"].records
                before = sum(one.offset < offset for one in records)
                assert offsets[group][topic][number] == before, (group, topic)


def test_batches_of_a_cluster_keep_boundaries_and_codecs(data: Path, tmp_path: Path) -> None:
    with cluster_on(tmp_path / "cluster") as server:
        copy_topics(str(data), f"kafka://{server.bootstrap}", ["plain", "compacted"], apply=True)
    for name in ("plain-0", "plain-1", "compacted-0"):
        before, after = read_all(data / name), read_all(tmp_path / "cluster" / name)
        assert [(len(one.records), one.fixed[3] & 7) for one in before] == [
            (len(one.records), one.fixed[3] & 7) for one in after
        ]
        assert [one.fixed[6] for one in before] == [one.fixed[6] for one in after]  # the largest timestamps


@pytest.mark.parametrize("kind", ["directory", "cluster"])
def test_committed_records_only_into_a_directory(kind: str, data: Path, tmp_path: Path) -> None:
    target = tmp_path / "copied"
    with source_of(kind, data, tmp_path) as source:
        for _ in range(2):
            report = copy_topics(source, str(target), ["transactions"], isolation="read_committed", apply=True)
    wanted = expected_of(data)["transactions-0"].records
    assert records_in(target / "transactions-0") == wanted
    assert all(one.fixed[3] & 0x30 == 0 and one.fixed[7] == -1 for one in read_all(target / "transactions-0"))
    assert "aborted records, markers" in {row.what for row in report.not_kept}
    assert committed_offsets([str(target)])["readers"] == {"transactions": {0: 9}}


def test_a_tiered_topic_is_copied_whole(tmp_path: Path) -> None:
    """Its older segments lie in a store, compressed and encrypted."""
    data, tiered = make_data(tmp_path), str(tmp_path / "tiered.json")
    target = tmp_path / "copied"
    commands.ok("copy", "--from", data, "--to", target, "-t", "orders", "--tiered", tiered, "--apply")
    assert [(one.offset, one.value) for one in records_in(target / "orders-0")] == values_of(make_log())
    assert copy_topics(str(data), str(target), ["orders"], tiered=tiered, apply=True).records == 0
    with pytest.raises(IllegalArgument, match="a cluster reads its tiered segments itself"):
        copy_topics("kafka://localhost:1", str(target), tiered=tiered)


def test_offsets_that_have_to_be_kept(data: Path, tmp_path: Path) -> None:
    with cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        for topic in ("compacted", "trimmed", "transactions"):
            with pytest.raises(IllegalArgument, match="cannot be kept"):
                copy_topics(str(data), target, [topic], offsets="keep", apply=True)
        report = copy_topics(str(data), target, ["plain"], offsets="keep", apply=True)
        assert {one.offsets for one in report.partitions} == {"kept"}
    assert not list((tmp_path / "cluster").glob("trimmed-*"))


def test_a_gap_that_only_the_read_shows(data: Path, tmp_path: Path) -> None:
    """A cluster does not show its gaps: the plan says that there may be some, and the copy stops at the first one."""
    with source_of("cluster", data, tmp_path) as source, cluster_on(tmp_path / "cluster") as server:
        target = f"kafka://{server.bootstrap}"
        plan = copy_topics(source, target, ["compacted"], offsets="keep")
        assert [row.what for row in plan.not_kept if row.where == "compacted-0"] == ["offsets?"]
        with pytest.raises(IllegalArgument, match="has a gap before offset 3"):
            copy_topics(source, target, ["compacted"], offsets="keep", apply=True)
        report = copy_topics(source, target, ["compacted"], apply=True)
        assert [row.what for row in report.not_kept if row.where == "compacted-0"] == ["offsets"]


def test_gaps_are_kept_in_the_directory_of_a_server_that_is_stopped(data: Path, tmp_path: Path) -> None:
    """The way that the error of `offsets="keep"` names: clients of the server see the same offsets afterwards."""
    served, again = tmp_path / "cluster", tmp_path / "again"
    with cluster_on(served) as server:
        with pytest.raises(IllegalArgument, match="the source has gaps.*server that is stopped"):
            copy_topics(str(data), f"kafka://{server.bootstrap}", ["compacted"], offsets="keep", apply=True)
    assert not list(served.glob("compacted-*"))
    copy_topics(str(data), str(served), ["compacted"], apply=True)
    with cluster_on(served) as server:
        copy_topics(f"kafka://{server.bootstrap}", str(again), ["compacted"], apply=True)
    assert read_all(again / "compacted-0") == read_all(data / "compacted-0")
