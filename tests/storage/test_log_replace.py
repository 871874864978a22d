"""A log whose segments are replaced by rewritten ones, while it is read and appended to; failures and crashes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from kafkalog.errors import CleaningAborted, CorruptRecord, IllegalState, KafkalogError, StorageError
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.segment import LogSegment
from kafkalog.util.fileio import OS, FileSystem
from tests.crash.disk import MODES, DiskFS, write_image
from tests.faults import FaultFS, each_failure
from tests.storage.logs import append_batches, bases, log, make_overflowed, run

pytestmark = pytest.mark.in_memory

SUFFIXES = (".cleaned", ".swap", ".deleted")


def open_filled(path: Path, fs: FileSystem = OS, segments: int = 3, **more: object) -> UnifiedLog:
    """A log of three full segments of four batches each, and an active one with a batch."""
    a_log = log(path, fs=fs, **more)
    for _ in range(segments):
        append_batches(a_log, times=4)
        a_log.roll()
    append_batches(a_log)
    return a_log


def clean_every_second(a_log: UnifiedLog, old: Sequence[LogSegment], keep: int = 2) -> LogSegment:
    """Clean `old` so that every second batch remains; return the new segment."""
    made = a_log.replacer.new_cleaned_segment(old[0].base_offset)
    for segment in old:
        for one in segment.records.batches():
            if one.base_offset % keep == 0:
                made.append(segment.records.read(one.position, one.size))
    made.on_become_inactive()
    made.flush()
    return made


def replace(a_log: UnifiedLog, count: int = 2) -> None:
    old = tuple(a_log.segments)[:count]
    with a_log.being_cleaned() as cuts:
        a_log.replacer.replace_segments((clean_every_second(a_log, old),), old, cuts)


def offsets(a_log: UnifiedLog) -> list[int]:
    return [one.base_offset for part in a_log.segments for one in part.records.batches(check_crc=True)]


def list_leftovers(path: Path) -> list[str]:
    return [name for name in os.listdir(path) if name.endswith(SUFFIXES)]


def test_the_new_segment_takes_the_place_of_the_old_ones(tmp_path: Path) -> None:
    """LOG-79, CLN-25: its base is the first one's; offsets stay, appends and another opening go on."""
    a_log = open_filled(tmp_path)
    replace(a_log)
    assert bases(a_log) == [0, 8, 12]
    kept = [0, 2, 4, 6, 8, 9, 10, 11, 12]
    assert offsets(a_log) == kept
    assert a_log.read(1, 1).fetch_offset_metadata.message_offset == 2
    assert a_log.read(7, 1).fetch_offset_metadata.message_offset == 8
    append_batches(a_log)
    a_log.close()
    assert not list_leftovers(tmp_path / "topic-0")
    assert not (tmp_path / "topic-0" / f"{4:020d}.snapshot").exists()
    again = log(tmp_path)
    assert (bases(again), offsets(again)) == ([0, 8, 12], [*kept, 13])
    again.close()


def test_who_reads_an_old_segment_reads_on(tmp_path: Path) -> None:
    """LOG-46: a slice taken before the swap has every byte of the old segment."""
    a_log = open_filled(tmp_path)
    whole = Path(a_log.segments[0].path).read_bytes()
    found = a_log.read(0, 1 << 20)
    first, state = a_log.segments[0], a_log.state
    replace(a_log)
    assert found.records.read() == whole
    assert state.segments[0] is first and a_log.segments[0] is not first
    a_log.close()


def test_a_high_watermark_in_an_old_segment_finds_its_place_again(tmp_path: Path) -> None:
    """KAFKA-9196: its position is one in a file that is gone."""
    a_log = open_filled(tmp_path, high_watermark_follows_end=False)
    a_log.update_high_watermark(6)
    before = a_log.fetch_high_watermark()
    assert (before.segment_base_offset, before.relative_position_in_segment) == (4, 200)
    replace(a_log)
    after = a_log.fetch_high_watermark()
    assert (after.segment_base_offset, after.relative_position_in_segment) == (0, 300)
    assert a_log.read(4, 1 << 20, "high_watermark").records.size == 100
    a_log.close()


