"""Reading real partitions: the records are those that the real consumer gave."""

import base64
import json
import struct
from typing import Any

import pytest

import kafkalog
from kafkalog._core.record import Record
from tests import golden_cases
from tests.golden_cases import Case

pytestmark = pytest.mark.golden
UNCOMMITTED = "read_uncommitted"
CODEC = 7


def is_plain(data: bytes) -> bool:
    """True when all batches of a segment are of format v2 and not compressed."""
    at = 0
    while at + 61 <= len(data):
        size, _, magic, _, attributes = struct.unpack_from(">iibIh", data, at + 8)
        if magic != 2 or attributes & CODEC or size <= 0:
            return False
        at += size + 12
    return True


def readable(case: Case) -> bool:
    """True for partitions of plain v2 batches whose consumption is known."""
    return bool(expected_names(case)) and all(
        is_plain(case.path(name).read_bytes()) for name in case.files_with(".log")
    )


def expected_names(case: Case) -> list[str]:
    return [name for name in case.expected_with(".jsonl") if UNCOMMITTED in name]


def listed_offsets(case: Case) -> dict[str, Any]:
    names = [name for name in case.expected_with(".json") if name.startswith("listoffsets/")]
    found: dict[str, Any] = {}
    for name in names:
        found |= json.loads(case.expected_path(name).read_text(encoding="utf-8"))[UNCOMMITTED]
    return found


def expected(case: Case) -> list[dict[str, Any]]:
    (name,) = expected_names(case)
    return [json.loads(line) for line in case.expected_path(name).read_text(encoding="utf-8").splitlines()]


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def shown(record: Record) -> tuple[Any, ...]:
    headers = [[name, encoded(value)] for name, value in record.headers]
    return record.offset, record.timestamp, encoded(record.key), encoded(record.value), headers


def told(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["offset"], row["timestamp"], row["key"], row["value"], row["headers"]


@golden_cases.each_partition("logdir", where=readable)
def test_records_are_those_the_consumer_read(case: Case) -> None:
    rows = expected(case)
    with kafkalog.open(case.directory) as log:
        records = list(log)
        assert [shown(record) for record in records] == [told(row) for row in rows]
        for row in rows[:: max(1, len(rows) // 50)]:
            assert told(row) == shown(log[row["offset"]])
        assert log.problems == ()


@golden_cases.each_partition("crash", where=readable)
def test_killed_broker_s_directory_reads_as_after_its_recovery(case: Case) -> None:
    """Unclean: indexes full of free room, perhaps a torn tail; the broker may have run retention before it read."""
    rows = expected(case)
    with kafkalog.open(case.directory) as log:
        first = rows[0]["offset"] if rows else log.end_offset
        assert [shown(record) for record in log.records(first)] == [told(row) for row in rows]


@golden_cases.each_partition("logdir", where=readable)
def test_offsets_by_time_are_those_the_admin_client_got(case: Case) -> None:
    """LOG-57: numbers as names are times asked for; offset -1 is none.

    The reference stops at the first segment whose file is young enough, even one that compaction left empty, and
    then finds none; there the first record that the consumer got at or after the time is right.
    """
    rows = expected(case)
    with kafkalog.open(case.directory) as log:
        for name, row in listed_offsets(case).items():
            code = {"earliest": -2, "latest": -1, "max-timestamp": -3}.get(name)
            if code is None and not name.isdecimal():
                continue
            found = log.offset_for_time(int(name) if code is None else code)
            if row["offset"] == -1:
                first = next((r for r in rows if code is None and r["timestamp"] >= int(name)), None)
                assert (found and found.offset) == (first and first["offset"]), name
                continue
            assert found is not None and found.offset == row["offset"], name
            if code is None:
                assert (found.timestamp, found.leader_epoch) == (row["timestamp"], row["leaderEpoch"]), name
