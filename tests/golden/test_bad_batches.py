"""Damaged batches: what iterating, checking and reading the records of each does (REC-4 to REC-9, 14, 15, 34).

Same scope as test_batches. Where a batch's checksum is wrong and its attribute bits name a codec, its records are
refused by name; nothing can be said of their number until the codecs are there.
"""

from typing import Any

import pytest

from kafkalog.errors import CorruptRecord, IllegalArgument, InvalidRecord, UnsupportedCompression
from kafkalog.records.memory import MemoryRecords
from tests.frames import batches_of, in_scope
from tests.golden_cases import each_entry

pytestmark = pytest.mark.golden

ERRORS = {
    "org.apache.kafka.common.errors.CorruptRecordException": CorruptRecord,
    "org.apache.kafka.common.InvalidRecordException": InvalidRecord,
    "java.lang.IllegalArgumentException": IllegalArgument,
}
NAMED_CODECS = range(1, 5)


def _selected(entry: dict[str, Any]) -> bool:
    data = bytes.fromhex(entry["hex"])
    return in_scope(data) or all(attributes & 7 > 4 for _, attributes, _ in batches_of(data))


@each_entry("bad_batches", where=_selected)
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
        if batch.header.compression in NAMED_CODECS:
            with pytest.raises(UnsupportedCompression, match="compressed with"):
                batch.records()
        elif isinstance(expected["records"], dict):
            with pytest.raises(ERRORS[expected["records"]["exception"]]):
                batch.records()
        else:
            assert len(batch.records()) == expected["records"]
    assert memory.buffer == data
