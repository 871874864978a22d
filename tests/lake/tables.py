"""Tables of both formats in a directory, read back by the formats' libraries; and what a log has, read plainly."""

import json
import struct
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

import kafkalog
from tests.plain_reader import Read, read_batch

FORMATS = ("iceberg", "delta")
NAME = "shop.orders"
T = 1_700_000_000_000
HOUR_MS = 3_600_000


def closes_itself(catalog: Any) -> Any:
    """A catalog whose connections are closed before they are dropped, of which Python 3.13 and newer warn."""
    weakref.finalize(catalog, catalog.engine.dispose)
    return catalog


class Lake:
    """A table `orders` of a format in a directory, and what can be asked of it without kafkalog."""

    def __init__(self, directory: Path, format: str) -> None:
        self.directory = directory
        self.format = format

    @property
    def target(self) -> str:
        return f"iceberg:{self.directory}/{NAME}" if self.format == "iceberg" else f"delta:{self.directory}/orders"

    def catalog(self) -> SqlCatalog:
        self.directory.mkdir(exist_ok=True)
        place = self.directory.resolve()
        return closes_itself(SqlCatalog("default", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}"))

    def loaded(self) -> Any:
        return self.catalog().load_table(NAME) if self.format == "iceberg" else DeltaTable(self.directory / "orders")

    def exists(self) -> bool:
        if self.format == "iceberg":
            return self.catalog().table_exists(NAME)
        return DeltaTable.is_deltatable(str(self.directory / "orders"))

    def read(self) -> pa.Table:
        """All rows, by partition and offset."""
        rows = self.loaded().scan().to_arrow() if self.format == "iceberg" else self.loaded().to_pyarrow_table()
        return rows.sort_by([("partition", "ascending"), ("offset", "ascending")])

    def read_each_file(self) -> list[pa.Table]:
        """The rows of each data file, as Parquet has them."""
        root = "" if self.format == "iceberg" else f"{self.directory}/orders/"
        return [pq.read_table(root + path.removeprefix("file://")) for path, _ in self.files()]

    def read_files(self) -> pa.Table:
        """The rows of the data files: pyiceberg's reader makes empty lists of nulls (0.12)."""
        return pa.concat_tables(self.read_each_file())

    def places(self) -> list[tuple[int, int]]:
        rows = self.read()
        return list(zip(rows["partition"].to_pylist(), rows["offset"].to_pylist(), strict=True))

    def snapshots(self) -> int:
        """The number of commits with the table's content so far."""
        if not self.exists():
            return 0
        return len(self.loaded().snapshots()) if self.format == "iceberg" else self.loaded().version()

    def files(self) -> list[tuple[str, int]]:
        """The data files that the table's snapshot has, with their sizes."""
        if self.format == "iceberg":
            return [(task.file.file_path, task.file.file_size_in_bytes) for task in self.loaded().scan().plan_files()]
        rows = pa.table(self.loaded().get_add_actions())
        return list(zip(rows["path"].to_pylist(), rows["size_bytes"].to_pylist(), strict=True))

    def stored(self) -> list[Path]:
        """All Parquet files in the directory, those that no commit has included."""
        return [one for one in self.directory.rglob("*.parquet") if "_delta_log" not in one.parts]

    def create(self, schema: pa.Schema) -> None:
        """Make the table as somebody else does."""
        if self.format == "iceberg":
            catalog = self.catalog()
            catalog.create_namespace_if_not_exists(NAME.partition(".")[0])
            catalog.create_table(NAME, schema)
        else:
            DeltaTable.create(str(self.directory / "orders"), schema)

    def append(self, rows: pa.Table) -> None:
        """Add rows as somebody else does."""
        if self.format == "iceberg":
            self.loaded().append(rows)
        else:
            from deltalake import write_deltalake

            write_deltalake(self.loaded(), rows, mode="append", schema_mode="merge")

    def upgrade(self, change: Callable[[list[Any]], object] = len) -> None:
        """Make an Iceberg table one of format version 3, which pyiceberg (0.12) only reads, and change its fields."""
        path = Path(self.loaded().metadata_location.removeprefix("file://"))
        metadata = json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 2}
        for snapshot in metadata["snapshots"]:
            snapshot |= {"first-row-id": 0, "added-rows": 2}
        change(metadata["schemas"][-1]["fields"])
        path.write_text(json.dumps(metadata))

    def add_column(self, field: pa.Field) -> None:
        """Add a column as somebody else does; rows of Delta tables add it themselves."""
        if self.format == "iceberg":
            with self.loaded().update_schema() as update:
                update.union_by_name(pa.schema([field]))


def logged(partition: Path) -> list[Read]:
    """The records of an uncompressed log, read from the bytes of its segments; control batches are left out."""
    found = []
    for segment in sorted(partition.glob("*.log")):
        data, at = segment.read_bytes(), 0
        while at < len(data):
            size = 12 + struct.unpack_from(">i", data, at + 8)[0]
            batch = data[at : at + size]
            if not struct.unpack_from(">h", batch, 21)[0] & 0x20:
                records, is_sound = read_batch(batch)
                assert is_sound
                found += records
            at += size
    return found


def query(rows: pa.Table, sql: str) -> list[tuple[Any, ...]]:
    """The result of a query of DuckDB over a table that is named rows in it."""
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        return connection.sql(sql).fetchall()


def order(number: int) -> bytes:
    return json.dumps({"id": number, "total": number / 4, "tags": [f"t{number % 3}"]}).encode()


def write(data: Path, counts: dict[int, int], first: int = 0, **settings: Any) -> None:
    """Append so many orders to each partition of the topic, an hour apart."""
    with kafkalog.open_dirs(data, "a") as dirs:
        if "orders" not in dirs.topics:
            dirs.create_topic("orders", len(counts), {"retention.ms": -1, **settings})
        for partition, count in counts.items():
            rows = [
                kafkalog.Record(order(n), b"k%d" % (n % 5), T + n * HOUR_MS, {"trace": b"%d" % n})
                for n in range(first, first + count)
            ]
            for start in range(0, count, 5000):
                dirs["orders", partition].append(rows[start : start + 5000])
