"""Segments of format v0 and v1 as Kafka 3.9.1 wrote and reads them: batches, records, indexes, lookups by time.

REC-38, REC-40, REC-41: plain messages and wrappers of every codec, absolute and relative inner offsets, both
timestamp types, gaps, formats mixed in one file.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from kafkalog.config.topic import LogConfig
from kafkalog.records.batch import RecordBatch
from kafkalog.records.format import TimestampType, codec_name
from kafkalog.records.memory import MemoryRecords
from kafkalog.records.tables import record_tables
from kafkalog.storage.segment import LogSegment
from tests.golden_cases import Case, each_entry, partitions

pytestmark = pytest.mark.golden

TYPES = {kind.value: name for name, kind in (
    ("CreateTime", TimestampType.CREATE_TIME),
    ("LogAppendTime", TimestampType.LOG_APPEND_TIME),
    ("NoTimestampType", TimestampType.NO_TIMESTAMP_TYPE),
)}  # fmt: skip


def directory_of(entry: dict[str, Any]) -> Path:
    found: list[Case] = [case for case in partitions("legacy") if case.name == entry["partition"]]
    return found[0].directory


def log_bytes(entry: dict[str, Any], segment: dict[str, Any]) -> bytes:
    return (directory_of(entry) / f"{segment['baseOffset']:020d}.log").read_bytes()


def hexed(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def row_of(record: Any) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": hexed(record.key),
        "value": hexed(record.value),
        "headers": [list(pair) for pair in record.headers],
    }


def described(batch: RecordBatch) -> dict[str, Any]:
    header = batch.header
    return {
        "position": header.position,
        "magic": header.magic,
        "baseOffset": batch.base_offset,
        "lastOffset": batch.last_offset,
        "sizeInBytes": batch.size,
        "compression": codec_name(header.compression),
        "timestampType": TYPES[header.timestamp_type],
        "maxTimestamp": header.max_timestamp,
        "crc": header.crc,
        "isValid": batch.is_valid,
        "records": [row_of(record) for record in batch],
    }


@each_entry("legacy")
def test_batches_and_records(entry: dict[str, Any]) -> None:
    for segment in entry["segments"]:
        data = log_bytes(entry, segment)
        assert len(data) == segment["size"]
        assert [described(batch) for batch in MemoryRecords(data).batches()] == segment["batches"]


@each_entry("legacy")
def test_all_records_of_a_segment_at_once(entry: dict[str, Any]) -> None:
    for segment in entry["segments"]:
        data = log_bytes(entry, segment)
        tables = list(record_tables(data, MemoryRecords(data).table))
        seen = [(row_of(record), record.timestamp_type) for table in tables for record in table]
        assert seen == [
            (record, {v: k for k, v in TYPES.items()}[batch["timestampType"]])
            for batch in segment["batches"]
            for record in batch["records"]
        ]


@pytest.mark.filterwarnings("ignore:segment.bytes")
@each_entry("legacy")
def test_indexes_and_lookups_by_time(entry: dict[str, Any], tmp_path: Path) -> None:
    copy = tmp_path / entry["partition"]
    shutil.copytree(directory_of(entry), copy)
    config = LogConfig.from_mapping(entry["config"])
    for segment in entry["segments"]:
        opened = LogSegment.open(copy, segment["baseOffset"], config, file_already_exists=True)
        offsets, times = opened.offset_index, opened.time_index
        assert [[e.offset, e.position] for e in map(offsets.entry, range(offsets.entries))] == segment["offsetIndex"]
        assert [[e.timestamp, e.offset] for e in map(times.entry, range(times.entries))] == segment["timeIndex"]
        for lookup in segment["findOffsetByTimestamp"]:
            found = opened.find_offset_by_timestamp(lookup["timestamp"], segment["baseOffset"])
            assert (found and [found.timestamp, found.offset]) == lookup["result"]
        opened.close()
