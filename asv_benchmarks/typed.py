"""Values decoded into Arrow columns, beside the libraries that make Python objects of them."""

import io
from pathlib import Path
from typing import Any

from asv_benchmarks import documents
from asv_benchmarks.measure import Peers, Row, per_item

MILLION = 1e6
ROWS = 50_000
PEER_ROWS = 5_000
ORDER: dict[str, Any] = {
    "type": "record", "name": "Order", "fields": [
        {"name": "id", "type": "long"}, {"name": "customer", "type": "string"}, {"name": "country", "type": "string"},
        {"name": "total", "type": "double"}, {"name": "items", "type": "int"}, {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["NEW", "PAID", "SENT"]}},
        {"name": "sku", "type": "string"},
    ],
}  # fmt: skip
"""Ten fields, about 100 bytes a value."""


def avro_values(count: int) -> list[bytes]:
    """Return the bytes of `count` orders."""
    from kafkalog.values.avro_default import encoded_default
    from kafkalog.values.avro_schema import parse_avro

    schema = parse_avro(ORDER)
    return [
        encoded_default(schema, {
            "id": i * 1_000_003, "customer": f"customer-{i:08}", "country": "DE", "total": i * 1.5, "items": i % 100,
            "paid": i % 2 == 0, "note": None if i % 3 else f"leave it at the door, number {i}",
            "time": 1_700_000_000_000 + i, "status": "PAID", "sku": f"sku-{i * 7919 % 1_000_003:040}",
        })
        for i in range(count)
    ]  # fmt: skip


def rows(directory: Path) -> list[Row]:
    """Return the rates of Avro, JSON, Protobuf and plain values, in millions of values a CPU second."""
    import pyarrow as pa

    from kafkalog import values

    data = avro_values(ROWS)
    column = pa.array(data, pa.binary())
    avro = values.decoder("avro", schema=ORDER)
    found = [Row("Avro to Arrow, 10 fields", _rate(avro, column), 5, "M/s", False, _fastavro(data[:PEER_ROWS]))]
    one = {**ORDER, "fields": ORDER["fields"][3:4]}
    peers = _fastavro(data[:PEER_ROWS], one)
    found.append(Row("Avro to Arrow, one path", _rate(avro.only([("total",)]), column), 10, "M/s", False, peers))
    numbers = pa.array([i.to_bytes(8, "big") for i in range(ROWS)], pa.binary())
    found.append(Row("int64 to Arrow", _rate(values.decoder("int64"), numbers), 50, "M/s", False))
    text = pa.array([one.hex().encode() for one in data], pa.binary())
    found.append(Row("text to Arrow", _rate(values.decoder("string"), text), 10, "M/s", False))
    return found + documents.rows()


def _rate(decoder: Any, column: Any) -> float:
    def once() -> int:
        decoded = decoder.decode(column)
        assert decoded.failed == 0
        return len(decoded.values)

    return 1 / per_item(once) / MILLION


def _fastavro(data: list[bytes], reader: dict[str, Any] | None = None) -> Peers:
    try:
        import fastavro
    except ImportError as missing:
        return {"fastavro": f"not installed ({missing.name})"}
    schema = fastavro.parse_schema(ORDER)
    wanted = None if reader is None else fastavro.parse_schema(reader)

    def once() -> int:
        for value in data:
            fastavro.schemaless_reader(io.BytesIO(value), schema, wanted)
        return len(data)

    return {"fastavro": 1 / per_item(once) / MILLION}
