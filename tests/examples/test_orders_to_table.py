"""examples/orders_to_table.py: what writes the table is killed, and the table has every order once."""

import contextlib
import json
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

import kafkalog
from tests.examples.programs import EXAMPLES, run, said

pytest.importorskip("duckdb")
pytest.importorskip("pyiceberg")
pytestmark = [pytest.mark.crash, pytest.mark.slow]
ORDERS, KILLS = 3000, 2


def logged(data: Path) -> tuple[Counter[str], Counter[str]]:
    """Orders and cents by product, from the records one by one."""
    orders: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    with kafkalog.open_dirs(data) as dirs:
        for log in dirs.logs("orders"):
            for record in log:
                value = json.loads(record.value or b"")
                orders[value["product"]] += 1
                cents[value["product"]] += value["cents"]
    return orders, cents


def test_every_order_is_in_the_table_once_after_kills_and_a_second_run(tmp_path: Path) -> None:
    data, lake = tmp_path / "shop", tmp_path / "lake"
    for runs in (1, 2):
        lines = said("orders_to_table.py", data, lake, "--orders", str(ORDERS), "--kills", str(KILLS // runs))
        orders, cents = logged(data)
        assert orders.total() == runs * ORDERS
        wanted = [[name, f"{orders[name]:,}", f"{cents[name] / 100:,.2f}"] for name in sorted(orders)]
        assert [re.split(r" orders +| +", line) for line in lines[:-2]] == wanted
        assert lines[-2].startswith(f"{runs * ORDERS:,} orders; {KILLS // runs} kills; ")
        assert lines[-1] == "the table and the log have the same totals"


def test_a_table_with_other_rows_is_found(tmp_path: Path) -> None:
    data, lake = tmp_path / "shop", tmp_path / "lake"
    said("orders_to_table.py", data, lake, "--orders", "30", "--kills", "0")
    sys.path.insert(0, str(EXAMPLES))
    try:
        import orders_to_table
    finally:
        sys.path.remove(str(EXAMPLES))
    table = orders_to_table.scan_of_table(lake)
    catalog = orders_to_table.SqlCatalog("default", uri=f"sqlite:///{lake}/catalog.db", warehouse=f"file://{lake}")
    with contextlib.closing(catalog):
        catalog.load_table("shop.orders").append(table.to_arrow().slice(0, 1))
    done = run("orders_to_table.py", data, lake, "--orders", "0", "--kills", "0")
    assert done.returncode == 1 and "the log has other totals" in done.stdout
