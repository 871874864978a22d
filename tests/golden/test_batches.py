"""Every field of whole batches as Kafka's reader reports it (REC-1, REC-2, REC-11, REC-20, REC-37, REC-40, REC-41).

All formats and codecs; the counters of filtered batches come with the cleaner. Control batches decode as plain
records here.
"""

from typing import Any

import pytest

from kafkalog.records.batch import RecordBatch
from kafkalog.records.format import TimestampType, codec_name
from kafkalog.records.memory import MemoryRecords
from tests.golden_cases import each_entry

pytestmark = pytest.mark.golden

TYPES = {
    "CreateTime": TimestampType.CREATE_TIME,
    "LogAppendTime": TimestampType.LOG_APPEND_TIME,
    "NoTimestampType": TimestampType.NO_TIMESTAMP_TYPE,
}


def _selected(entry: dict[str, Any]) -> bool:
    return "batches" in entry and "messagesRead" not in entry


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _records(batch: RecordBatch) -> list[dict[str, Any]]:
    table = batch.decode()
    rows = zip(batch.records(), batch.sequences(), table.record_sizes, strict=True)
    return [
        {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "sequence": sequence,
            "sizeInBytes": size,
            "key": _hex(record.key),
            "value": _hex(record.value),
            "headers": [[name, _hex(value)] for name, value in record.headers],
        }
        for record, sequence, size in rows
    ]


def _plain_headers(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Headers as pairs, whichever way the capture writes them."""
    out = []
    for record in records:
        pairs = [[h["key"], h["value"]] if isinstance(h, dict) else list(h) for h in record["headers"]]
        out.append({**record, "headers": pairs})
    return out


@each_entry("batches", where=_selected)
def test_every_field(entry: dict[str, Any]) -> None:
    memory = MemoryRecords(bytes.fromhex(entry["hex"]))
    assert memory.valid_bytes == entry["validBytes"]
    batches = list(memory.batches())
    assert len(batches) == len(entry["batches"])
    for batch, expected in zip(batches, entry["batches"], strict=True):
        header = batch.header
        seen = {
            "magic": header.magic,
            "baseOffset": batch.base_offset,
            "lastOffset": header.last_offset,
            "nextOffset": header.next_offset,
            "sizeInBytes": header.size,
            "isValid": header.is_valid,
            "crc": header.crc,
            "compression": codec_name(header.compression),
            "maxTimestamp": header.max_timestamp,
            "producerId": header.producer_id,
            "producerEpoch": header.producer_epoch,
            "baseSequence": header.base_sequence,
            "lastSequence": header.last_sequence,
            "count": header.count if header.magic > 1 else None,
            "isTransactional": header.is_transactional,
            "isControl": header.is_control,
            "partitionLeaderEpoch": header.leader_epoch,
            "deleteHorizonMs": header.delete_horizon_ms,
            "offsetOfMaxTimestamp": batch.offset_of_max_timestamp(),
            "records": _records(batch),
        }
        assert header.timestamp_type == TYPES[expected["timestampType"]]
        if "baseTimestamp" in expected and expected["baseTimestamp"] is not None:
            seen["baseTimestamp"] = header.base_timestamp
        wanted = {k: v for k, v in expected.items() if k != "timestampType"}
        wanted["records"] = _plain_headers(expected["records"])
        assert seen == wanted
