"""A walk over a whole log: every sound batch is given, or the damage is raised or reported with its place."""

from collections.abc import Callable
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord
from kafkalog.storage.log_walk import log_chunks, sound_chunks
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from kafkalog.storage.readonly.view import LogView
from tests.damage.logs import PARTITION, log_of
from tests.damage.matrix import write_directory
from tests.raw_batches import batches, write_segment
from tests.storage.damage_cases import DAMAGE, damage
from tests.storage.logs import append_batches, log

SETTINGS = {"internal_segment_bytes": 1000, "index_interval_bytes": 200, "segment_index_bytes": 1 << 16}
BATCHES = 25  # ten of 100 bytes in a segment


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    a_log = log(tmp_path, **SETTINGS)
    for _ in range(BATCHES):
        append_batches(a_log)
    a_log.close()
    return tmp_path / "topic-0"


def segment_files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))


def walk_offsets(directory: Path) -> list[int]:
    """The offsets of a walk from the log's start to its end."""
    found: list[int] = []
    with LogView(directory) as view:
        for chunk in log_chunks(view, 0, view.log_end_offset):
            found += list(chunk.batches.base_offsets)[chunk.first : chunk.last]
    return found


def test_a_sound_log_is_given_whole(directory: Path) -> None:
    assert len(segment_files(directory)) == 3
    assert walk_offsets(directory) == list(range(BATCHES))


def cut_off(data: bytearray) -> None:
    del data[-10:]


def add_zeros(data: bytearray) -> None:
    data += bytes(100)


def lower_the_last_offset(data: bytearray) -> None:
    data[400:408] = (23).to_bytes(8, "big")


@pytest.mark.parametrize("is_closed_well", [False, True])
@pytest.mark.parametrize(("change", "position", "offset", "message"), [
    (None, None, None, ""),
    (cut_off, 400, 24, "the segment ends in the middle of a batch"),
    (add_zeros, 500, 25, "zeros follow the last batch"),
    (lower_the_last_offset, 400, 24, "the batch begins at offset 23, below the expected offset 24"),
])  # fmt: skip
def test_the_end_of_a_walk_raises_what_no_crash_leaves(
    directory: Path,
    is_closed_well: bool,
    change: Callable[[bytearray], None] | None,
    position: int | None,
    offset: int | None,
    message: str,
) -> None:
    """A torn write of a log that was not closed well is its end; a misplaced batch is damage in any log."""
    path = segment_files(directory)[-1]
    data = bytearray(path.read_bytes())
    if change is not None:
        change(data)
        path.write_bytes(data)
    if is_closed_well:
        (directory.parent / CLEAN_SHUTDOWN_FILE).write_text('{"version":0,"brokerEpoch":-1}')
    is_damage = change is lower_the_last_offset or is_closed_well and change is not None
    with LogView(directory) as view:
        end = view.log_end_offset
        assert end == (25 if change in (None, add_zeros) else 24)
        assert (view.tail_damage is not None) == is_damage
        assert len(list(log_chunks(view, 0, end - 1))) > 2, "what lies before the end is given"
    if not is_damage:
        assert walk_offsets(directory) == list(range(end))
        return
    with pytest.raises(CorruptRecord, match=message) as caught:
        walk_offsets(directory)
    assert (caught.value.path, caught.value.position, caught.value.offset) == (str(path), position, offset)


