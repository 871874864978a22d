"""Damaged batches: what iterating, checking and reading the records of each does (REC-4 to REC-9, 14, 15, 34).

What the reference leaves to its codecs, or to its heap, is InvalidRecord here (format.md section 15, C1). A v0 or v1
message whose key or value runs past its end still counts as one record (C2).
"""

from typing import Any

import pytest

from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord
from kafkalog.records.memory import MemoryRecords
from tests.golden_cases import each_entry

pytestmark = pytest.mark.golden

ERRORS = {
    "org.apache.kafka.common.errors.CorruptRecordException": CorruptRecord,
    "org.apache.kafka.common.InvalidRecordException": InvalidRecord,
    "org.apache.kafka.common.KafkaException": InvalidRecord,
    "java.lang.IllegalArgumentException": IllegalArgument,
    "java.lang.OutOfMemoryError": InvalidRecord,
}
LEGACY_BYTES = (26, 34)
"""The smallest size of a message of format v0 and v1, with offset and size (REC-43)."""


@each_entry("bad_batches")
def test_iterate_check_and_read(entry: dict[str, Any]) -> None:
    data = bytes.fromhex(entry["hex"])
    memory = MemoryRecords(data)
    if isinstance(entry["validBytes"], dict):
        with pytest.raises(ERRORS[entry["validBytes"]["exception"]]) as raised:
            _ = memory.valid_bytes
        assert entry["validBytes"]["message"] in str(raised.value)
    else:
        assert memory.valid_bytes == entry["validBytes"]
    if isinstance(entry["iterate"], dict):
        with pytest.raises(ERRORS[entry["iterate"]["exception"]]):
            list(memory.batches())
        return
    batches = list(memory.batches())
    assert len(batches) == len(entry["iterate"])
    for batch, expected in zip(batches, entry["iterate"], strict=True):
        assert (batch.size, batch.header.magic, batch.is_valid) == (
            expected["sizeInBytes"],
            expected["magic"],
            expected["isValid"],
        )
        if expected["ensureValid"] == "ok":
            batch.ensure_valid()
        else:
            with pytest.raises(ERRORS[expected["ensureValid"]["exception"]]) as raised:
                batch.ensure_valid()
            assert expected["ensureValid"]["message"] in str(raised.value)
        if batch.header.magic < 2 and batch.size < LEGACY_BYTES[batch.header.magic]:
            with pytest.raises(CorruptRecord):  # the reference counts it, and reads none of its fields
                batch.records()
        elif isinstance(expected["records"], dict):
            with pytest.raises(ERRORS[expected["records"]["exception"]]):
                batch.records()
        else:
            assert len(batch.records()) == expected["records"]
    assert memory.buffer == data
