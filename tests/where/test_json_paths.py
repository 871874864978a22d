"""Paths into JSON without a schema: types that constants imply, types of a sample, fields of other kinds."""

import json
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import InvalidRecord
from tests.commands import ok

pytest.importorskip("kafkalog.values.json_columns")
ORDERS = [
    {"id": 1, "order": {"total": 50, "currency": "EUR"}, "paid": True},
    {"id": 2, "order": {"total": 150.5, "currency": "USD"}, "paid": False},
    {"id": 3, "order": {"total": "150", "currency": 7}},
    {"id": 4},
    {"id": 5, "order": {"total": 9007199254740993}, "paid": True},
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    with kafkalog.open(folder / "orders-0", "a") as log:
        log.append([(b"k", json.dumps(one).encode()) for one in ORDERS] + [(b"gone", None), (b"bad", b"{")])
    return folder / "orders-0"


@pytest.mark.parametrize(
    ("where", "offsets"),
    [
        ("value.order.total > 100", [1, 4]),
        ("value.order.total == 150.5 or value.paid", [0, 1, 4]),
        ("value.order.total >= 9007199254740993", [4]),
        ("value.order.total > 9007199254740992", [4]),
        ("value.id != 9007199254740993 and value.order.total == 150.5", [1]),
        ("value.order.total is null", [3, 5, 6]),
        ("value.order.currency in ('EUR', 'USD') and not value.paid", [1]),
        ("value.order.currency like '%'", [0, 1]),
        ("value.nothing == 'x' or value.id == 3", [2]),
        ("key == 'k' and value is not null and offset > 2", [3, 4]),
        ("value.order.total > 100 and value.order.currency != 'EUR'", [1]),
    ],
)
def test_paths(path: Path, where: str, offsets: list[int]) -> None:
    with kafkalog.open(path) as log:
        options = {"where": where, "value": "json", "on_undecodable": "null"}
        assert log.scan(["offset"], **options).table()["offset"].to_pylist() == offsets
        assert [one.offset for one in log.records(**options)] == offsets


def test_projected_paths_have_the_types_of_a_sample(path: Path) -> None:
    with kafkalog.open(path) as log:
        scan = log.scan(project=["offset", "value.id"], where="value.id >= 4", value="json", on_undecodable="null")
        assert scan.table().to_pylist() == [
            {"offset": 3, "value.id": 4, "value_error": None}, {"offset": 4, "value.id": 5, "value_error": None}
        ]
        whole = log.scan(["value"], value="json", stop=2).table()["value"].to_pylist()
        assert [one["order"]["currency"] for one in whole] == ["EUR", "USD"]
        assert log.scan(project=["value.idd"], value="json", stop=1).table().to_pylist() == [{"value.idd": None}]


def test_an_empty_range(path: Path) -> None:
    with kafkalog.open(path) as log:
        assert log.scan(["value"], value="json", start=7).table().num_rows == 0
        assert log.scan(project=["value.a"], value="json", start=5, stop=6).table().to_pylist() == [{"value.a": None}]


def test_what_is_no_json(path: Path) -> None:
    with kafkalog.open(path) as log, pytest.raises(InvalidRecord) as error:
        log.scan(["offset"], where="value.id > 0", value="json").table()
    assert error.value.offset == 6


def test_the_command(path: Path) -> None:
    flags = ["-d", path.parent, "-t", "orders", "-s", "value=json", "--where", "value.order.total > 100"]
    assert ok("consume", *flags, "-f", "%o ") == b"1 4 "
    assert ok("consume", *flags, "--project", "offset,value.id,value.paid").splitlines() == [
        b'{"offset":1,"value.id":2,"value.paid":false}', b'{"offset":4,"value.id":5,"value.paid":true}'
    ]
