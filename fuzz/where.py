"""Expressions: any text is an error, or has a text of its own that means the same, bounds, and a mask of its rows."""

import pyarrow as pa

from kafkalog import where
from kafkalog.errors import IllegalArgument

SEALS = False
WORDS = (
    "offset", "time", "key", "value.a", "value.b.c", "header.t", "size", "topic", "partition", "==", "!=", "<", "<=",
    ">", ">=", "and", "or", "not", "(", ")", "in", "like", "matches", "is", "null", ",", "'a%'", "'_'", "1", "-2.5",
    "1e9", "true", "false", "x'00ff'", "'2023-11-14T22:13:20Z'", "'^a|b$'", '"a b"', ".", "value.n", "key_size", "''",
    "9" * 19, "value.l[0].x", "value.l[*].x", "value.l[-1].t[*]", "[*]", "[1]",
)  # fmt: skip
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
ITEM = pa.struct([("x", pa.int64()), ("t", pa.list_(pa.string()))])
VALUE = pa.struct([
    ("a", pa.int32()), ("b", pa.struct([("c", pa.string())])), ("n", pa.decimal128(5, 2)), ("l", pa.list_(ITEM)),
])  # fmt: skip
FIRST = {"a": 1, "b": {"c": "x"}, "n": None, "l": [{"x": 1, "t": ["a", None]}, None]}
BATCH = pa.RecordBatch.from_pylist(
    [
        {"key": b"a\xff", "value": FIRST, "topic": "t", "partition": 0, "offset": 0,
         "timestamp": 0, "timestampType": 0, "headers": [("t", b"1"), ("t", None)], "size": 3},
        {"key": None, "value": None, "topic": "t", "partition": 0, "offset": 1, "timestamp": -1, "timestampType": 1,
         "headers": [], "size": None},
    ],
    pa.schema([
        ("key", pa.binary()), ("value", VALUE), ("topic", pa.string()), ("partition", pa.int32()),
        ("offset", pa.int64()), ("timestamp", pa.timestamp("ms", "UTC")), ("timestampType", pa.int32()),
        ("headers", HEADERS), ("size", pa.int32()),
    ]),
)  # fmt: skip


def run(data: memoryview) -> None:
    """The first byte says whether the others are text, or numbers of words."""
    if not len(data):
        return
    if data[0] % 2:
        text = bytes(data[1:]).decode("utf-8", "replace")
    else:
        text = " ".join(WORDS[number % len(WORDS)] for number in data[1:])
    try:
        expression = where.parse(text)
    except IllegalArgument as error:
        assert len(str(error)) < 1000
        return
    assert where.parse(str(expression)) == expression
    bounds = expression.bounds()
    try:
        mask = expression.mask(BATCH)
    except IllegalArgument:
        return
    assert len(mask) == 2 and mask.type == pa.bool_()
    for row, (offset, time) in enumerate(((0, 0), (1, -1))):
        if mask[row].as_py():
            for spans, number in ((bounds.offsets, offset), (bounds.times, time), (bounds.partitions, 0)):
                assert any(start <= number < stop for start, stop in spans)
