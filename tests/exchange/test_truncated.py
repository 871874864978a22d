"""An export whose log was truncated and written again is not continued; one whose log was compacted is."""

from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import IllegalState
from kafkalog.exchange.export import export_records


def append(log: Any, first: int, stop: int, text: bytes = b"value") -> None:
    for n in range(first, stop):
        log.append([(b"k%d" % (n % 3), text + b" %d" % n, 1_700_000_000_000 + n, [("h", None)])])


@pytest.mark.parametrize("length", [12, 30])
@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_log_truncated_and_written_again_is_refused(tmp_path: Path, format: str, length: int) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 1, {})
        append(dirs["orders", 0], 0, 10)
        dirs["orders", 0].append([b"a", b"b"], compression="gzip")
    export_records(tmp_path / "data", tmp_path / "out", format)
    before = (tmp_path / "out" / "_kafkalog_export" / "manifest.jsonl").read_bytes()
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        log = dirs["orders", 0]
        log.truncate_to(5)
        append(log, 5, length, b"other")
    with pytest.raises(IllegalState, match="another record") as caught:
        export_records(tmp_path / "data", tmp_path / "out", format, resume=True)
    assert caught.value.offset == 11 and caught.value.path == str(tmp_path / "data" / "orders-0")
    assert (tmp_path / "out" / "_kafkalog_export" / "manifest.jsonl").read_bytes() == before


def test_compacted_log_goes_on(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("seen", 1, {"cleanup.policy": "compact"})
        append(dirs["seen", 0], 0, 20)
        export_records(tmp_path / "data", tmp_path / "out", "jsonl", resume=True, file_bytes=1024)
        log = dirs["seen", 0]
        append(log, 20, 23)
        log.roll()
        append(log, 23, 24)
        log.compact()
        assert [record.offset for record in log] == [20, 21, 22, 23]
    assert export_records(tmp_path / "data", tmp_path / "out", "jsonl", resume=True).records == 4


def test_damage_in_the_exported_part_is_no_other_record(tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 1, {})
        append(dirs["orders", 0], 0, 10)
        export_records(tmp_path / "data", tmp_path / "out", "jsonl")
        append(dirs["orders", 0], 10, 12)
    path = tmp_path / "data" / "orders-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes().replace(b"value 9", b"value 8"))
    assert export_records(tmp_path / "data", tmp_path / "out", "jsonl", resume=True).records == 2
