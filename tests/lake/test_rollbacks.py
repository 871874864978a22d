"""Tables of a REST catalog that are rolled back between syncs and during one: noticed, and every record once."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kafkalog.errors import IllegalState
from kafkalog.lake.failures import TableChanged
from kafkalog.lake.sync import SyncCommit, follow_topic, sync_topic
from tests.lake.rest_catalog import rest_catalog
from tests.lake.tables import Lake, write
from tests.lake.test_other_writers import at_first_file

Sync = Callable[[], list[SyncCommit]]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    """The table as its catalog has it, behind the REST catalog."""
    return Lake(tmp_path / "lake", "iceberg")


@pytest.fixture
def options(lake: Lake) -> Iterator[dict[str, str]]:
    with rest_catalog(lake.catalog()) as uri:
        yield {"type": "rest", "uri": uri}


@pytest.fixture
def sync(tmp_path: Path, options: dict[str, str]) -> Sync:
    return lambda: sync_topic(tmp_path / "data", "orders", "iceberg://shops/shop.orders", options=options)


def roll_back(lake: Lake, to: int) -> tuple[str, str]:
    """Make a snapshot the table's newest one again; the names of both."""
    snapshots = lake.loaded().snapshots()
    before = lake.loaded().current_snapshot().snapshot_id
    with lake.loaded().manage_snapshots() as manage:
        manage.set_current_snapshot(snapshots[to].snapshot_id)
    return str(before), str(snapshots[to].snapshot_id)


def test_a_rollback_between_two_syncs(
    tmp_path: Path, lake: Lake, sync: Sync, caplog: pytest.LogCaptureFixture
) -> None:
    for first in (0, 5, 10):
        write(tmp_path / "data", {0: 5}, first=first)
        assert len(sync()) == 1
    caplog.set_level(logging.WARNING, "kafkalog.lake")
    before, after = roll_back(lake, 0)
    (commit,) = sync()
    assert commit.records == 10 and lake.places() == [(0, n) for n in range(15)]
    (warning,) = caplog.messages
    assert f"rolled back to snapshot {after} from snapshot {before}" in warning
    caplog.clear()
    write(tmp_path / "data", {0: 5}, first=15)
    sync()
    assert lake.places() == [(0, n) for n in range(20)] and not caplog.messages
    roll_back(lake, 1)  # to a snapshot that is no ancestor of the one before, as a catalog's administrator may do
    sync()
    assert lake.places() == [(0, n) for n in range(20)] and len(caplog.messages) == 1


def test_a_rollback_during_a_sync(
    tmp_path: Path, lake: Lake, sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first in (0, 5):
        write(tmp_path / "data", {0: 5}, first=first)
        sync()
    write(tmp_path / "data", {0: 5}, first=10)
    names = list[str]()
    at_first_file(monkeypatch, lambda: names.extend(roll_back(lake, 0)))
    with pytest.raises(TableChanged, match="it was rolled back meanwhile") as failure:
        sync()
    assert [failure.value.before, failure.value.after] == names
    assert lake.places() == [(0, n) for n in range(5)]
    sync()
    assert lake.places() == [(0, n) for n in range(15)]


def test_a_rollback_of_a_table_that_is_followed(tmp_path: Path, lake: Lake, options: dict[str, str]) -> None:
    stop = list[int]()
    write(tmp_path / "data", {0: 5})
    commits = follow_topic(
        tmp_path / "data", "orders", "iceberg://shops/shop.orders", options=options, commit_every_s=0.01,
        is_stopped=lambda: bool(stop),
    )  # fmt: skip
    next(commits)
    write(tmp_path / "data", {0: 5}, first=5)
    next(commits)
    roll_back(lake, 0)
    assert next(commits).records == 5
    stop.append(1)
    assert list(commits) == [] and lake.places() == [(0, n) for n in range(10)]


def test_a_table_whose_metadata_is_an_older_one(tmp_path: Path, lake: Lake, sync: Sync) -> None:
    """A catalog with branches, or a restored one: the table knows nothing of what came later."""
    write(tmp_path / "data", {0: 5})
    sync()
    older = lake.loaded().metadata_location
    write(tmp_path / "data", {0: 5}, first=5)
    sync()
    lake.catalog().drop_table("shop.orders")
    lake.catalog().register_table("shop.orders", older)
    sync()
    assert lake.places() == [(0, n) for n in range(10)]


def test_a_rollback_behind_expired_snapshots_names_both(tmp_path: Path, lake: Lake, sync: Sync) -> None:
    """The rows of another writer's snapshot are unknown once those before it are gone."""
    write(tmp_path / "data", {0: 5})
    sync()
    lake.append(lake.read().slice(0, 1))
    write(tmp_path / "data", {0: 5}, first=5)
    sync()
    first = lake.loaded().snapshots()[0].snapshot_id
    before, after = roll_back(lake, 1)
    lake.loaded().maintenance.expire_snapshots().by_id(first).commit()
    write(tmp_path / "data", {0: 5}, first=10)
    with pytest.raises(IllegalState, match=f"rolled back to snapshot {after} from snapshot {before}"):
        sync()


@pytest.mark.parametrize("damage", ["version 1", "malformed", "no number"])
def test_positions_that_are_not_known_are_not_the_start(tmp_path: Path, lake: Lake, sync: Sync, damage: str) -> None:
    """Snapshots of format version 1 have no sequence numbers; the copy of the positions may be changed by hand."""
    write(tmp_path / "data", {0: 5})
    if damage == "version 1":
        sync()
        schema = lake.loaded().schema()
        lake.catalog().drop_table("shop.orders")
        lake.catalog().create_table("shop.orders", schema, properties={"format-version": "1"})
    sync()
    lake.append(lake.read().slice(0, 1))
    first = lake.loaded().snapshots()[0].snapshot_id
    lake.loaded().maintenance.expire_snapshots().by_id(first).commit()
    if damage != "version 1":
        with lake.loaded().transaction() as change:
            text = lake.loaded().properties["kafkalog.sync.orders"]
            change.set_properties({"kafkalog.sync.orders": "what" if damage == "malformed" else f"x{text}"})
    write(tmp_path / "data", {0: 5}, first=5)
    with pytest.raises(IllegalState, match="which records it has is not known"):
        sync()
    assert len(lake.places()) == 6
