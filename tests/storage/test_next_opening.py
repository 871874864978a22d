"""The cuts that are foreseen are those that the next opening for writing makes."""

import itertools
from pathlib import Path

import pytest

import kafkalog
from kafkalog.storage.names import log_file_name
from kafkalog.storage.recovery.kept import list_kept
from kafkalog.storage.recovery.next_opening import foresee_cuts
from kafkalog.util.fileio import OS
from tests.storage.test_kept import RECORDS, SEGMENTS, flip_bits, kept_offsets, make, mark_unclean, positions

NAMES = [log_file_name(36 * number) for number in range(SEGMENTS)]


def compare(path: Path, *, is_clean: bool, point: int = 0, start: int = 0) -> list[tuple[str, int, int]]:
    """Segment, offset and later segments of each cut that is foreseen, once the log was opened and had these cuts."""
    if not is_clean:
        mark_unclean(path)
    for name, offset in (("recovery-point", point), ("log-start", start)):
        (path.parent / f"{name}-offset-checkpoint").write_text(f"0\n1\norders 0 {offset}\n")
    sizes = {name: (path / name).stat().st_size for name in NAMES}
    cuts = foresee_cuts(str(path), OS, is_clean=is_clean, recovery_point=point, log_start_offset=start)
    kafkalog.open(path, "a").close()
    after = {name: (path / name).stat().st_size for name in NAMES if (path / name).exists()}
    wanted = dict(sizes)
    for cut in cuts:
        at = NAMES.index(Path(cut.path).name)
        gone = [*NAMES[at + 1 :]] if cut.position else NAMES
        assert cut.later in (0, len(gone) - (cut.position == 0))
        wanted[NAMES[at]] = cut.position
        for name in gone if cut.later else ():
            del wanted[name]
    assert after == wanted
    losses = [cut.loss.sound for cut in cuts if cut.loss is not None]
    assert sorted(kept_offsets(path)) == sorted((one.first_offset, one.last_offset) for one in losses)
    reasons = sorted(cut.reason for cut in cuts if cut.loss is not None)
    assert sorted(one.reason for one in list_kept(str(path), OS)) == reasons
    return [(Path(cut.path).name, cut.offset, cut.later) for cut in cuts]


@pytest.mark.parametrize("has_index", [True, False], ids=["index", "no index"])
@pytest.mark.parametrize(
    ("is_clean", "point"), [(True, RECORDS), (False, 0), (False, 36), (False, 71), (False, 72), (False, RECORDS)]
)
def test_damage_before_sound_batches(tmp_path: Path, is_clean: bool, point: int, has_index: bool) -> None:
    """Only behind the recovery point of a log that was not closed well does it end the log."""
    places = itertools.product(range(SEGMENTS - is_clean), [(10, 1), (7, 0x40), (0, 0x80), (70, 1)])
    for number, (segment, (at, bits)) in enumerate(places):
        path = make(tmp_path / str(number))
        file = path / NAMES[segment]
        flip_bits(file, positions(file)[5] + at, bits)
        if not has_index:
            file.with_suffix(".index").unlink()
        is_read = not is_clean and segment >= min(point // 36, SEGMENTS - 1)
        later = SEGMENTS - 1 - segment
        offset = 36 * segment + 15
        found = compare(path, is_clean=is_clean, point=point)
        assert [(name, later) for name, _, later in found] == [(NAMES[segment], later)] * is_read
        assert all(one[1] == offset for one in found) or at == 7


@pytest.mark.parametrize("is_clean", [True, False])
def test_room_behind_the_last_batch_of_a_segment_without_index(tmp_path: Path, is_clean: bool) -> None:
    path = make(tmp_path)
    for number in (1, SEGMENTS - 1):
        with (path / NAMES[number]).open("ab") as file:
            file.write(bytes(500))
        (path / NAMES[number]).with_suffix(".index").unlink()
    found = compare(path, is_clean=is_clean, point=RECORDS)
    assert found == [(NAMES[1], 72, 0), (NAMES[-1], RECORDS, 0)]


@pytest.mark.parametrize(
    ("start", "is_cut"), [(0, False), (108, False), (109, False), (120, False), (RECORDS, False), (RECORDS + 1, True)]
)
@pytest.mark.parametrize("without_index", range(-1, SEGMENTS))
def test_a_log_is_given_up_where_it_ends_below_its_start(
    tmp_path: Path, start: int, is_cut: bool, without_index: int
) -> None:
    path = make(tmp_path)
    if without_index >= 0:
        (path / NAMES[without_index]).with_suffix(".index").unlink()
    found = compare(path, is_clean=True, point=RECORDS, start=start)
    assert found == [(NAMES[-1], RECORDS, SEGMENTS - 1)] * is_cut


def test_a_log_that_damage_ends_below_its_start_is_given_up(tmp_path: Path) -> None:
    path = make(tmp_path)
    flip_bits(path / NAMES[0], positions(path / NAMES[0])[5] + 70)
    mark_unclean(path)
    cuts = foresee_cuts(str(path), OS, is_clean=False, recovery_point=0, log_start_offset=20)
    assert [(Path(one.path).name, one.position, one.offset) for one in cuts] == [(NAMES[0], 455, 15), (NAMES[0], 0, 15)]
