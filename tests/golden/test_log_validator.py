"""Every case of LogValidator's vectors: Kafka 4.3.1, and 3.9.1 which converts between formats (VAL-1 to VAL-20)."""

from typing import Any

import pytest

from fuzz.leader import ValidationResult, validate_and_assign_offsets
from kafkalog._core.batch.scan import scan
from kafkalog.errors import IllegalArgument, InvalidRecord, InvalidTimestamp, KafkalogError
from kafkalog.records.format import CompressionType
from kafkalog.records.memory import MemoryRecords
from kafkalog.records.validate import ValidationRules, ValidatorMetrics
from tests.golden_cases import each_entry

pytestmark = pytest.mark.golden

# Where the reference fails without control, for keys it has skipped or in a codec, the batch is refused.
ERRORS: dict[str, type[KafkalogError]] = {
    "IllegalArgumentException": IllegalArgument,
    "InvalidRecordException": InvalidRecord,
    "InvalidTimestampException": InvalidTimestamp,
    "KafkaException": InvalidRecord,
    "UnsupportedOperationException": InvalidRecord,
}
TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}
METRICS = {
    "invalidMagic": "invalid_magic",
    "invalidOffset": "invalid_offset",
    "invalidSequence": "invalid_sequence",
    "invalidChecksums": "invalid_checksums",
    "noKeyCompactedTopic": "no_key_compacted_topic",
}


def codec_of(name: str) -> CompressionType | None:
    """None is the producer's own."""
    return None if name == "producer" else CompressionType[name.upper()]


def assert_result(result: ValidationResult, expected: dict[str, Any]) -> None:
    """What is returned, and the bytes where no codec made them."""
    assert result.next_offset == expected["nextOffset"]
    assert result.log_append_time_ms == expected["logAppendTimeMs"]
    assert result.max_timestamp_ms == expected["maxTimestampMs"]
    assert result.message_size_maybe_changed == expected["messageSizeMaybeChanged"]
    made_by_codec = result.message_size_maybe_changed and scan(result.records).codec
    if expected.get("output") is not None and not made_by_codec:
        assert bytes(result.records).hex() == expected["output"]
    batches = list(MemoryRecords(result.records).batches())
    assert len(batches) == len(expected["batches"])
    for batch, wanted in zip(batches, expected["batches"], strict=True):
        header = batch.header
        assert header.magic == wanted["magic"]
        assert (batch.base_offset, batch.last_offset) == (wanted["baseOffset"], wanted["lastOffset"])
        assert TYPES[header.timestamp_type] == wanted["timestampType"]
        assert header.max_timestamp == wanted["maxTimestamp"]
        pairs = wanted.get("records") or wanted.get("offsetsAndTimestamps")
        assert [[record.offset, record.timestamp] for record in batch] == pairs
        if not made_by_codec:
            assert header.size == wanted["sizeInBytes"]


@each_entry("log_validator")
def test_kafka_4(entry: dict[str, Any]) -> None:
    metrics = ValidatorMetrics()
    rules = ValidationRules(
        codec_of(entry["targetCompression"]),
        append_time=entry["timestampType"] == "LogAppendTime",
        before_ms=entry["timestampBeforeMaxMs"],
        after_ms=entry["timestampAfterMaxMs"],
        need_keys=entry["compactedTopic"],
    )
    expected = entry["result"]

    def run() -> ValidationResult:
        return validate_and_assign_offsets(
            bytes.fromhex(entry["input"]),
            entry["firstOffset"],
            rules,
            entry["now"],
            from_client=entry["origin"] == "CLIENT",
            leader_epoch=entry["partitionLeaderEpoch"],
            partition="t-0",
            metrics=metrics,
        )

    if "exception" in expected:
        kind = ERRORS[(expected.get("invalidException") or expected["exception"]).rpartition(".")[2]]
        with pytest.raises(kind) as raised:
            run()
        assert type(raised.value) is kind
        assert [list(pair) for pair in getattr(raised.value, "record_errors", ())] == expected.get("recordErrors", [])
    else:
        result = run()
        assert_result(result, expected)
        for batch, wanted in zip(MemoryRecords(result.records).batches(), expected["batches"], strict=True):
            header = batch.header
            assert {
                "compression": CompressionType(header.compression).name.lower(),
                "producerId": header.producer_id,
                "producerEpoch": header.producer_epoch,
                "baseSequence": header.base_sequence,
                "lastSequence": header.last_sequence,
                "count": header.count,
                "isTransactional": header.is_transactional,
                "isControl": header.is_control,
                "partitionLeaderEpoch": header.leader_epoch,
                "deleteHorizonMs": header.delete_horizon_ms,
                "baseTimestamp": header.base_timestamp,
                "offsetOfMaxTimestamp": batch.offset_of_max_timestamp(),
                "isValid": header.is_valid,
            }.items() <= wanted.items()
    assert {name: getattr(metrics, ours) for name, ours in METRICS.items()} == entry["metrics"]


@each_entry("log_validator_39")
def test_kafka_39_between_all_formats(entry: dict[str, Any]) -> None:
    rules = ValidationRules(codec_of(entry["codec"]), append_time=entry["timestampType"] == "LogAppendTime")
    expected = entry["result"]

    def run() -> ValidationResult:
        return validate_and_assign_offsets(
            bytes.fromhex(entry["input"]),
            entry["firstOffset"],
            rules,
            entry["now"],
            magic=entry["toMagic"],
            leader_epoch=3,
        )

    if "exception" in expected:
        with pytest.raises(ERRORS[expected["exception"].rpartition(".")[2]], match="headers"):
            run()
    else:
        result = run()
        assert_result(result, expected)
        assert scan(result.records).first_invalid == -1
