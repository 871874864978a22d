"""Syncs beside other writers of the table: rows of both stay, and no two syncs of a topic write a record twice."""

import gc
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable
from pyiceberg.exceptions import CommitFailedException
from sqlalchemy import event
from sqlalchemy.pool import Pool

import kafkalog
from kafkalog.errors import StorageError
from kafkalog.lake.failures import TableChanged
from kafkalog.lake.sync import sync_topic
from tests.lake.tables import Lake, write
from tests.spark.killed_sync import sync_here
from tests.transactional import made


def test_rows_of_another_writer_stay_and_positions_are_found_behind_them(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target)
    lake.append(lake.read().slice(0, 2))
    write(data, {0: 5}, first=10)
    sync_topic(data, "orders", lake.target)
    assert sorted(lake.places()) == sorted([(0, n) for n in range(15)] + [(0, 0), (0, 1)])


def test_a_writer_that_commits_during_a_sync(tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of both are there: the commit is repeated on the other's snapshot."""
    data = tmp_path / "data"
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target)
    write(data, {0: 5}, first=10)
    rows = lake.read().slice(0, 2)
    at_first_file(monkeypatch, lambda: lake.append(rows))
    (commit,) = sync_topic(data, "orders", lake.target)
    assert commit.records == 5
    assert sorted(lake.places()) == sorted([(0, n) for n in range(15)] + [(0, 0), (0, 1)])


def at_first_file(monkeypatch: pytest.MonkeyPatch, work: Any) -> None:
    """Do something once, in the moment when a sync has loaded the table and begins to write files."""
    from kafkalog.lake import files

    write_file, todo = files.TableFiles.add, [work]

    def add(self: Any, batch: Any) -> None:
        if todo:
            todo.pop()()
        write_file(self, batch)

    monkeypatch.setattr(files.TableFiles, "add", add)


@pytest.mark.parametrize("upsert", [False, True])
def test_another_sync_of_the_topic_stops_one_with_both_snapshots(
    tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch, upsert: bool
) -> None:
    data = tmp_path / "data"
    write(data, {0: 10})
    at_first_file(monkeypatch, lambda: sync_topic(data, "orders", lake.target, upsert=upsert))
    with pytest.raises(TableChanged, match="another sync of orders committed meanwhile") as failure:
        sync_topic(data, "orders", lake.target, upsert=upsert)
    after = lake.loaded().current_snapshot().snapshot_id if lake.format == "iceberg" else lake.loaded().version()
    assert failure.value.after == str(after) != failure.value.before
    assert len(lake.places()) == len(set(lake.places())) == (5 if upsert else 10)
    assert len(lake.stored()) == 1


@pytest.mark.slow
def test_many_syncs_at_once_write_each_record_once(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    write(data, {0: 6000, 1: 6000})
    arguments = ["table", "sync", "-q", "-d", data, "-t", "orders", "--target-file-bytes", "1K", lake.target]
    code = "import sys; from kafkalog.cli.main import run; sys.exit(run(sys.argv[1:]))"
    running = [
        subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stderr=subprocess.PIPE) for _ in range(4)
    ]
    outcomes = [(one.communicate()[1].decode(), one.returncode) for one in running]
    assert all(status == 0 or "committed meanwhile" in text or "could:" in text for text, status in outcomes), outcomes
    assert any(status == 0 for _, status in outcomes) or sync_topic(data, "orders", lake.target)
    assert lake.places() == [(p, n) for p in range(2) for n in range(6000)]


@pytest.mark.parametrize("place", ["iceberg_tables", "iceberg_namespace_properties"])
def test_a_catalog_that_two_create_at_once_is_one(tmp_path: Path, place: str) -> None:
    """Another sync creates the catalog between this one's look at it and its own creation; no connection stays open."""
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", "iceberg")
    write(data, {0: 10})
    table = SqlCatalogBaseTable.metadata.tables[place]
    others, connections = [], []

    def meanwhile(*_: object, **__: object) -> None:
        if not others:
            others.append(True)
            sync_topic(data, "orders", lake.target)

    def opened(connection: object, *_: object) -> None:
        connections.append(connection)

    def closed(connection: object, *_: object) -> None:
        if connection in connections:  # an earlier test's catalog may be collected meanwhile
            connections.remove(connection)

    listeners = ((table, "before_create", meanwhile), (Pool, "connect", opened), (Pool, "close", closed))
    for one in listeners:
        event.listen(*one)
    try:
        sync_topic(data, "orders", lake.target)
        gc.collect()  # a table closes its catalog with its own end
    finally:
        for one in listeners:
            event.remove(*one)
    assert others and connections == []
    assert lake.places() == [(0, n) for n in range(10)]


