"""Exports of damaged logs: each sound record before the damage is written, and what is behind it if it is skipped."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import InvalidRecord
from kafkalog.exchange.export import IncompleteExport, UndecodableExport, export_records
from tests import raw_batches
from tests.damage.test_command_line import exported
from tests.storage.test_undecided import damage_last_byte
from tests.storage.test_undecided import write as write_events
from tests.tools.test_verify_damage import write_log
from tests.tools.test_verify_offsets import spoil
from tests.transactional import Event, marker

FIRST = "00000000000000000000.log"


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
@pytest.mark.parametrize(("batch", "expected"), [(11, range(33)), (5, range(15)), (0, range(0))])
def test_export_writes_the_records_before_damage(tmp_path: Path, format: str, batch: int, expected: range) -> None:
    data = tmp_path / "data"
    write_log(data / "t-0", raw_batches.batches(0, 12, 3))
    (data / ".kafka_cleanshutdown").write_bytes(b"")
    spoil(data / "t-0" / FIRST, batch, 70, 1)
    with pytest.raises(IncompleteExport) as caught:
        export_records(data, tmp_path / "out", format)
    assert caught.value.offset == expected.stop and caught.value.report.records == len(expected)
    assert [offset for offset, _ in exported(tmp_path / "out", format)] == list(expected)
    with pytest.raises(IncompleteExport):
        export_records(data, tmp_path / "out", format, resume=True)
    report = export_records(data, tmp_path / "out", format, resume=True, on_damage="skip")
    found = [offset for offset, _ in exported(tmp_path / "out", format)]
    assert found == [offset for offset in range(36) if not expected.stop <= offset < expected.stop + 3]
    assert report.skipped


def offsets(target: Path, format: str) -> list[int]:
    """Return the offsets of an export in the order of its files, which is that of their names."""
    if format == "jsonl":
        lines = [line for path in sorted(target.glob("topic=t/*.jsonl")) for line in path.read_text().splitlines()]
        return [json.loads(line)["offset"] for line in lines]
    return [offset for offset, _ in exported(target, format)]


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
@pytest.mark.parametrize("where", [None, "offset >= 0"])
@pytest.mark.parametrize(
    "events",
    [
        [("plain", 0, 2), ("data", 5, 2), ("commit", 5, 0), ("plain", 0, 3)],
        [("plain", 0, 2), ("data", 5, 2), ("plain", 0, 5), ("commit", 5, 0), ("plain", 0, 3)],
        [("plain", 0, 2), ("data", 5, 2), ("commit", 5, 0), ("data", 5, 2), ("abort", 5, 0), ("plain", 0, 1)],
    ],
    ids=["at the end", "with other records", "before another transaction"],
)
def test_records_before_a_transaction_whose_end_is_hidden_are_written(
    tmp_path: Path, format: str, where: str | None, events: list[Event]
) -> None:
    """Committed records end at the first of it, or go on behind the next marker of its producer."""
    end = sum(count or 1 for kind, _, count in events[: [kind for kind, *_ in events].index("commit")])
    data, out = tmp_path / "data", tmp_path / "out"
    write_events(data / "t-0", events, has_snapshots=False)
    damage_last_byte(data / "t-0" / FIRST, marker(end, 5, 1))
    for resume in (False, True):
        with pytest.raises(IncompleteExport, match="of producer 5 from offset 2 on may end there") as caught:
            export_records(data, out, format, isolation="read_committed", where=where, resume=resume)
        assert caught.value.report.records == (0 if resume else 2)
        assert offsets(out, format) == [0, 1]


def broken_batch(first: int, count: int) -> bytes:
    """A batch with a right checksum whose records are none."""
    tail = struct.pack(">hiqqqhii", 0, count - 1, 1000, 1000, -1, -1, -1, count)
    return raw_batches.framed(first, tail + b"\x7f" * 40)


def data_of(data: Path, broken: set[int], values: list[bytes]) -> None:
    """A closed directory with a batch of five records for each number, those of `broken` no records."""
    parts = [broken_batch(5 * n, 5) if n in broken else raw_batches.batch(5 * n, values) for n in range(6)]
    write_log(data / "t-0", parts)
    (data / ".kafka_cleanshutdown").write_bytes(b"")


@pytest.mark.parametrize("broken", [{2}, {0}, {5}, {0, 1, 3, 5}, set(range(6))], ids=str)
@pytest.mark.parametrize(
    ("format", "options"),
    [("jsonl", {}), ("parquet", {}), ("jsonl", {"where": "offset >= 0"}), ("parquet", {"where": "offset >= 0"}),
     ("jsonl", {"value": "int32"}), ("parquet", {"value": "int32"})],
    ids=str,
)  # fmt: skip
def test_batches_that_break_the_format_are_skipped(
    tmp_path: Path, format: str, options: dict[str, Any], broken: set[int]
) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    data_of(data, broken, [b"\0\0\0\1"] * 5)
    first = 5 * min(broken)
    with pytest.raises(InvalidRecord) as caught:
        export_records(data, out, format, **options)
    assert caught.value.offset == first and offsets(out, format) == [*range(first)]
    report = export_records(data, out, format, resume=True, on_damage="skip", **options)
    expected = [offset for offset in range(30) if offset // 5 not in broken]
    assert offsets(out, format) == expected and report.before + report.records == len(expected)
    assert [(one.offset, one.next_offset) for one in report.skipped] == [(5 * n, 5 * n + 5) for n in sorted(broken)]
    again = export_records(data, out, format, resume=True, on_damage="skip", **options)
    assert (again.records, again.skipped, offsets(out, format)) == (0, (), expected)


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_a_record_that_does_not_decode_is_no_damage(tmp_path: Path, format: str) -> None:
    """Beside batches that are skipped: the records before it are written, once."""
    data, out = tmp_path / "data", tmp_path / "out"
    data_of(data, {1, 3}, [b"\0\0\0\1"] * 5)
    path = data / "t-0" / FIRST
    parts = raw_batches.batch(30, [b"\0\0\0\1", b"\0\0\0\1", b"wrong"]) + broken_batch(33, 2)
    path.write_bytes(path.read_bytes() + parts)
    for resume in (False, True):
        with pytest.raises(UndecodableExport) as caught:
            export_records(data, out, format, value="int32", on_damage="skip", resume=resume)
        assert caught.value.offset == 32
        assert offsets(out, format) == [n for n in range(32) if n // 5 not in (1, 3)]
