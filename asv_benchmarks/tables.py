"""A topic to tables: typed rows to local Iceberg and Delta tables, beside pyarrow's own writing of the same columns."""

import json
import shutil
from pathlib import Path
from typing import Any

import kafkalog
from asv_benchmarks.measure import Peers, Row, per_item

MILLION = 1e6
RECORDS, BATCH = 1_000_000, 5000
ORDER: dict[str, Any] = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "customer", "type": "int"}, {"name": "cents", "type": "long"},
        {"name": "country", "type": "string"}, {"name": "paid", "type": "boolean"},
    ],
}  # fmt: skip
"""Five fields, about 15 bytes a value."""


def rows(directory: Path) -> list[Row]:
    """Return the rates of syncs of a topic of a million Avro values, in millions of rows a CPU second."""
    make_topic(directory / "data")
    typed = {"value": "avro", "schema": json.dumps(ORDER)}
    with kafkalog.open_dirs(directory / "data") as dirs:
        written = _pyarrow_rates(dirs, directory, typed)
        found = []
        targets = {"Iceberg": f"iceberg:{directory}/lake/shop.orders", "Delta": f"delta:{directory}/lake/orders"}
        for name, target in targets.items():
            rate = _sync_rate(dirs, directory, target, typed)
            found.append(Row(f"a topic to {name}, 5 typed fields and 5 columns", rate, 1.5, "M/s", False, written))
            alone = written["pyarrow's own writing"]
            found.append(Row(f"a topic to {name}, beside pyarrow's own writing", rate / alone, 0.8, "x", False))
        found.append(_upsert(dirs, directory, typed))
    return found


def make_topic(data: Path) -> None:
    """Write the topic, in two partitions."""
    from kafkalog.values.avro_default import encoded_default
    from kafkalog.values.avro_schema import parse_avro

    schema = parse_avro(ORDER)
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs.create_topic("orders", 2, {"retention.ms": -1})
        for log in dirs.logs("orders"):
            for start in range(0, RECORDS // 2, BATCH):
                log.append([
                    (b"c-%d" % (n % 50_000), encoded_default(schema, {
                        "id": n, "customer": n * 7919 % 50_000, "cents": n * 31 % 100_000,
                        "country": ("DE", "FR", "PL", "US")[n % 4], "paid": n % 3 > 0,
                    }), 1_700_000_000_000 + n)
                    for n in range(start, start + BATCH)
                ])  # fmt: skip


def _sync_rate(dirs: kafkalog.LogDirs, directory: Path, target: str, typed: dict[str, Any], **options: Any) -> float:
    from kafkalog.lake.sync import sync_topic

    def once() -> int:
        shutil.rmtree(directory / "lake", ignore_errors=True)
        return sum(one.records for one in sync_topic(dirs, "orders", target, **typed, **options))

    return 1 / per_item(once, rounds=3) / MILLION


def _pyarrow_rates(dirs: kafkalog.LogDirs, directory: Path, typed: dict[str, Any]) -> Peers:
    """Return the rates of pyarrow's writing of the same columns from memory, with its settings and in our layout."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from kafkalog.lake.evolution import lake_schema
    from kafkalog.lake.files import GROUP_BYTES, layout
    from kafkalog.lake.rows import COLUMNS_OF_TABLE, fitted

    batches = [*dirs.scan("orders", COLUMNS_OF_TABLE, **typed)]
    schema = lake_schema(batches[0].schema)
    table = pa.Table.from_batches([fitted(one, schema) for one in batches])
    group_rows = max(1, table.num_rows * GROUP_BYTES // table.nbytes)

    def rate(options: dict[str, Any]) -> float:
        def once() -> int:
            pq.write_table(table, directory / "alone.parquet", row_group_size=group_rows, **options)
            return table.num_rows

        return 1 / per_item(once, rounds=3) / MILLION

    return {"pyarrow's own writing": rate({"compression": "zstd"}), "in the same layout": rate(layout(schema))}


def _upsert(dirs: kafkalog.LogDirs, directory: Path, typed: dict[str, Any]) -> Row:
    """Return the rate of a million records of a hundred thousand keys as upserts into a new table."""
    rate = _sync_rate(dirs, directory, f"iceberg:{directory}/lake/shop.orders", typed, upsert=True)
    return Row("a compacted topic to Iceberg, upserts", rate, 0.5, "M/s", False)