def test_one_clean_at_a_time(tmp_path: Path) -> None:
    a_log = open_filled(tmp_path)
    with a_log.being_cleaned():
        with pytest.raises(IllegalState, match="is already being cleaned"), a_log.being_cleaned():
            pass
    with a_log.being_cleaned():
        pass
    a_log.close()


def test_what_an_interrupted_clean_left_is_removed_when_one_begins(tmp_path: Path) -> None:
    """LOAD-2: also if the log was not reopened in between."""
    a_log = open_filled(tmp_path)
    old = tuple(a_log.segments)[:2]
    clean_every_second(a_log, old).close_handlers()
    assert len(list_leftovers(tmp_path / "topic-0")) == 3
    with a_log.being_cleaned():
        assert not list_leftovers(tmp_path / "topic-0")
    a_log.close()


@pytest.mark.parametrize("meanwhile", ["retained", "cut", "cut and written again", "only the active one left"])
def test_a_log_that_lost_segments_meanwhile_is_left_alone(tmp_path: Path, meanwhile: str) -> None:
    """KAFKA-7278: what was deleted or cut does not come back."""
    a_log = open_filled(tmp_path)
    old = tuple(a_log.segments)[:2]
    with a_log.being_cleaned() as cuts:
        made = clean_every_second(a_log, old)
        if meanwhile == "retained":
            a_log.delete_before(4)
        elif meanwhile == "only the active one left":
            a_log.truncate_to(6)
        else:
            a_log.truncate_to(10)
        if meanwhile == "cut and written again":
            append_batches(a_log, times=5)
        before, state = offsets(a_log), a_log.state
        with pytest.raises(CleaningAborted, match="while it was being cleaned"):
            a_log.replacer.replace_segments((made,), old, cuts)
        a_log.replacer.drop_unused((made,))
    assert a_log.state is state and offsets(a_log) == before
    a_log.close()
    assert not list_leftovers(tmp_path / "topic-0")


def write_part(a_log: UnifiedLog, *offsets: int) -> LogSegment:
    made = a_log.replacer.new_cleaned_segment(offsets[0])
    for offset in offsets:
        made.append(run(offset, 1))
    made.on_become_inactive()
    made.flush()
    return made


@pytest.mark.parametrize(("parts", "misplaced"), [
    ([(0, 3), (4, 7)], None),
    ([(2, 3), (7,)], None),
    ([(0, 4), (4, 7)], (0, 4, 4)),
    ([(0, 3), (4, 8)], (4, 8, 8)),
    ([(0, 3), (9,)], (9, 9, 8)),
])  # fmt: skip
def test_new_segments_lie_one_behind_the_other_where_the_old_ones_were(
    tmp_path: Path, parts: list[tuple[int, ...]], misplaced: tuple[int, int, int] | None
) -> None:
    """Neither reaches into the next one; else nothing has changed."""
    a_log = open_filled(tmp_path)
    old = tuple(a_log.segments)[:2]
    with a_log.being_cleaned() as cuts:
        made = [write_part(a_log, *one) for one in parts]
        if misplaced is None:
            a_log.replacer.replace_segments(made, old, cuts)
            assert offsets(a_log) == [*(offset for one in parts for offset in one), *range(8, 13)]
        else:
            base, last, end = misplaced
            message = f"offsets {base} to {last} do not fit between 0 and {end}"
            with pytest.raises(CorruptRecord, match=message) as caught:
                a_log.replacer.replace_segments(made, old, cuts)
            assert (caught.value.path, caught.value.offset) == (old[0].path, base)
            assert tuple(a_log.segments)[:2] == old and offsets(a_log) == [*range(13)]
            a_log.replacer.drop_unused(made)
    a_log.close()
    assert not list_leftovers(tmp_path / "topic-0")


