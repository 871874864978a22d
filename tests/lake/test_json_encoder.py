"""Rows as JSON, by columns: the text that Python's own encoder makes of each row."""

import json
import random
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from kafkalog.errors import InvalidRecord
from kafkalog.lake.json_encoder import encode_json

ORDER = pa.struct([("name", pa.string()), ("tags", pa.list_(pa.string())), ("in", pa.struct([("x", pa.int8())]))])
SCHEMA = pa.schema([
    ("id", pa.int64()), ("big", pa.uint64()), ("ok", pa.bool_()), ("price", pa.float64()), ("short", pa.float32()),
    ('a "name"', pa.string()), ("raw", pa.binary()), ("at", pa.timestamp("us", "UTC")), ("day", pa.date32()),
    ("clock", pa.time64("us")), ("cents", pa.decimal128(10, 2)), ("order", ORDER),
    ("map", pa.map_(pa.string(), pa.int32())), ("long", pa.large_string()),
    ("empty", pa.struct([])), ("none", pa.null()),
])  # fmt: skip
TEXTS = [
    "", "plain", "ü \u2028 \U0001f600", 'a "quote"', "back\\slash", "line\n\t\r\b\f", "\x00\x1f\x7f", "null",
]  # fmt: skip


def value(kind: pa.DataType, random: random.Random) -> Any:
    text = random.choice(TEXTS)
    if random.random() < 0.2:
        return None
    if pa.types.is_struct(kind):
        return {field.name: value(field.type, random) for field in kind}
    if pa.types.is_map(kind):
        return [(text, 1)]
    if pa.types.is_list(kind):
        return [text, None]
    makers: dict[Any, Any] = {
        pa.int64(): random.randint(-(2**63), 2**63 - 1), pa.uint64(): random.randint(0, 2**64 - 1), pa.int8(): -5,
        pa.bool_(): random.random() < 0.5, pa.float64(): random.choice([0.1, 1e300, -0.0, 3.0, 5e-324]),
        pa.float32(): 0.5, pa.string(): text, pa.large_string(): text, pa.binary(): text.encode(),
        pa.timestamp("us", "UTC"): datetime(2026, 11, 29, 1, 2, 3, 4, UTC), pa.date32(): date(2026, 1, 2),
        pa.time64("us"): time(3, 4, 5), pa.decimal128(10, 2): Decimal("12.30"), pa.null(): None,
    }  # fmt: skip
    return makers[kind]


def plain(one: Any) -> Any:
    if isinstance(one, bytes):
        return one.decode()
    return one.isoformat() if hasattr(one, "isoformat") else str(one)


@pytest.mark.parametrize("seed", range(5))
def test_each_row_is_what_an_encoder_of_rows_makes(seed: int) -> None:
    chance = random.Random(seed)
    rows = pa.RecordBatch.from_pylist(
        [{field.name: value(field.type, chance) for field in SCHEMA} for _ in range(40)], SCHEMA
    )
    for part in (rows, rows.slice(7, 20), rows.slice(0, 0)):
        expected = [
            json.dumps(row, ensure_ascii=False, separators=(",", ":"), default=plain) for row in part.to_pylist()
        ]
        found = encode_json(part)
        assert found.to_pylist() == expected and found.type == pa.string()


@pytest.mark.parametrize("values", [[float("nan")], [b"\xff"], [[b"\xff"]], [float("inf")]])
def test_values_without_json(values: list[Any]) -> None:
    with pytest.raises(InvalidRecord, match="a row has no JSON"):
        encode_json(pa.RecordBatch.from_pydict({"a": pa.array(values)}))
