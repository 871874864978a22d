"""Indexes that an opening for writing rebuilds around damage, which it leaves where it is."""

from pathlib import Path

import pytest

import kafkalog
from tests.damage.damages import Target, flip
from tests.damage.logs import FIRST_TIME, PARTITION, STEP_MS, log_of
from tests.damage.matrix import write_directory


@pytest.mark.parametrize("batch", [0, 6, 11])
@pytest.mark.parametrize("closure", ["closed", "flushed"])
def test_times_behind_damage_are_found(tmp_path: Path, batch: int, closure: str) -> None:
    kind = log_of("v2 none", False, closure)
    data = write_directory(tmp_path / "data", kind)
    (data / kind.segments[1].name).write_bytes(flip(Target(kind, 1, batch), 70, 0).data)
    with kafkalog.open(data / PARTITION, "a") as log:
        for offset in (0, 35, *([40] if batch else []), 72, 107):
            found = log.offset_for_time(FIRST_TIME + offset * STEP_MS)
            assert found is not None and found.offset == offset
