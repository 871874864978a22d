"""Small files put together: the same rows and positions, beside other writers, passed over by a load."""

import json
from pathlib import Path
from typing import Any

import pytest
from deltalake.exceptions import CommitFailedError
from pyiceberg.exceptions import CommitFailedException

import kafkalog
from kafkalog.errors import IllegalArgument, IllegalState, StorageError
from kafkalog.lake import compact, table_load
from kafkalog.lake.compact import compact_table, plan_groups
from kafkalog.lake.sync import sync_topic
from kafkalog.lake.table import LiveFile
from tests import commands
from tests.lake.tables import Lake
from tests.lake.test_other_writers import commit_call
from tests.lake.test_sync import write


def load_table(target: str, data: Path, topic: str) -> list[Any]:
    return [*table_load.load_table(target, data, topic, value_format="json")]


def synced(data: Path, lake: Lake, times: int = 4, **options: Any) -> None:
    """A table with a file of each sync."""
    for n in range(times):
        write(data, {0: 5, 1: 3}, first=n * 10)
        sync_topic(data, "orders", lake.target, **options)


def test_a_table_has_the_same_rows_in_one_file_and_goes_on(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    synced(data, lake)
    before, places = lake.read().to_pylist(), lake.places()
    load_table(lake.target, tmp_path / "loaded", "back")
    (commit,) = compact_table(lake.target)
    assert (commit.removed, commit.files) == (4, 1) and commit.bytes < commit.removed_bytes
    assert [size for _, size in lake.files()] == [commit.bytes]
    assert lake.read().to_pylist() == before and lake.places() == places
    assert compact_table(lake.target) == []
    assert load_table(lake.target, tmp_path / "loaded", "back") == []  # nothing is new
    assert sync_topic(data, "orders", lake.target) == []
    write(data, {0: 5}, first=50)
    (again,) = sync_topic(data, "orders", lake.target)
    assert again.records == 5 and len(lake.places()) == len(places) + 5
    (loaded,) = load_table(lake.target, tmp_path / "loaded", "back")
    assert loaded.records == 5


def test_partitions_stay_apart_and_large_files_stay(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    synced(data, lake, partition_by=["partition"])
    before = lake.read().to_pylist()
    commits = compact_table(lake.target)
    assert [(one.removed, one.files) for one in commits] == [(4, 1)] * 2 and len(lake.files()) == 2
    assert lake.read().to_pylist() == before
    assert compact_table(lake.target, target_file_bytes=1024) == []


def test_what_becomes_no_fewer_files_is_left(tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tmp_path / "data"
    synced(data, lake, 2)
    before = lake.files()
    monkeypatch.setattr(compact.TableFiles, "add", compact.TableFiles.add)
    add = compact.TableFiles.add

    def alone(files: Any, batch: Any) -> None:
        add(files, batch)
        files.close()

    monkeypatch.setattr(compact.TableFiles, "add", alone)
    assert compact_table(lake.target) == [] and lake.files() == before and len(lake.stored()) == 2


def test_another_commit_in_between(tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sync commits while the files are written: they are written again, with its own."""
    data = tmp_path / "data"
    synced(data, lake)
    close, calls = compact.TableFiles.close, 0

    def closing(files: Any) -> None:
        nonlocal calls
        close(files)
        calls += 1
        if calls == 1:
            write(data, {0: 5}, first=70)
            sync_topic(data, "orders", lake.target)

    monkeypatch.setattr(compact.TableFiles, "close", closing)
    (commit,) = compact_table(lake.target)
    assert commit.removed == 5 and len(lake.places()) == 4 * 8 + 5
    assert len(lake.stored()) == 6  # those of five syncs and the new one: what lost is gone


def test_a_commit_that_the_store_repeats_costs_no_file(
    tmp_path: Path, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is lost, and the store's client sends the commit again: it finds its own, and reports a conflict."""
    synced(tmp_path / "data", lake)
    before = lake.read().to_pylist()
    made, name, commit = commit_call(lake)
    conflict = CommitFailedException if lake.format == "iceberg" else CommitFailedError

    def repeated(*arguments: Any, **options: Any) -> None:
        commit(*arguments, **options)
        raise conflict("the version exists")

    with monkeypatch.context() as broken:
        broken.setattr(made, name, repeated)
        (done,) = compact_table(lake.target)
    assert (done.removed, done.files) == (4, 1) and [size for _, size in lake.files()] == [done.bytes]
    assert lake.read().to_pylist() == before and compact_table(lake.target) == []


def test_a_load_goes_on_after_the_snapshots_before_a_compaction_are_gone(tmp_path: Path, lake: Lake) -> None:
    """A load that passed over the compaction needs what came before it no more."""
    data, loaded = tmp_path / "data", tmp_path / "loaded"
    synced(data, lake, 2)
    load_table(lake.target, loaded, "back")
    compact_table(lake.target)
    assert load_table(lake.target, loaded, "back") == []
    write(data, {0: 5}, first=50)
    sync_topic(data, "orders", lake.target)
    if lake.format == "iceberg":
        for one in lake.loaded().snapshots()[:-2]:
            lake.loaded().maintenance.expire_snapshots().by_id(one.snapshot_id).commit()
    else:
        lake.loaded().create_checkpoint()
        *old, _ = sorted((lake.directory / "orders" / "_delta_log").glob("*.json"))
        for path in old:
            path.unlink()
    (again,) = load_table(lake.target, loaded, "back")
    assert (again.records, again.is_whole) == (5, True)


def test_an_upserted_table(tmp_path: Path, lake: Lake) -> None:
    data = tmp_path / "data"
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 1, {"cleanup.policy": "compact"})
    for n in range(3):
        with kafkalog.open_dirs(data, "a") as dirs:
            dirs["orders", 0].append([(b"k%d" % n, b"v"), (b"both", b"%d" % n)])
        sync_topic(data, "orders", lake.target, upsert=True)
    before = lake.read().to_pylist()
    assert len(before) == 4
    compact_table(lake.target)
    assert lake.read().to_pylist() == before and len(lake.files()) == 1
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].append([(b"both", b"9")])
    sync_topic(data, "orders", lake.target, upsert=True)
    assert len(lake.read()) == 4


def test_tables_that_are_left_alone(tmp_path: Path, lake: Lake) -> None:
    with pytest.raises((IllegalArgument, StorageError)):
        compact_table(lake.target)
    data = tmp_path / "data"
    synced(data, Lake(tmp_path / "other", lake.format), 1)
    lake.create(Lake(tmp_path / "other", lake.format).read().schema)
    with pytest.raises(IllegalArgument, match="not made by a sync"):
        compact_table(lake.target)
    with pytest.raises(IllegalArgument, match="too small"):
        compact_table(lake.target, target_file_bytes=3)


def test_groups_are_cut_to_commits() -> None:
    files = [LiveFile(f"{n:02}", None, 60, (n % 2,)) for n in range(60)]
    groups = [*plan_groups(files, 100)]
    assert [len(one) for one in groups] == [26, 4, 26, 4] and {one.partition for one in groups[0]} == {(0,)}
    assert [*plan_groups(files, 80)] == [] and [*plan_groups(files[:2], 1000)] == []


def test_the_command(tmp_path: Path, lake: Lake) -> None:
    synced(tmp_path / "data", lake, 2)
    (line,) = commands.ok("table", "compact", lake.target, "-J").splitlines()
    assert json.loads(line)["removed"] == 2
    done = commands.kafkalog("table", "compact", lake.target)
    assert done.returncode == 0 and b"no small files" in done.stderr


def test_a_log_that_was_cut_at_a_marker_and_grew_again(tmp_path: Path, lake: Lake) -> None:
    """The last thing that the table has passed is the marker of a transaction, which another record replaces."""
    from tests.copy.test_runs_again import TRANSACTIONAL, append, commit_marker, rows

    def transaction(base: int) -> list[bytes]:
        kind = {"attributes": TRANSACTIONAL, "producer_id": 7, "producer_epoch": 0, "base_sequence": 0}
        return [rows(base, 3, **kind), commit_marker(base + 3)]

    data = tmp_path / "data"
    append(data, *transaction(0), topic="orders")
    sync_topic(data, "orders", lake.target)
    assert sync_topic(data, "orders", lake.target) == []
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        dirs["orders", 0].truncate_to(3)
        dirs["orders", 0].replicate(rows(3, 4))
    with pytest.raises(IllegalState, match="record 3 is not the one that the table has") as caught:
        sync_topic(data, "orders", lake.target)
    assert caught.value.offset == 3 and str(caught.value).count("checksum") == 1
    assert lake.places() == [(0, 0), (0, 1), (0, 2)]
