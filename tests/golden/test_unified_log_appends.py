"""What the real log made of every batch handed to it: which it refused, and what lies on disk (LOG-8, LOG-12, LOG-77).

Each append of the traces is checked alone, with the settings, clock and offset it had; the traces as a whole need
transactions and retention. Bytes are compared with the files of the closed log, records where a codec made them.
"""

from typing import Any

import pytest

from kafkalog._core.batch.scan import scan
from kafkalog._core.log.assign import assign
from kafkalog.config.topic import LogConfig
from kafkalog.errors import InvalidRecord, InvalidTimestamp, KafkalogError
from kafkalog.records.memory import MemoryRecords
from kafkalog.records.validate import ValidationRules, check_append
from tests.golden_cases import each_entry

pytestmark = pytest.mark.golden

KINDS: dict[str, type[KafkalogError]] = {
    "InvalidRecordException": InvalidRecord,
    "InvalidTimestampException": InvalidTimestamp,
}


def _records(data: Any) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for b in MemoryRecords(data).batches() for r in b]


def _written(op: dict[str, Any], config: LogConfig) -> tuple[Any, Any]:
    """(bytes, table) of what we write for an append of the trace."""
    data = bytearray.fromhex(op["batch"])
    rules = ValidationRules.of(config)
    checked = check_append(data, scan(data), rules, op["clock"], from_client=op["origin"] == "CLIENT")
    stamp = op["clock"] if rules.append_time else -1
    assign(checked.data, checked.table, op["result"]["firstOffset"], op["leaderEpoch"], stamp)
    return checked.data, checked.table


def _on_disk(entry: dict[str, Any]) -> dict[int, tuple[Any, bytes]]:
    """Base offset -> header and bytes of every batch in the files of the closed log."""
    found = {}
    for name, content in entry["files"].items():
        if name.endswith(".log"):
            data = bytes.fromhex(content)
            for header in scan(data):
                found[header.base_offset] = (header, data[header.position : header.position + header.size])
    return found


def _appended(ops: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """Return by first offset the append that wrote there last: a batch sent again is answered with its old offsets."""
    found: dict[int, dict[str, Any]] = {}
    end = 0
    for op in ops:
        if op["op"] == "appendAsLeader" and op["result"].get("firstOffset") == end:
            found[end] = op
        end = op["state"]["logEndOffset"]
    return found


@each_entry("unified_log", where=lambda entry: any(op["op"] == "appendAsLeader" for op in entry["ops"]))
def test_batches_on_disk_are_what_we_write(entry: dict[str, Any]) -> None:
    config = LogConfig.from_mapping(entry["config"])
    made = _appended(entry["ops"])
    compared = 0
    for base, (header, there) in _on_disk(entry).items():
        op = made.get(base)
        if op is None or op["result"]["lastOffset"] != header.last_offset:
            continue  # the rest of the trace shows it: cut off and appended again
        ours, table = _written(op, config)
        assert table[0].compression == header.compression
        assert table.max_timestamp == op["result"]["maxTimestamp"] == header.max_timestamp
        if scan(bytes.fromhex(op["batch"])).codec == header.compression:
            assert bytes(ours) == there
        else:
            assert _records(ours) == _records(there)
            fields = ("producer_id", "producer_epoch", "base_sequence", "count", "is_transactional", "base_timestamp")
            assert [getattr(table[0], name) for name in fields] == [getattr(header, name) for name in fields]
        compared += 1
    assert compared > 0


def _has_refusals(entry: dict[str, Any]) -> bool:
    results = [op.get("result") for op in entry["ops"]]
    return any(isinstance(result, dict) and "RecordValidation" in result.get("exception", "") for result in results)


@each_entry("unified_log", where=_has_refusals)
def test_refusals(entry: dict[str, Any]) -> None:
    config = LogConfig.from_mapping(entry["config"])
    for op in entry["ops"]:
        result = op.get("result")
        if op["op"] != "appendAsLeader" or "RecordValidation" not in result.get("exception", ""):
            continue
        kind = result["message"].split(":")[0].rpartition(".")[2]
        with pytest.raises(KINDS[kind]):
            _written(op, config)
