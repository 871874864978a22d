"""A topic whose values are numbers of rows of a table with every type, and a decoder that counts what it decodes."""

import math
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa

import kafkalog
from kafkalog.values import Decoded

T = 1_700_000_000_000
TYPE = pa.struct(
    [
        ("n", pa.int64()), ("small", pa.int16()), ("u", pa.uint64()), ("f", pa.float64()), ("s", pa.string()),
        ("b", pa.binary()), ("t", pa.bool_()), ("ts", pa.timestamp("us", "UTC")), ("d", pa.date32()),
        ("in", pa.struct([("x", pa.string()), ("a.b", pa.int32())])), ("l", pa.list_(pa.int64())),
    ]
)  # fmt: skip
TEXTS = ["", "eu-1", "eu-%", "eu_1", "EU-1", "a\nb", "\\", "ü", "eu-\x00", "zz"]
BYTES = [b"", b"k1", b"k2", b"\xff\x00", b"k%", "ü".encode(), b"k\n1"]
FLOATS = [0.0, -0.0, 1.5, -2.5, math.nan, math.inf, -math.inf, 2.0**53]
WHOLE = [0, 1, -1, 7, 2**53, 2**53 + 1, 2**63 - 1, -(2**63)]
UNSIGNED = [0, 1, 7, 2**53 + 1, 2**64 - 1]
ROWS = 400


def row_of(number: int) -> dict[str, Any] | None:
    """Row `number`: each field repeats with another period, and each is null sometimes."""
    if number % 17 == 3:
        return None

    def one(values: list[Any], step: int) -> Any:
        return None if number % step == step - 1 else values[number // 2 % len(values)]

    return {
        "n": one(WHOLE, 11), "small": one([0, -5, 32767], 13), "u": one(UNSIGNED, 7), "f": one(FLOATS, 19),
        "s": one(TEXTS, 12), "b": one(BYTES, 9), "t": one([True, False], 5),
        "ts": one([datetime(2026, 1, 1, 0, 0, n, 500 * n, UTC) for n in range(5)], 8),
        "d": one([date(1969, 12, 31), date(2026, 1, 1), date(2026, 1, 2)], 6),
        "in": one([{"x": "eu", "a.b": 5}, {"x": None, "a.b": -1}], 10), "l": one([[1, 2], []], 4),
    }  # fmt: skip


TABLE = pa.array([row_of(number) for number in range(ROWS)], TYPE)


class CountingDecoder:
    """Values are row numbers of TABLE; `rows` counts those that were decoded."""

    arrow_type = TYPE

    def __init__(self) -> None:
        self.rows = 0

    def decode(self, column: Any) -> Decoded:
        """Return the rows with these numbers."""
        self.rows += len(column)
        numbers = pa.array([None if one is None else int(one) for one in column.to_pylist()], pa.int64())
        return Decoded(TABLE.take(numbers), None, 0)


def make_rows(directory: Path) -> Path:
    """Create the topic `rows`, two partitions, with keys of BYTES and null."""
    with kafkalog.open_dirs(directory, "a") as dirs:
        dirs.create_topic("rows", 2, {"retention.ms": -1})
        for start in range(0, ROWS, 20):
            records = [
                ([*BYTES, None][number % 8], None if number % 23 == 1 else b"%d" % number, T + 1000 * number)
                for number in range(start, start + 20)
            ]
            dirs["rows", start // 20 % 2].append(records)
    return directory
