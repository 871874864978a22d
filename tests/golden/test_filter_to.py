"""What the reference's MemoryRecords.filterTo leaves of a batch: its bytes and its counters (CLN-8, CLN-10)."""

from typing import Any

import pytest

from kafkalog._core.clean.offset_map import SkimpyOffsetMap
from kafkalog.cleaner.retain import Retainer
from kafkalog.cleaner.transactions import CleanedTransactions
from kafkalog.records.memory import MemoryRecords
from tests.golden_cases import vector

pytestmark = pytest.mark.golden
COUNTERS = {
    "maxOffset": "max_offset",
    "maxTimestamp": "max_timestamp",
    "messagesRead": "messages_read",
    "bytesRead": "bytes_read",
    "messagesRetained": "messages_retained",
    "bytesRetained": "bytes_retained",
}


def pairs() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Each filtered entry with the one before it, which it was made from."""
    entries = [entry for _, entry in vector("batches")]
    return [(source, entry) for source, entry in zip(entries, entries[1:], strict=False) if "messagesRead" in entry]


@pytest.mark.parametrize(("source", "filtered"), pairs())
def test_bytes_and_counters_of_filter_to(source: dict[str, Any], filtered: dict[str, Any]) -> None:
    kept = {record["offset"] for batch in filtered["batches"] for record in batch["records"]}
    offset_map = SkimpyOffsetMap(24 * 100)
    (batch,) = MemoryRecords(bytes.fromhex(source["hex"])).batches()
    for record in batch.records():
        assert record.key is not None
        offset_map.put(record.key, record.offset if record.offset in kept else record.offset + 1)
        offset_map.update_latest_offset(record.offset)
    retainer = Retainer(
        offset_map,
        CleanedTransactions(),
        now_ms=filtered["currentTime"],
        delete_retention_ms=filtered["deleteRetentionMs"],
        upper_bound_offset=-1,
    )
    result = retainer.filter(bytes.fromhex(source["hex"]))
    assert bytes(result.data).hex() == filtered["hex"]
    counters = {name: getattr(result, ours) for name, ours in COUNTERS.items()}
    assert counters == {name: filtered[name] for name in COUNTERS}