@pytest.mark.parametrize(("offset", "is_damage"), [(24, False), (25, True), (26, True)])
def test_a_batch_that_may_belong_behind_the_end_is_damage_of_the_end(
    directory: Path, offset: int, is_damage: bool
) -> None:
    """Its offsets may be right and those behind it wrong: then the log ends further on."""
    path = segment_files(directory)[-1]
    path.with_suffix(".index").unlink()
    data = bytearray(path.read_bytes())
    data[100:108] = offset.to_bytes(8, "big")
    path.write_bytes(data)
    with LogView(directory) as view:
        found = view.tail_damage
        assert (view.log_end_offset, found is not None) == (25, is_damage)
    if found is not None:
        assert (found.path, found.position, found.offset) == (str(path), 100, 21)


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("segment", [0, 1])
@pytest.mark.parametrize("batch", [0, 4, 9])
def test_damage_in_an_old_segment_ends_the_walk_with_an_error(
    directory: Path, segment: int, batch: int, kind: str
) -> None:
    path = segment_files(directory)[segment]
    position = damage(path, batch, kind)
    with LogView(directory) as view:
        found: list[int] = []
        with pytest.raises(CorruptRecord) as caught:
            for chunk in log_chunks(view, 0, view.log_end_offset):
                found += list(chunk.batches.base_offsets)[chunk.first : chunk.last]
    assert (caught.value.path, caught.value.position) == (str(path), position)
    assert found == list(range(10 * segment + batch))


@pytest.mark.parametrize("kind", DAMAGE)
@pytest.mark.parametrize("batch", [0, 4, 9])
def test_all_sound_batches_around_damage_are_given(directory: Path, batch: int, kind: str) -> None:
    path = segment_files(directory)[1]
    position = damage(path, batch, kind)
    found: list[int] = []
    errors: list[CorruptRecord] = []
    with LogView(directory) as view:
        for chunk in sound_chunks(view.extent(10), 10, 20, errors.append):
            found += list(chunk.batches.base_offsets)[chunk.first : chunk.last]
    assert [(error.path, error.position) for error in errors] == [(str(path), position)]
    assert found == [offset for offset in range(10, 20) if offset != 10 + batch]


@pytest.mark.parametrize("interval", [1, 1 << 30], ids=["with an index", "without"])
def test_batch_that_contradicts_the_one_behind_a_gap_is_not_given(tmp_path: Path, interval: int) -> None:
    """Either of the two may have the wrong base offset."""
    parts = [*batches(0, 2, 5), *batches(30, 2, 5), *batches(50, 1, 5)]
    path = write_segment(tmp_path / "t-0", 0, parts, interval=interval)
    content = bytearray(path.read_bytes())
    content[sum(map(len, parts[:3])) + 7] -= 2  # offsets 35 to 39 are 33 to 37 now, and those before it 30 to 34
    path.write_bytes(content)
    with kafkalog.open(tmp_path / "t-0") as log:
        for start, stop in ((0, 60), (30, 40), (35, 36), (36, 38), (39, 40), (45, 50)):
            with pytest.raises(CorruptRecord, match="begins at offset 30, but the next one at 33"):
                list(log.records(start, stop))
        with pytest.raises(CorruptRecord):
            log[36]
        assert [record.offset for record in log.records(50)] == [*range(50, 55)]


@pytest.mark.parametrize("family", ["v0 gzip", "v1 lz4"])
def test_read_inside_a_compressed_message_at_the_wrong_place_raises(tmp_path: Path, family: str) -> None:
    """Its header has the last offset alone, which lies behind the range that is read."""
    kind = log_of(family, True, "closed")
    data = write_directory(tmp_path / "data", kind)
    first, second, *rest = (batch.data for batch in kind.segments[1].batches)
    (data / kind.segments[1].name).write_bytes(b"".join([second, first, *rest]))
    with kafkalog.open(data / PARTITION) as log:
        for offset in range(36, 42):
            with pytest.raises(CorruptRecord):
                list(log.records(offset, offset + 1))


def test_first_batch_that_begins_below_its_segment_is_not_given(tmp_path: Path) -> None:
    parts = [*batches(20, 1, 10), *batches(40, 3, 10)]
    write_segment(tmp_path / "t-0", 0, batches(0, 2, 10))
    path = write_segment(tmp_path / "t-0", 20, parts)
    content = bytearray(path.read_bytes())
    content[7] -= 4  # offsets 16 to 25, and a gap behind them
    path.write_bytes(content)
    with kafkalog.open(tmp_path / "t-0") as log:
        for offset in (20, 22, 25):
            with pytest.raises(CorruptRecord):
                log[offset]
            with pytest.raises(CorruptRecord):
                log.offset_for_time(1000 + offset)
        assert log[45].offset == 45
