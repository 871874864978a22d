"""REC-31, REC-33: control batches of a real broker, read and built again to the byte."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog import control
from kafkalog.records.batch import RecordBatch
from kafkalog.records.memory import MemoryRecords
from tests.golden_cases import cases, each_entry, extracted

pytestmark = pytest.mark.golden


def rebuilt(batch: RecordBatch) -> bytes:
    """The batch made from what it says, by the calls that make such batches."""
    header, found = batch.header, batch.control
    assert found is not None
    place = {"base_offset": header.base_offset, "leader_epoch": header.leader_epoch, "timestamp": header.base_timestamp}
    if found.type.is_marker:
        assert found.coordinator_epoch is not None
        producer = header.producer_id, header.producer_epoch
        return bytes(control.marker_batch(found.type, *producer, found.coordinator_epoch, **place))
    assert found.data is not None
    return bytes(control.kraft_batch(found.type, found.data, **place))


def control_batches(data: bytes) -> Iterator[tuple[bytes, RecordBatch]]:
    """Every control batch with one record in it that was not touched after it was written, with its bytes."""
    for batch in MemoryRecords(data).batches():
        header = batch.header
        if header.is_control and header.count == 1 and header.delete_horizon_ms is None:
            yield data[header.position : header.position + header.size], batch


def log_files() -> list[Path]:
    archives = {case.archive for case in cases() if case.archive and case.kind.startswith("logdir")}
    return [path for archive in sorted(archives) for path in sorted(extracted(archive).rglob("*")) if is_log(path)]


def is_log(path: Path) -> bool:
    return path.suffix in (".log", ".checkpoint")


def test_every_control_batch_of_a_data_directory() -> None:
    """Markers in topics, leader changes in the metadata log, headers, footers and voters in its snapshots."""
    seen: Counter[control.ControlType] = Counter()
    for path in log_files():
        for data, batch in control_batches(path.read_bytes()):
            assert rebuilt(batch) == data, f"{path} at {batch.header.position}"
            assert batch.control is not None
            seen[batch.control.type] += 1
    if not seen:
        pytest.skip("no control batch in the capture")
    assert control.ControlType.UNKNOWN not in seen


@each_entry("batches", where=lambda entry: any(b.get("isControl") for b in entry.get("batches", ())))
def test_control_batches_of_the_vectors(entry: dict[str, Any]) -> None:
    for data, batch in control_batches(bytes.fromhex(entry["hex"])):
        found = batch.control
        assert found is not None
        if found.type != control.ControlType.UNKNOWN and not batch.header.compression:
            assert rebuilt(batch) == data