def test_a_namespace_that_two_create_at_once_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", "iceberg")
    write(data, {0: 10})
    exists = SqlCatalog.namespace_exists
    others = []

    def ask(catalog: SqlCatalog, namespace: str) -> bool:
        answer = exists(catalog, namespace)
        if not others:
            others.append(answer)
            sync_topic(data, "orders", lake.target)
        return answer

    monkeypatch.setattr(SqlCatalog, "namespace_exists", ask)
    with pytest.raises(TableChanged, match="another sync of orders committed meanwhile"):
        sync_topic(data, "orders", lake.target)
    assert others == [False]
    assert lake.places() == [(0, n) for n in range(10)]


@pytest.mark.parametrize("by", ["this process", "tasks"])
@pytest.mark.parametrize("adds_rows", [False, True])
def test_a_partitioning_that_changes_during_a_sync(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, adds_rows: bool
) -> None:
    """The files are written again: their partitions are those of the table at the commit."""
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", "iceberg")
    write(data, {0: 10, 1: 10})
    sync_topic(data, "orders", lake.target, partition_by=["hour(timestamp)"])
    rows = lake.read().slice(0, 2)
    write(data, {0: 5, 1: 5}, first=10)

    def change() -> None:
        table = lake.loaded()
        with table.update_spec() as update:
            update.remove_field(table.spec().fields[0].name)
            update.add_field("partition", "identity", "of_log")
        if adds_rows:
            lake.append(rows)

    at_first_file(monkeypatch, change)
    if by == "tasks":
        sync_here(data, lake.target)
    else:
        sync_topic(data, "orders", lake.target)
    spec = lake.loaded().spec()
    new = [one.file for one in lake.loaded().scan().plan_files() if one.file.spec_id == spec.spec_id]
    assert [one.name for one in spec.fields if str(one.transform) != "void"] == ["of_log"]
    assert sorted((one.partition[-1], one.record_count) for one in new if one.record_count > 2) == [(0, 5), (1, 5)]
    wanted = [(number, offset) for number in range(2) for offset in range(15)]
    assert sorted(lake.places()) == sorted(wanted + ([(0, 0), (0, 1)] if adds_rows else []))


def test_a_table_that_was_rolled_back_gets_the_rows_again(tmp_path: Path) -> None:
    """Positions are those of the snapshot: with its rows they go back."""
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", "iceberg")
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target)
    write(data, {0: 5}, first=10)
    sync_topic(data, "orders", lake.target)
    first = lake.loaded().snapshots()[0].snapshot_id
    with lake.loaded().manage_snapshots() as manage:
        manage.rollback_to_snapshot(first)
    assert len(lake.places()) == 10
    sync_topic(data, "orders", lake.target)
    assert lake.places() == [(0, n) for n in range(15)]


def test_positions_outlive_expired_snapshots(tmp_path: Path) -> None:
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", "iceberg")
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target)
    lake.append(lake.read().slice(0, 1))
    first = lake.loaded().snapshots()[0].snapshot_id
    lake.loaded().maintenance.expire_snapshots().by_id(first).commit()
    assert len(lake.loaded().snapshots()) == 1
    write(data, {0: 5}, first=10)
    (commit,) = sync_topic(data, "orders", lake.target)
    assert commit.records == 5 and len(lake.places()) == 16


def test_positions_outlive_checkpoints_of_the_delta_log(tmp_path: Path) -> None:
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", "delta")
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target)
    lake.loaded().create_checkpoint()
    for one in (lake.directory / "orders" / "_delta_log").glob("*.json"):
        if one.name != f"{lake.loaded().version():020d}.json":
            one.unlink()
    write(data, {0: 5}, first=10)
    sync_topic(data, "orders", lake.target)
    assert lake.places() == [(0, n) for n in range(15)]


def commit_call(lake: Lake) -> tuple[type, str, Callable[..., None]]:
    """Return the call of the table's library that commits: its class, its name, and itself."""
    kind, name = (SqlCatalog, "commit_table") if lake.format == "iceberg" else (DeltaTable, "create_write_transaction")
    return kind, name, getattr(kind, name)