def test_segments_that_begin_below_the_old_ones_are_refused(tmp_path: Path) -> None:
    a_log = open_filled(tmp_path)
    old = (a_log.segments[1],)
    with a_log.being_cleaned() as cuts:
        made = write_part(a_log, 3, 4)
        with pytest.raises(CorruptRecord, match="offsets 3 to 4 do not fit between 4 and 8"):
            a_log.replacer.replace_segments((made,), old, cuts)
        a_log.replacer.drop_unused((made,))
    assert offsets(a_log) == [*range(13)]
    a_log.close()


def test_an_overflowed_segment_is_split_in_place(tmp_path: Path) -> None:
    """LOG-78, CLN-26: its records are in several segments then, and the log goes on."""
    far = make_overflowed(tmp_path / "topic-0")
    a_log = log(tmp_path)
    assert bases(a_log) == [0, far + 9]
    with a_log.being_cleaned() as cuts:
        a_segment = a_log.segments[0]
        a_log.replacer.replace_segments(a_log.replacer.split_overflowed(a_segment), (a_segment,), cuts)
    assert bases(a_log) == [0, far + 1, far + 9]
    assert offsets(a_log) == [0, 5, far + 1, far + 3, far + 9]
    append_batches(a_log)
    a_log.close()
    assert not list_leftovers(tmp_path / "topic-0")


OLD, NEW = [*range(13)], [0, 2, 4, 6, 8, 9, 10, 11, 12]


@pytest.mark.parametrize("times", [1, 1 << 20], ids=["once", "from then on"])
def test_a_failure_at_any_call_leaves_the_old_log_or_the_new_one(tmp_path: Path, times: int) -> None:
    """The error is reported; the log, and the next open, have all records of one of the two."""
    for nth in each_failure():
        folder = tmp_path / str(nth)
        folder.mkdir()
        fs = FaultFS()
        a_log = open_filled(folder, fs)
        old = tuple(a_log.segments)[:2]
        with a_log.being_cleaned() as cuts:
            made = clean_every_second(a_log, old)
            rule = fs.fail("rename", "fsync", "unlink", nth=nth, times=times)
            failed = False
            try:
                a_log.replacer.replace_segments((made,), old, cuts)
            except StorageError:
                failed = True
                a_log.replacer.drop_unused((made,))
            fs.heal()
        now = offsets(a_log)
        assert now in (OLD, NEW)
        is_whole = not a_log.failed
        if is_whole:
            append_batches(a_log)
            now.append(13)
            assert offsets(a_log) == now
        a_log.close_handlers()
        again = log(folder, had_clean_shutdown=False)
        assert offsets(again) in ([now] if is_whole else [OLD, NEW])
        again.close()
        if not rule.fired:
            assert not failed
            break
        shutil.rmtree(folder)


def test_a_power_cut_at_any_call_leaves_the_old_log_or_the_new_one(tmp_path: Path) -> None:
    """LOG-79: whatever the disk kept of names and data that were not synced."""
    root = tmp_path / "disk"
    (root / "topic-0").mkdir(parents=True)
    fs = DiskFS(root)
    a_log = open_filled(root, fs)
    a_log.flush()
    images = {}
    rng = Random(8)

    def on_change() -> None:
        for mode in MODES:
            image = fs.disk.image(mode, rng)
            images.setdefault(tuple(sorted(image.items())), image)

    fs.on_change = on_change
    replace(a_log)
    a_log.close()
    assert len(images) > 20
    seen = set()
    for number, image in enumerate(images.values()):
        folder = tmp_path / str(number)
        write_image(image, folder)
        again = log(folder, had_clean_shutdown=False)
        found = offsets(again)
        assert found in (OLD, NEW), number
        seen.add(len(found))
        again.close()
        shutil.rmtree(folder)
    assert seen == {len(OLD), len(NEW)}


def test_errors_of_a_failed_clean_are_kafkalogs(tmp_path: Path) -> None:
    fs = FaultFS()
    a_log = open_filled(tmp_path, fs)
    fs.fail("listdir")
    with pytest.raises(KafkalogError), a_log.being_cleaned():
        pass
    fs.heal()
    with a_log.being_cleaned():
        pass
    a_log.close()
