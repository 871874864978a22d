"""examples/orders_of_customer.py: all records of one key, through key indexes of its own."""

from pathlib import Path

import pytest

import kafkalog
from tests.examples.programs import run, said


@pytest.fixture
def data(tmp_path: Path) -> Path:
    data = tmp_path / "data"
    data.mkdir()
    for partition in range(2):
        with kafkalog.open(data / f"orders-{partition}", "a") as log:
            log.append([(b"alice", b"1 pear"), (b"bob", b"2 figs"), (b"carol", b"3 nuts")][: 3 - partition])
            log.roll()
            log.append([(b"alice", b"4 plums"), (b"bob", None)])
    return data


def test_orders_of_a_customer(data: Path, tmp_path: Path) -> None:
    found = said("orders_of_customer.py", data, "orders", "alice", cwd=tmp_path)
    assert [row.split(" ", 3)[::3] + row.split(" ", 3)[1:2] for row in found] == [
        ["0", "1 pear", "0"], ["0", "4 plums", "3"], ["1", "1 pear", "0"], ["1", "4 plums", "2"],
    ]  # fmt: skip
    last = said("orders_of_customer.py", data, "orders", "alice", "carol", "--last", cwd=tmp_path)
    assert [row.split(" ", 3)[3] for row in last] == ["4 plums", "3 nuts", "4 plums"]
    assert len(list((tmp_path / "orders.keys").rglob("*.keyindex"))) == 2
    assert not list(data.rglob("*.keyindex"))
    assert run("orders_of_customer.py", data, "orders", "nobody", cwd=tmp_path).returncode == 1
