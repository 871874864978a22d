"""Exports of damaged logs: each sound record before the damage is written."""

from pathlib import Path

import pytest

from kafkalog.exchange.export import IncompleteExport, export_records
from tests import raw_batches
from tests.damage.test_command_line import exported
from tests.tools.test_verify_damage import write_log
from tests.tools.test_verify_offsets import spoil

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
