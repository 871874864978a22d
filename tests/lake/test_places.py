"""Local tables whose directories have characters that mean something in a URL."""

import gc
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from sqlalchemy import URL

from kafkalog.errors import IllegalArgument
from kafkalog.lake.compact import compact_table
from kafkalog.lake.sync import sync_topic
from tests.lake.tables import NAME, Lake, closes_itself, write
from tests.spark.killed_sync import sync_here


@pytest.mark.parametrize("name", ["a#b", "a?b=c&d", "a%20b", "50%", "plain name"])
def test_a_directory_of_any_name_has_a_table(tmp_path: Path, name: str) -> None:
    """All files are below it, whichever process writes them, and the table is that of the next run."""
    data, home = tmp_path / "data", tmp_path / "home"
    home.mkdir()
    lake = Lake(home / name, "iceberg")
    write(data, {0: 5})
    sync_topic(data, "orders", lake.target, partition_by=["hour(timestamp)"])
    write(data, {0: 5}, first=5)
    sync_here(data, lake.target)
    compact_table(lake.target)
    database = URL.create("sqlite", database=str(lake.directory / "catalog.db"))
    catalog = closes_itself(SqlCatalog("default", uri=database))  # type: ignore[arg-type]
    rows = catalog.load_table(NAME).scan().to_arrow()
    assert sorted(rows["offset"].to_pylist()) == list(range(10))
    assert [one.name for one in home.iterdir()] == [name]
    assert {one.name for one in lake.directory.iterdir()} == {"catalog.db", "shop"}


def test_the_catalog_is_closed_with_its_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", "iceberg")
    write(data, {0: 5})
    closed: list[SqlCatalog] = []
    close = SqlCatalog.close
    monkeypatch.setattr(SqlCatalog, "close", lambda catalog: (closed.append(catalog), close(catalog)))
    sync_topic(data, "orders", lake.target)
    gc.collect()
    assert len(closed) == 1 and closed[0].engine.pool.checkedin() == 0  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", ["iceberg", "delta"])
def test_no_table_is_made_in_a_data_directory(tmp_path: Path, kind: str) -> None:
    """A broker would not start with it."""
    data = tmp_path / "data"
    write(data, {0: 5})
    before = sorted(data.iterdir())
    with pytest.raises(IllegalArgument, match="a table cannot be stored in the data directory"):
        sync_topic(data, "orders", Lake(data / "lake", kind).target)
    assert sorted(data.iterdir()) == before