@pytest.mark.parametrize("upsert", [False, True])
def test_an_answer_that_is_lost_after_a_commit_costs_no_file(
    tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch, upsert: bool
) -> None:
    """The connection breaks during the commit: the files it refers to stay, and the next sync adds nothing."""
    data = tmp_path / "data"
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target, upsert=upsert)
    write(data, {0: 5}, first=10)
    kind, name, commit = commit_call(lake)

    def lost(*arguments: Any, **options: Any) -> None:
        commit(*arguments, **options)
        raise ConnectionResetError("the answer is lost")

    with monkeypatch.context() as broken:
        broken.setattr(kind, name, lost)
        with pytest.raises(StorageError, match="cannot commit to the table"):
            sync_topic(data, "orders", lake.target, upsert=upsert)
    assert lake.places() == [(0, n) for n in (range(10, 15) if upsert else range(15))]
    assert sync_topic(data, "orders", lake.target, upsert=upsert) == []


@pytest.mark.parametrize("upsert", [False, True])
def test_a_commit_that_the_store_repeats_is_not_taken_for_that_of_another(
    tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch, upsert: bool
) -> None:
    """The answer is lost, and the store's client sends the commit again: it finds its own, and reports a conflict."""
    data = tmp_path / "data"
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target, upsert=upsert)
    write(data, {0: 5}, first=10)
    with repeated_commits(lake, monkeypatch):
        (done,) = sync_topic(data, "orders", lake.target, upsert=upsert)
    assert (done.records, done.next_offsets) == (5, {0: 15})
    assert lake.places() == [(0, n) for n in (range(10, 15) if upsert else range(15))]
    assert sync_topic(data, "orders", lake.target, upsert=upsert) == []


@contextmanager
def repeated_commits(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each commit is made, and then reported as a conflict."""
    kind, name, commit = commit_call(lake)
    conflict = CommitFailedException if lake.format == "iceberg" else CommitFailedError

    def repeated(*arguments: Any, **options: Any) -> None:
        commit(*arguments, **options)
        raise conflict("the version exists")

    with monkeypatch.context() as broken:
        broken.setattr(kind, name, repeated)
        yield


@pytest.mark.parametrize("upsert", [False, True])
def test_a_delta_commit_that_fails_without_a_newer_version_is_no_conflict(tmp_path: Path, upsert: bool) -> None:
    """delta-rs reports it as it reports a conflict; a repetition would meet the same error."""
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", "delta")
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target, upsert=upsert)
    write(data, {0: 5}, first=10)
    version = lake.loaded().version() + 1
    obstacle = next((tmp_path / "lake").rglob("_delta_log")) / f"{version:020}.json"
    obstacle.mkdir()
    with pytest.raises(StorageError, match="cannot commit to the table: CommitFailedError"):
        sync_topic(data, "orders", lake.target, upsert=upsert)
    obstacle.rmdir()
    sync_topic(data, "orders", lake.target, upsert=upsert)
    assert lake.places() == [(0, n) for n in (range(10, 15) if upsert else range(15))]


def test_a_repeated_commit_of_markers_alone_has_no_files(
    tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An aborted transaction moves the positions without a row."""
    partition = tmp_path / "data" / "orders-0"
    partition.mkdir(parents=True)
    before = [("plain", 1, 3)]
    made(before).write(partition)
    sync_topic(tmp_path / "data", "orders", lake.target)
    for file in partition.iterdir():
        file.unlink()
    made([*before, ("data", 1, 2), ("abort", 1, 1)]).write(partition)
    places = lake.places()
    with repeated_commits(lake, monkeypatch):
        (done,) = sync_topic(tmp_path / "data", "orders", lake.target)
    assert (done.records, done.files, done.removed) == (0, 0, 0)
    assert lake.places() == places and sync_topic(tmp_path / "data", "orders", lake.target) == []


@pytest.mark.parametrize("keys, removed", [([b"x"], 0), ([b"k%d" % n for n in range(5)], 1)])
def test_a_repeated_commit_of_tombstones_alone_has_no_files(
    tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch, keys: list[bytes], removed: int
) -> None:
    data = tmp_path / "data"
    write(data, {0: 10})
    sync_topic(data, "orders", lake.target, upsert=True)
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].append([(key, None) for key in keys])
    with repeated_commits(lake, monkeypatch):
        (done,) = sync_topic(data, "orders", lake.target, upsert=True)
    assert (done.files, done.removed, done.next_offsets) == (0, removed, {0: 10 + len(keys)})
    assert len(lake.places()) == 5 * (1 - removed) and sync_topic(data, "orders", lake.target, upsert=True) == []
