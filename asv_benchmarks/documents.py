"""JSON and Protobuf values decoded into Arrow columns, beside the libraries that read them."""

import io
import json
from collections.abc import Callable
from typing import Any

from asv_benchmarks.measure import Peers, Row, per_item

MILLION = 1e6
ROWS = 50_000
PEER_ROWS = 10_000
NAMES = ("id", "customer", "total", "paid", "country", "items", "time", "sku", "weight", "note")
MESSAGE = """name: "order.proto" syntax: "proto3" message_type { name: "Order"
  field { name: "id" number: 1 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "customer" number: 2 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "total" number: 3 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "paid" number: 4 type: TYPE_BOOL label: LABEL_OPTIONAL }
  field { name: "country" number: 5 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "items" number: 6 type: TYPE_INT32 label: LABEL_OPTIONAL }
  field { name: "time" number: 7 type: TYPE_INT64 label: LABEL_OPTIONAL }
  field { name: "sku" number: 8 type: TYPE_STRING label: LABEL_OPTIONAL }
  field { name: "weight" number: 9 type: TYPE_DOUBLE label: LABEL_OPTIONAL }
  field { name: "note" number: 10 type: TYPE_STRING label: LABEL_OPTIONAL } }"""


def order(i: int, note: str) -> dict[str, Any]:
    """Return an order of ten fields."""
    head = (i, f"c{i % 1000}", i % 10_000 / 100, i % 3 == 0, "DE", i % 10)
    return dict(zip(NAMES, (*head, 1_700_000_000_000 + i, f"A{i % 50}", 1.5, note), strict=True))


def json_values(count: int) -> list[bytes]:
    """Return orders as JSON, about 120 bytes each."""
    return [json.dumps(order(i, "n"), separators=(",", ":")).encode() for i in range(count)]


def rows() -> list[Row]:
    """Return the rates of JSON and Protobuf values, in millions of values a CPU second."""
    import pyarrow as pa

    from kafkalog import values

    data = json_values(ROWS)
    column = pa.array(data, pa.binary())
    whole, one = values.decoder("json", sample=data[:100]), values.decoder("json", fields={"total": "double"})
    found = [
        Row("JSON to Arrow, 10 fields", _rate(whole, column), 2, "M/s", False, _json_peers(data)),
        Row("JSON to Arrow, one path", _rate(one, column), 3, "M/s", False, _path_peers(data)),
    ]
    return found + _protobuf_rows()


def _protobuf_rows() -> list[Row]:
    import pyarrow as pa
    from google.protobuf import descriptor_pb2, message_factory, text_format

    from kafkalog import values
    from kafkalog.values.protobuf_schemas import DescriptorFiles

    files = [text_format.Parse(MESSAGE, descriptor_pb2.FileDescriptorProto())]
    kind = message_factory.GetMessageClass(DescriptorFiles(files).message(None))
    data = [kind(**order(i, "n" * (20 + i % 40))).SerializeToString() for i in range(ROWS)]
    column, some = pa.array(data, pa.binary()), data[:PEER_ROWS]

    def to_arrow() -> Any:
        parsed = [kind.FromString(row) for row in some]
        return pa.array([{name: getattr(one, name) for name in NAMES} for one in parsed])

    peers: Peers = {
        "protobuf, parsed alone": _each(kind.FromString, some), "protobuf, pyarrow": _once(to_arrow, len(some)),
    }  # fmt: skip
    whole, one = values.decoder("protobuf", schema=kind), values.decoder("protobuf", schema=kind, fields=["total"])
    return [
        Row("Protobuf to Arrow, 10 fields", _rate(whole, column), 5, "M/s", False, peers),
        Row("Protobuf to Arrow, one path", _rate(one, column), 5, "M/s", False),
    ]


def _json_peers(data: list[bytes]) -> Peers:
    import pyarrow as pa
    import pyarrow.json

    some = data[:PEER_ROWS]
    lines = b"\n".join(data)
    peers: Peers = {}
    for name in ("orjson", "msgspec"):
        try:
            loads = parser_of(name)
        except ImportError as missing:
            peers[name] = f"not installed ({missing.name})"
            continue
        peers[f"{name}, parsed alone"] = _each(loads, some)
        peers[f"{name}, pyarrow"] = _once(lambda loads=loads: pa.array([loads(row) for row in some]), len(some))
    options = pa.json.ReadOptions(use_threads=False)
    peers["pyarrow.json"] = _once(lambda: pa.json.read_json(io.BytesIO(lines), options), len(data))
    types = dict(zip(NAMES, ("BIGINT", "VARCHAR", "DOUBLE", "BOOLEAN", "VARCHAR", "BIGINT", "BIGINT", "VARCHAR",
                             "DOUBLE", "VARCHAR"), strict=True))  # fmt: skip
    peers["DuckDB"] = _duckdb(f"json_transform(v::JSON, '{json.dumps(types)}')", data)
    return peers


def _path_peers(data: list[bytes]) -> Peers:
    return {"DuckDB": _duckdb("json_extract(v, '$.total')::DOUBLE", data)}


def parser_of(name: str) -> Callable[[bytes], Any]:
    """Return the function of orjson or msgspec that parses a document; raise ImportError without the package."""
    if name == "orjson":
        import orjson

        loads: Callable[[bytes], Any] = orjson.loads
        return loads
    import msgspec

    decode: Callable[[bytes], Any] = msgspec.json.Decoder().decode
    return decode


def _duckdb(expression: str, data: list[bytes]) -> float | str:
    try:
        import duckdb
    except ImportError as missing:
        return f"not installed ({missing.name})"
    import pyarrow as pa

    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    connection.register("texts", pa.table({"v": pa.array(data, pa.string())}))
    return _once(lambda: connection.sql(f"SELECT {expression} FROM texts").to_arrow_table(), len(data))


def _rate(decoder: Any, column: Any) -> float:
    def once() -> int:
        decoded = decoder.decode(column)
        assert decoded.failed == 0
        return len(decoded.values)

    return 1 / per_item(once) / MILLION


def _each(work: Callable[[bytes], Any], data: list[bytes]) -> float:
    def once() -> int:
        for value in data:
            work(value)
        return len(data)

    return 1 / per_item(once) / MILLION


def _once(work: Callable[[], Any], count: int) -> float:
    def once() -> int:
        work()
        return count

    return 1 / per_item(once) / MILLION
