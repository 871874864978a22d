"""Redaction of the record that a cursor read last, and of the last one in a table: both go on."""

import json
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import IllegalState, OffsetOutOfRange
from kafkalog.lake.sync import sync_topic
from kafkalog.redact.directories import redact
from tests.lake.tables import Lake

CHANGES: list[dict[str, Any]] = [
    {"change": "empty"}, {"change": "tombstone"}, {"change": "empty", "erase_key": True},
]  # fmt: skip


def write(data: Path, first: int, count: int, value: bytes | None = b"v", time_ms: int = 1_000) -> None:
    with kafkalog.open_dirs(data, "a") as dirs:
        if not first:
            dirs.create_topic("orders", 1, {"retention.ms": -1})
        dirs["orders", 0].append([(b"k%d" % n, value, time_ms + n) for n in range(first, first + count)])


@pytest.mark.parametrize("change", CHANGES, ids=str)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_cursor_goes_on_behind_a_redacted_record(tmp_path: Path, change: dict[str, Any], is_open: bool) -> None:
    data = tmp_path / "data"
    write(data, 0, 10)
    with kafkalog.open(data / "orders-0") as log:
        cursor = log.cursor("c", store=tmp_path / "cursors")
        assert [record.offset for record in cursor.poll(5)] == [0, 1, 2, 3, 4]
        cursor.commit()
        if not is_open:
            cursor.close()
        assert redact(data, "orders", offsets={0: [4]}, apply=True, **change).left == 0
        if not is_open:
            cursor = log.cursor("c", store=tmp_path / "cursors")
        assert [record.offset for record in cursor] == [5, 6, 7, 8, 9]
        cursor.close()
        assert redact(data, "orders", offsets={0: [9]}, apply=True, **change).left == 0
        with log.cursor("c", store=tmp_path / "cursors") as again:
            assert (again.position, again.lost, list(again)) == (10, None, [])


@pytest.mark.parametrize("value", [b"", None])
def test_a_cursor_notices_another_record_without_a_value(tmp_path: Path, value: bytes | None) -> None:
    data = tmp_path / "data"
    write(data, 0, 5)
    with kafkalog.open(data / "orders-0") as log, log.cursor("c", store=tmp_path / "cursors") as cursor:
        assert len(list(cursor)) == 5
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].truncate_to(3)
    write(data, 3, 5, value, time_ms=2_000)
    with kafkalog.open(data / "orders-0") as log, pytest.raises(OffsetOutOfRange, match="record 4 differs"):
        log.cursor("c", store=tmp_path / "cursors")


def test_a_position_of_an_earlier_release(tmp_path: Path) -> None:
    """It has a checksum of the whole record alone."""
    data = tmp_path / "data"
    write(data, 0, 5)
    with kafkalog.open(data / "orders-0") as log:
        with log.cursor("c", store=tmp_path / "cursors") as cursor:
            cursor.poll(3)
            cursor.commit()
        (file,) = (tmp_path / "cursors").rglob("c.cursor")
        stored = json.loads(file.read_text())
        del stored["place_crc"]
        file.write_text(json.dumps(stored))
        with log.cursor("c", store=tmp_path / "cursors") as cursor:
            assert cursor.position == 3
    file.write_text(json.dumps({**stored, "record_crc": stored["record_crc"] ^ 1}))
    with kafkalog.open(data / "orders-0") as log, pytest.raises(OffsetOutOfRange, match="record 2 differs"):
        log.cursor("c", store=tmp_path / "cursors")


@pytest.mark.parametrize("format", ["iceberg", "delta"])
def test_a_table_goes_on_behind_a_redacted_record(tmp_path: Path, format: str) -> None:
    data, lake = tmp_path / "data", Lake(tmp_path / "lake", format)
    write(data, 0, 5)
    sync_topic(data, "orders", lake.target)
    assert redact(data, "orders", offsets={0: [4]}, change="empty", apply=True).left == 0
    assert sync_topic(data, "orders", lake.target) == []
    write(data, 5, 5)
    sync_topic(data, "orders", lake.target)
    assert lake.places() == [(0, n) for n in range(10)]
    with kafkalog.open_dirs(data, "a") as dirs:
        dirs["orders", 0].truncate_to(8)
    write(data, 8, 5, None, time_ms=2_000)
    with pytest.raises(IllegalState, match="record 9 is not the one that the table has"):
        sync_topic(data, "orders", lake.target)
