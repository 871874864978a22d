"""A segment of another partition in the middle of a log: offsets outside of its place are damage in every reader."""

import shutil
from pathlib import Path
from typing import Literal

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord
from kafkalog.storage.damage import Skipped


def segment(partition: Path, base_offset: int) -> Path:
    return partition / f"{base_offset:020}.log"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Two partitions of four closed segments each: of 100 offsets in the first one, of 150 in the other."""
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("t", partitions=2)
        for partition, batches in enumerate((10, 15)):
            log = dirs["t", partition]
            for _ in range(4):
                for _ in range(batches):
                    log.append([b"of %d" % partition] * 10)
                log.roll()
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("mode", "source", "place", "kept"),
    [
        ("r", 150, 100, (150, 200)),
        ("a", 150, 100, (150, 200)),
        ("r", 0, 0, (0, 100)),
        ("a", 0, 0, (0, 100)),
        ("r", 300, 200, (0, 0)),
        ("a", 300, 200, (0, 0)),
        ("r", 0, 300, (0, 0)),
        ("a", 0, 300, (0, 0)),
        ("r", 300, 300, (300, 400)),  # it reaches beyond the end of the log; an opening for writing moves that end
    ],
)
def test_its_offsets_outside_are_damage(
    data: Path, mode: Literal["r", "a"], source: int, place: int, kept: tuple[int, int]
) -> None:
    shutil.copy(segment(data / "t-1", source), segment(data / "t-0", place))
    with kafkalog.open(data / "t-0", mode) as log:
        own = set(range(400)) - set(range(place, place + 100))
        skipped: list[Skipped] = []
        got = {record.offset: record.value for record in log.records(on_damage="skip", skipped=skipped)}
        assert {offset for offset, value in got.items() if value == b"of 0"} == own
        assert {offset for offset, value in got.items() if value == b"of 1"} == set(range(*kept))
        assert {Path(piece.path).name for piece in skipped} == {segment(data, place).name}
        assert len(log.table(on_damage="skip")) == len(got)
        for read in (lambda: list(log.records()), lambda: list(log.batches()), lambda: log.table()):
            with pytest.raises(CorruptRecord):
                read()
        with pytest.raises(CorruptRecord):
            list(log.records(place, place + 100))


@pytest.mark.parametrize(("source", "place"), [(150, 100), (300, 200), (0, 0), (0, 300)])
def test_figures_name_it(data: Path, source: int, place: int) -> None:
    shutil.copy(segment(data / "t-1", source), segment(data / "t-0", place))
    with kafkalog.open(data / "t-0") as log:
        problems = log.stats().problems
        assert problems and all(segment(data, place).name in problem for problem in problems)
