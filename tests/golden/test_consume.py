"""Reading real partitions: records and offsets are those that the real consumer and admin client gave."""

import base64
import json
from typing import Any

import pytest

import kafkalog
from kafkalog._core.batch.record import Record
from kafkalog.cli.main import run
from tests import golden_cases
from tests.golden_cases import Case

pytestmark = pytest.mark.golden
LEVELS = ("read_uncommitted", "read_committed")
both_levels = pytest.mark.parametrize("level", LEVELS)
TIMESTAMP_TYPES = {0: "CreateTime", 1: "LogAppendTime", -1: "NoTimestampType"}
KCAT_TYPES = {"CreateTime": "create", "LogAppendTime": "logappend", "NoTimestampType": "unknown"}
CODES = {"earliest": -2, "earliest-local": -2, "latest": -1, "max-timestamp": -3}


def is_consumed(case: Case) -> bool:
    """True for partitions whose consumption is known."""
    return all(expected_names(case, level) for level in LEVELS)


def expected_names(case: Case, level: str) -> list[str]:
    return [name for name in case.expected_with(".jsonl") if level in name]


def listed_offsets(case: Case, level: str) -> dict[str, Any]:
    names = [name for name in case.expected_with(".json") if name.startswith("listoffsets/")]
    found: dict[str, Any] = {}
    for name in names:
        found |= json.loads(case.expected_path(name).read_text(encoding="utf-8"))[level]
    return found


def expected(case: Case, level: str) -> list[dict[str, Any]]:
    (name,) = expected_names(case, level)
    return [json.loads(line) for line in case.expected_path(name).read_text(encoding="utf-8").splitlines()]


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def shown(record: Record) -> dict[str, Any]:
    """A record in the words of the consumer's own listing."""
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "timestampType": TIMESTAMP_TYPES[record.timestamp_type],
        "leaderEpoch": None if record.leader_epoch < 0 else record.leader_epoch,
        "key": encoded(record.key),
        "value": encoded(record.value),
        "headers": [[name, encoded(value)] for name, value in record.headers],
    }


@both_levels
@golden_cases.each_partition("logdir", where=is_consumed)
def test_records_are_those_the_consumer_read(case: Case, level: str) -> None:
    """TXN-2: aborted records are left out by the transaction index, as by the consumer."""
    rows = expected(case, level)
    with kafkalog.open(case.directory) as log:
        assert [shown(record) for record in log.records(isolation=level)] == rows
        assert [shown(record) for record in log.slice(isolation=level)] == rows
        for row in rows[:: max(1, len(rows) // 50)]:
            assert shown(log[row["offset"]]) == row
            following = next(log.records(row["offset"], isolation=level))
            assert shown(following) == row
        assert log.problems == ()


def as_bytes(row: dict[str, Any], name: str, encoding: str) -> bytes | None:
    """A key or payload of a -J line."""
    text: str | None = row[name]
    if text is None:
        return None
    return base64.b64decode(text) if row.get(encoding) == "base64" else text.encode()


def from_kcat(row: dict[str, Any], case: Case) -> dict[str, Any]:
    """A -J line in the words of the consumer's listing, which has a leader epoch besides."""
    assert (row["topic"], row["partition"], row["broker"]) == (case.topic, int(case.name.rpartition("-")[2]), -1)
    flat = row.get("headers", [])
    if row.get("headers_encoding") == "base64":
        flat = [decoded(part) for part in flat]
    else:
        flat = [None if part is None else part.encode() for part in flat]
    return {
        "offset": row["offset"],
        "timestamp": row["ts"],
        "tstype": row["tstype"],
        "key": as_bytes(row, "key", "key_encoding"),
        "value": as_bytes(row, "payload", "payload_encoding"),
        "headers": list(zip(flat[::2], flat[1::2], strict=True)),
    }


def in_bytes(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "offset": row["offset"],
        "timestamp": row["timestamp"],
        "tstype": KCAT_TYPES[row["timestampType"]],
        "key": decoded(row["key"]),
        "value": decoded(row["value"]),
        "headers": [(name.encode(), decoded(value)) for name, value in row["headers"]],
    }


@both_levels
@golden_cases.each_partition("logdir", where=is_consumed)
def test_consume_j_prints_them_by_kcat_s_names(
    case: Case, level: str, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    number = case.name.rpartition("-")[2]
    arguments = ["consume", "-d", str(case.directory.parent), "-t", case.topic, "-p", number, "-J", "-q"]
    assert run([*arguments, "-X", f"isolation.level={level}"]) == 0
    out, notes = capsysbinary.readouterr()
    assert notes == b""
    rows = [json.loads(line) for line in out.split(b"\n")[:-1]]
    assert [from_kcat(row, case) for row in rows] == [in_bytes(row) for row in expected(case, level)]


@both_levels
@golden_cases.each_partition("crash", where=is_consumed)
def test_killed_broker_s_directory_reads_as_after_its_recovery(case: Case, level: str) -> None:
    """Unclean: indexes full of free room, perhaps a torn tail; the broker may have run retention before it read.

    The checkpointed high watermark lies before the log end, and the broker read up to the end all the same.
    """
    rows = expected(case, level)
    with kafkalog.open(case.directory) as log:
        first = rows[0]["offset"] if rows else log.end_offset
        assert [shown(record) for record in log.records(first, isolation=level)] == rows


@both_levels
@golden_cases.each_partition("logdir", "crash", where=is_consumed)
def test_offsets_by_time_are_those_the_admin_client_got(case: Case, level: str) -> None:
    """LOG-57, PART-8: numbers as names are times asked for; offset -1 is none.

    The reference stops at the first segment whose file is young enough, even one that compaction left empty, and
    then finds none; there the first record that the consumer got at or after the time is right. Its answer for the
    latest offset has the epoch of its own boot, and so has the earliest one of an empty log.
    """
    with kafkalog.open(case.directory) as log:
        check_listed_offsets(log, case, level)


def check_listed_offsets(log: kafkalog.Log, case: Case, level: str) -> None:
    """Each offset that was asked for is found, with its time and leader epoch."""
    rows, listed = expected(case, level), listed_offsets(case, level)
    assert listed
    for name, row in listed.items():
        code = CODES.get(name, int(name) if name.isdecimal() else None)
        if code is None:
            continue
        found = log.offset_for_time(code, isolation=level)
        before = found is not None and found.offset < listed["earliest"]["offset"]
        if before and case.kind == "crash-partition":
            continue  # the broker ran retention before it answered
        if row["offset"] == -1:
            first = next((r for r in rows if code >= 0 and r["timestamp"] >= code), None)
            assert (found and found.offset) == (first and first["offset"]), name
            continue
        assert found is not None and found.offset == row["offset"], name
        assert found.timestamp == row["timestamp"], name
        if code != -1 and not (code == -2 and log.start_offset == log.end_offset):
            assert found.leader_epoch == row["leaderEpoch"], name
