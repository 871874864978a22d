"""Queries decode the columns that they use, of the rows that a condition leaves: in DuckDB, Polars and scans."""

from pathlib import Path
from typing import Any

import pytest

import kafkalog
import kafkalog.duckdb
import kafkalog.polars
from kafkalog import values
from kafkalog.errors import InvalidRecord
from kafkalog.values import Decoded

pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")


class Counting:
    """A decoder of JSON that counts the values it decoded."""

    def __init__(self) -> None:
        self.decoded = 0
        self._decoder = values.decoder("json", fields={"id": "int64", "name": "string"})

    @property
    def arrow_type(self) -> Any:
        return self._decoder.arrow_type

    def decode(self, column: Any) -> Decoded:
        self.decoded += len(column)
        return self._decoder.decode(column)

    def take(self) -> int:
        taken, self.decoded = self.decoded, 0
        return taken


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of ten values each; one more of each is no JSON."""
    for partition in (0, 1):
        with kafkalog.open(tmp_path / "data" / f"orders-{partition}", "a") as log:
            log.append([(b"k%d" % (n % 3), b'{"id": %d, "name": "n%d"}' % (n, n % 2)) for n in range(10)])
            log.append([(b"broken", b"no json")])
    return tmp_path / "data"


def test_duckdb_decodes_the_columns_of_a_query(data: Path) -> None:
    counting = Counting()
    con = duckdb.connect()
    with kafkalog.duckdb.register(con, data, value=counting, on_undecodable="null"):
        counting.take()
        assert con.sql("SELECT count(*), max(\"offset\") FROM orders").fetchall() == [(22, 10)]
        assert con.sql("SELECT count(*) FROM orders WHERE key = 'k1'::BLOB").fetchall() == [(6,)]
        assert counting.take() == 0
        assert con.sql("SELECT sum(value.id) FROM orders").fetchall() == [(90,)]
        assert counting.take() == 22
        assert con.sql("SELECT count(*) FROM orders WHERE value_error IS NOT NULL").fetchall() == [(2,)]
    with kafkalog.duckdb.register(con, data, value="json"):
        assert con.sql("SELECT count(key) FROM orders").fetchall() == [(22,)]
        with pytest.raises(Exception, match="does not decode"):
            con.sql("SELECT max(value.id) FROM orders").fetchall()


def test_polars_decodes_the_columns_of_a_query(data: Path) -> None:
    counting = Counting()
    with kafkalog.open_dirs(data) as dirs:
        frame = kafkalog.polars.scan(dirs, "orders", value=counting, on_undecodable="null")
        counting.take()
        assert frame.select("offset", "key").collect().height == 22 and counting.take() == 0
        assert frame.select(pl.col("value").struct.field("id").sum()).collect().item() == 90
        assert counting.take() == 22
        broken = kafkalog.polars.scan(dirs, "orders", value="json")
        assert broken.select("offset").collect().height == 22
        with pytest.raises(Exception, match="does not decode"):
            broken.collect()


def test_a_scan_decodes_what_it_returns_and_its_condition_needs(data: Path) -> None:
    counting = Counting()
    with kafkalog.open(data / "orders-0") as log:
        assert len(log.scan(["offset", "key"], value=counting).table()) == 11 and not counting.take()
        assert len(log.scan(["value"], value=counting, where="key == 'k1' and offset < 5").table()) == 2
        assert counting.take() == 2
        assert log.scan(project=["offset", "value.id"], value=counting, where="offset < 3").table().num_rows == 3
        assert counting.take() == 3
        with pytest.raises(InvalidRecord, match="offset 10"):
            log.scan(["value"], value=counting).table()


CONDITION = "value.name == 'n1' and offset > 2 and key != 'k0'"
EXPECTED = [(partition, offset) for partition in (0, 1) for offset in (5, 7)]


def test_the_option_where_of_duckdb_and_polars(data: Path) -> None:
    """Its rows are those of a scan with the condition, whatever a query adds; a wrong one is reported at once."""
    given: dict[str, Any] = {"value": "json", "on_undecodable": "null", "where": CONDITION}
    with kafkalog.open_dirs(data) as dirs:
        scanned = dirs.scan("orders", ["partition", "offset"], **given).table().to_pylist()
        assert [(row["partition"], row["offset"]) for row in scanned] == EXPECTED
        frame = kafkalog.polars.scan(dirs, "orders", **given)
        assert frame.select("partition", "offset").collect().rows() == EXPECTED
        few = frame.filter((pl.col("offset") > 5) & (pl.col("value").struct.field("id") < 9))
        assert few.select("partition", "offset").collect().rows() == EXPECTED[1::2]
        with pytest.raises(kafkalog.KafkalogError, match="did you mean offset"):
            kafkalog.polars.scan(dirs, "orders", where="ofset > 1").collect()
    con = duckdb.connect()
    with kafkalog.duckdb.register(con, data, **given):
        query = 'SELECT "partition", "offset" FROM orders'
        assert con.sql(f"{query} ORDER BY ALL").fetchall() == EXPECTED
        assert con.sql(f'{query} WHERE "offset" > 5 AND value.id < 9 ORDER BY ALL').fetchall() == EXPECTED[1::2]
        assert con.sql("SELECT count(*) FROM orders").fetchall() == [(4,)]
    with pytest.raises(kafkalog.KafkalogError, match="did you mean offset"):
        kafkalog.duckdb.register(con, data, where="ofset > 1")
