"""Batches with a right checksum whose records have offsets that no reader can trust: no reader ends or skips quietly."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import InvalidRecord
from tests import raw_batches
from tests.tools.test_verify_damage import write_log

BEFORE = [0, 1, 2]
BEHIND = [6, 7, 8]


@pytest.fixture(params=[[0, 1, 128], [0, 128, 1], [0, 3, 4], [0, 2, 1], [0, 1, 1], [-1, 0, 1]], ids=str)
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A partition of three batches; the one in the middle has the offsets 3 to 5 by its header."""
    deltas: list[int] = request.param
    parts = [
        raw_batches.batch(0, [b"a"] * 3), raw_batches.batch(3, [b"b"] * 3, deltas=deltas, last_delta=2),
        raw_batches.batch(6, [b"c"] * 3),
    ]  # fmt: skip
    write_log(tmp_path / "t-0", parts)
    return tmp_path / "t-0"


@pytest.mark.parametrize("way", ["records", "scan"])
def test_a_reader_raises_or_skips_the_batch_alone(directory: Path, way: str) -> None:
    with kafkalog.open(directory) as log:
        assert log.log_end_offset == 9
        read: list[int] = []
        with pytest.raises(InvalidRecord, match="outside its batch or not above") as caught:
            if way == "records":
                read.extend(one.offset for one in log.records())
            else:
                log.scan(columns=["offset"]).to_arrow()
        assert caught.value.offset == 3 and caught.value.path == str(directory / "00000000000000000000.log")
        assert read in ([], BEFORE)
        if way == "records":
            read = [one.offset for one in log.records(on_damage="skip")]
        else:
            read = log.scan(columns=["offset"], on_damage="skip").to_arrow()["offset"].to_pylist()
    assert read[:3] == BEFORE and read[-3:] == BEHIND and set(read[3:-3]) <= {3, 4, 5}
