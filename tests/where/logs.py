"""Logs of every format with random times, and their records as the plain evaluator takes them."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from kafkalog._core.batch.record import Record
from kafkalog.log.log import Log
from kafkalog.records.builder import RecordsBuilder
from kafkalog.records.format import CompressionType, TimestampType
from kafkalog.records.legacy import LegacyBuilder
from tests.where.expressions import EPOCH


class Batch(NamedTuple):
    """A batch to write: format, codec, and a record for each of `times` (-1 none)."""

    magic: int
    codec: CompressionType
    times: tuple[int, ...]
    append_time: int | None = None


def write_log(directory: Path, batches: list[Batch], per_segment: int) -> None:
    """Write the segment files of a partition, without indexes."""
    directory.mkdir(parents=True)
    offset, data, base = 0, b"", 0
    for number, batch in enumerate(batches):
        if number and number % per_segment == 0:
            (directory / f"{base:020d}.log").write_bytes(data)
            data, base = b"", offset
        data += encoded(batch, offset)
        offset += len(batch.times)
    (directory / f"{base:020d}.log").write_bytes(data)


def encoded(batch: Batch, base: int) -> bytes:
    builder: RecordsBuilder | LegacyBuilder
    if batch.magic < 2:
        builder = LegacyBuilder(base, magic=batch.magic, compression=batch.codec)
    elif batch.append_time is None:
        builder = RecordsBuilder(base, compression=batch.codec)
    else:
        builder = RecordsBuilder(
            base, compression=batch.codec, timestamp_type=TimestampType.LOG_APPEND_TIME,
            log_append_time=batch.append_time,
        )  # fmt: skip
    for n, time in enumerate(batch.times):
        headers = [("trace", b"%d" % n)] * (n % 2) if batch.magic == 2 else []
        builder.append(time if batch.magic else -1, b"k%d" % (n % 3), b'{"n": %d}' % (base + n), headers)
    return bytes(builder.build())


def as_row(log: Log, record: Record) -> dict[str, Any]:
    return {
        "key": record.key, "value": record.value, "topic": log.topic, "partition": log.partition,
        "offset": record.offset, "timestamp": EPOCH + timedelta(milliseconds=record.timestamp),
        "timestampType": record.timestamp_type, "headers": list(record.headers),
        "size": None if record.value is None else len(record.value),
    }  # fmt: skip


class Decoded(NamedTuple):
    """Result of a decoder."""

    values: pa.Array
    errors: pa.Array | None
    failed: int


class JsonDecoder:
    """A decoder of JSON objects by Python, with the face of those of `kafkalog.values`."""

    def __init__(self, type: pa.DataType) -> None:
        self.arrow_type = type
        self.rows = 0

    def decode(self, column: pa.Array) -> Decoded:
        values: list[Any] = []
        errors: list[str | None] = []
        self.rows += len(column)
        for raw in column.to_pylist():
            try:
                values.append(None if raw is None else json.loads(raw))
                errors.append(None)
            except ValueError as error:
                values.append(None)
                errors.append(str(error))
        failed = sum(one is not None for one in errors)
        return Decoded(pa.array(values, self.arrow_type), pa.array(errors, pa.string()) if failed else None, failed)
