"""Mode "r" below the face: where a directory ends, and following one that another process changes."""

import os
import struct
from pathlib import Path
from typing import Any

import pytest

from kafkalog.chunks import records
from kafkalog.errors import CorruptRecord, LogClosed, NotAPartition, OffsetOutOfRange, PartitionNotFound
from kafkalog.storage.view import FRESH_MS, LISTING_MS, LogView
from kafkalog.storage.view_segment import Descriptors
from kafkalog.util.clock import MockClock
from kafkalog.util.fileio import FileSystem
from tests.faults import FaultFS
from tests.raw_batches import batch, batches, framed, write_segment


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Offsets 0 to 999 in two segments of fifty batches of ten."""
    path = tmp_path / "orders-3"
    write_segment(path, 0, batches(0, 50, 10))
    write_segment(path, 500, batches(500, 50, 10))
    return path


def offsets(view: LogView, start: int | None = None, stop: int | None = None) -> list[int]:
    first = view.log_start_offset if start is None else start
    last = view.log_end_offset if stop is None else stop
    return [record.offset for record in records(view, first, last)]


def log_file(folder: Path, base: int) -> Path:
    return folder / f"{base:020d}.log"


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


class TestWhereItEnds:
    def test_start_end_and_segments_of_a_whole_directory(self, folder: Path) -> None:
        with LogView(folder) as view:
            assert (view.log_start_offset, view.log_end_offset) == (0, 1000)
            assert [segment.base_offset for segment in view.segments] == [0, 500]
            assert view.size == sum(log_file(folder, base).stat().st_size for base in (0, 500))
            assert view.problems == ()
            assert offsets(view) == list(range(1000))

    def test_nothing_is_written_and_no_lock_is_taken(self, folder: Path) -> None:
        before = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
        fs = FaultFS()
        with LogView(folder, fs=fs) as view:
            offsets(view)
            view.offset_for_time(1700)
        assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()} == before
        assert sorted(os.listdir(folder.parent)) == ["orders-3"]
        assert not {"pwrite", "ftruncate", "rename", "unlink", "fsync"} & {call.op for call in fs.calls}

    @pytest.mark.parametrize("cut", [1, 11, 12, 16, 17, 60, 61, 100])
    def test_torn_last_batch_ends_the_log_before_it(self, folder: Path, cut: int) -> None:
        """FILE-3: the iteration ends at the last whole batch; the view also says what it left out."""
        path = log_file(folder, 500)
        whole = path.stat().st_size
        torn = batches(1000, 1, 10)[0][:cut]
        append(path, torn)
        with LogView(folder) as view:
            assert view.log_end_offset == 1000
            assert offsets(view) == list(range(1000))
            (problem,) = view.problems
            assert isinstance(problem, CorruptRecord)
            assert (problem.path, problem.offset, problem.position) == (str(path), 1000, whole)

    @pytest.mark.parametrize("at", [8, 16, 17, 21, 23, 40, 70, 200])
    def test_flipped_bit_in_the_tail_ends_the_log_before_its_batch(self, folder: Path, at: int) -> None:
        path = log_file(folder, 500)
        data = bytearray(path.read_bytes())
        position = len(data) - len(batches(990, 1, 10)[0])
        data[position + at] ^= 0x80
        path.write_bytes(data)
        with LogView(folder) as view:
            assert view.log_end_offset == 990
            (problem,) = view.problems
            assert (problem.path, problem.offset, problem.position) == (str(path), 990, position)
            assert offsets(view, 985) == list(range(985, 990))

    @pytest.mark.parametrize("wrong", [0, 5, 999, 2**62])
    def test_batch_whose_offset_does_not_follow_ends_the_log(self, folder: Path, wrong: int) -> None:
        """The base offset lies outside the CRC: a damaged one shows by not going up, or not fitting the segment."""
        append(log_file(folder, 500), struct.pack(">q", wrong) + batches(1000, 1, 10)[0][8:])
        with LogView(folder) as view:
            assert view.log_end_offset == 1000
            assert view.problems[0].offset == 1000

    def test_zeros_of_a_preallocated_file_are_no_problem(self, folder: Path) -> None:
        append(log_file(folder, 500), bytes(100_000))
        with LogView(folder) as view:
            assert (view.log_end_offset, view.problems) == (1000, ())
            assert offsets(view, 980) == list(range(980, 1000))

    def test_batch_larger_than_a_walk_is_taken_whole(self, folder: Path) -> None:
        append(log_file(folder, 500), batch(1000, [bytes(3 << 20)]))
        with LogView(folder) as view:
            assert view.log_end_offset == 1001
            (record,) = records(view, 1000, 1001)
            assert len(record.value or b"") == 3 << 20

    def test_empty_last_segment(self, folder: Path) -> None:
        write_segment(folder, 1000, [])
        with LogView(folder) as view:
            assert view.log_end_offset == 1000
            assert offsets(view, 995) == list(range(995, 1000))

    def test_live_index_with_free_room_behind_its_entries(self, tmp_path: Path) -> None:
        path = tmp_path / "t-0"
        write_segment(path, 0, batches(0, 80, 10), preallocated=1000)
        with LogView(path) as view:
            assert (view.log_end_offset, view.problems) == (800, ())
            assert view.offset_for_time(1455).offset == 455  # type: ignore[union-attr]


class TestIndexIsAdvice:
    """Every wrong index still gives the right answers."""

    ENTRY = struct.Struct(">ii")

    def check(self, folder: Path) -> LogView:
        with LogView(folder) as view:
            assert view.log_end_offset == 1000
            for offset in (0, 1, 250, 499, 500, 777, 999):
                info = view.read(offset, 1)
                assert info.fetch_offset_metadata.message_offset == offset // 10 * 10
                found = view.offset_for_time(1000 + offset)
                assert found is not None
                assert (found.offset, found.timestamp) == (offset, 1000 + offset)
            assert offsets(view, 3) == list(range(3, 1000))
        return view

    @pytest.mark.parametrize("suffix", ["index", "timeindex"])
    @pytest.mark.parametrize(
        "content",
        [None, b"", bytes(4096), b"\x01", b"\xff" * 96, b"garbage text " * 20],
        ids=["missing", "empty", "zeros", "one byte", "ones", "text"],
    )
    def test_worthless_content(self, folder: Path, suffix: str, content: bytes | None) -> None:
        for base in (0, 500):
            path = folder / f"{base:020d}.{suffix}"
            path.unlink() if content is None else path.write_bytes(content)
        self.check(folder)

    @pytest.mark.parametrize("suffix", ["index", "timeindex"])
    @pytest.mark.parametrize("cut", range(1, 9))
    def test_cut_in_the_middle_of_an_entry_has_a_problem(self, folder: Path, suffix: str, cut: int) -> None:
        path = folder / f"{500:020d}.{suffix}"
        data = path.read_bytes()
        path.write_bytes(data[: len(data) - cut])
        view = self.check(folder)
        assert [problem.path for problem in view.problems] in ([str(path)], [])

    @pytest.mark.parametrize("shift", [-1, 1, 61, 371, 100_000])
    def test_positions_that_are_no_batch(self, folder: Path, shift: int) -> None:
        for base in (0, 500):
            path = folder / f"{base:020d}.index"
            entries = [(offset, position + shift) for offset, position in self.ENTRY.iter_unpack(path.read_bytes())]
            path.write_bytes(b"".join(self.ENTRY.pack(*entry) for entry in entries))
        self.check(folder)

    def test_times_that_the_data_does_not_bear_out(self, folder: Path) -> None:
        entry = struct.Struct(">qi")
        for base in (0, 500):
            path = folder / f"{base:020d}.timeindex"
            entries = [(time - 400, offset) for time, offset in entry.iter_unpack(path.read_bytes())]
            path.write_bytes(b"".join(entry.pack(*one) for one in entries))
        self.check(folder)

    def test_entries_of_data_that_was_cut_away(self, folder: Path) -> None:
        """Truncation leaves old entries behind the valid ones (format.md §14, B1)."""
        path = log_file(folder, 500)
        parts = batches(500, 50, 10)
        path.write_bytes(b"".join(parts[:20]))
        with LogView(folder) as view:
            assert view.log_end_offset == 700
            assert offsets(view, 690) == list(range(690, 700))

    def test_trimmed_while_we_read(self, folder: Path) -> None:
        """Its owner shortens an index that the view has read: nothing is mapped, so nothing can happen."""
        with LogView(folder) as view:
            read = iter(records(view, 0, 1000))
            assert next(read).offset == 0
            for base in (0, 500):
                os.truncate(folder / f"{base:020d}.index", 8)
                os.truncate(folder / f"{base:020d}.timeindex", 0)
            assert [record.offset for record in read] == list(range(1, 1000))
            assert view.offset_for_time(1600).offset == 600  # type: ignore[union-attr]
            assert view.read(650, 1).fetch_offset_metadata.message_offset == 650


class TestFollowing:
    def test_growth(self, folder: Path) -> None:
        with LogView(folder) as view:
            for base in range(1000, 1100, 10):
                append(log_file(folder, 500), batches(base, 1, 10)[0])
                view.refresh()
                assert view.log_end_offset == base + 10
            assert offsets(view, 995) == list(range(995, 1100))

    def test_batch_that_is_being_written(self, folder: Path) -> None:
        data = batches(1000, 1, 10)[0]
        with LogView(folder) as view:
            append(log_file(folder, 500), data[:90])
            view.refresh()
            assert view.log_end_offset == 1000
            assert len(view.problems) == 1
            append(log_file(folder, 500), data[90:])
            view.refresh()
            assert (view.log_end_offset, view.problems) == (1010, ())

    def test_roll(self, folder: Path) -> None:
        with LogView(folder) as view:
            append(log_file(folder, 500), batches(1000, 1, 10)[0])
            write_segment(folder, 1010, batches(1010, 3, 10))
            view.refresh()
            assert [segment.base_offset for segment in view.segments] == [0, 500, 1010]
            assert offsets(view, 990) == list(range(990, 1040))

    def test_roll_is_seen_though_the_directory_time_does_not_tell(self, folder: Path) -> None:
        """A directory time that comes from another machine: the listing is made at times all the same."""
        clock = MockClock(int(folder.stat().st_mtime * 1000) + 10 * FRESH_MS)
        with LogView(folder, clock=clock) as view:
            seen = folder.stat()
            write_segment(folder, 1000, batches(1000, 1, 10))
            os.utime(folder, ns=(seen.st_atime_ns, seen.st_mtime_ns))
            view.refresh()
            assert view.log_end_offset == 1000
            clock.advance(LISTING_MS)
            view.refresh()
            assert view.log_end_offset == 1010

    def test_quiet_refresh_is_two_stats(self, folder: Path) -> None:
        fs = FaultFS()
        clock = MockClock(int(folder.stat().st_mtime * 1000) + 10 * FRESH_MS)
        with LogView(folder, fs=fs, clock=clock) as view:
            seen = len(fs.calls)
            view.refresh()
            assert [call.op for call in fs.calls[seen:]] == ["stat", "fstat"]

    def test_truncation_within_the_last_segment(self, folder: Path) -> None:
        size = len(batches(990, 1, 10)[0])
        with LogView(folder) as view:
            read = records(view, 980, 1000)
            os.truncate(log_file(folder, 500), log_file(folder, 500).stat().st_size - size)
            view.refresh()
            assert view.log_end_offset == 990
            given = []
            with pytest.raises(OffsetOutOfRange) as error:
                for record in read:
                    given.append(record.offset)
            assert given == list(range(980, 990))
            assert error.value.offset == 990

    def test_truncation_that_the_view_has_not_seen(self, folder: Path) -> None:
        """A short read: the reader looks again once, then tells that the log was cut."""
        with LogView(folder) as view:
            read = records(view, 980, 1000)
            os.truncate(log_file(folder, 500), log_file(folder, 500).stat().st_size - 5)
            given = []
            with pytest.raises(OffsetOutOfRange):
                for record in read:
                    given.append(record.offset)
            assert given == list(range(980, 990))

    def test_truncation_and_other_data_at_the_same_length(self, folder: Path) -> None:
        path = log_file(folder, 500)
        size = len(batches(990, 1, 10)[0])
        with LogView(folder) as view:
            data = path.read_bytes()[:-size]
            other = batch(990, [(5000 + n, b"k", b"other" + bytes(10)) for n in range(5)])
            path.write_bytes(data + other + bytes(size - len(other)))
            view.refresh()
            assert view.log_end_offset == 995
            assert [record.value for record in records(view, 990, 995)] == [b"other" + bytes(10)] * 5

    def test_truncation_to_an_older_segment(self, folder: Path) -> None:
        with LogView(folder) as view:
            for suffix in ("log", "index", "timeindex"):
                path = folder / f"{500:020d}.{suffix}"
                path.rename(f"{path}.deleted")
            os.truncate(log_file(folder, 0), len(b"".join(batches(0, 30, 10))))
            view.refresh()
            assert (view.log_end_offset, len(view.segments)) == (300, 1)
            append(log_file(folder, 0), batches(300, 2, 10)[0])
            view.refresh()
            assert offsets(view, 295) == list(range(295, 310))

    def test_deleted_segment_is_read_to_its_end_by_who_holds_it(self, folder: Path) -> None:
        """A reader in the middle of a segment keeps its descriptor; a new one learns the new start."""
        with LogView(folder) as view:
            read = iter(records(view, 0, 1000))
            assert next(read).offset == 0
            path = log_file(folder, 0)
            path.rename(f"{path}.deleted")
            os.unlink(f"{path}.deleted")
            view.refresh()
            assert view.log_start_offset == 500
            assert [record.offset for record in read] == list(range(1, 1000))
            with pytest.raises(OffsetOutOfRange, match="before the log start"):
                view.read(3, 100)

    def test_deletion_the_view_has_not_seen(self, folder: Path) -> None:
        with LogView(folder) as view:
            log_file(folder, 0).unlink()
            with pytest.raises(OffsetOutOfRange) as error:
                next(iter(records(view, 5, 1000)))
            assert error.value.offset == 5
            assert "[500, 1000)" in str(error.value)

    def test_compaction_puts_another_file_under_the_same_name(self, folder: Path) -> None:
        """The cleaner renames `.cleaned` to `.swap`, the old file away, and `.swap` to `.log`."""
        name = log_file(folder, 0)
        kept = [batch(base, [(1000 + base, b"k", b"kept")], last_delta=9) for base in range(0, 500, 10)]
        with LogView(folder) as view:
            assert offsets(view, 0, 3) == [0, 1, 2]
            Path(f"{name}.cleaned").write_bytes(b"".join(kept))
            view.refresh()
            assert offsets(view, 0, 3) == [0, 1, 2]
            Path(f"{name}.cleaned").rename(f"{name}.swap")
            name.rename(f"{name}.deleted")
            view.refresh()
            assert offsets(view) == [*range(0, 500, 10), *range(500, 1000)]
            Path(f"{name}.swap").rename(name)
            view.refresh()
            assert offsets(view) == [*range(0, 500, 10), *range(500, 1000)]
            assert view.read(101, 1).fetch_offset_metadata.message_offset == 100

    def test_file_that_vanishes_between_listing_and_opening(self, folder: Path) -> None:
        """The directory is listed again."""

        class Vanishing(FileSystem):
            def open(self, path: Any, *args: Any, **options: Any) -> int:  # type: ignore[override]
                if str(path).endswith("0500.log") and log_file(folder, 500).exists():
                    for suffix in ("log", "index", "timeindex"):
                        (folder / f"{500:020d}.{suffix}").rename(folder / f"{500:020d}.{suffix}.deleted")
                return super().open(path, *args, **options)

        with LogView(folder, fs=Vanishing()) as view:
            assert view.log_end_offset == 500

    def test_directory_that_is_taken_away(self, folder: Path) -> None:
        with LogView(folder) as view:
            read = iter(records(view, 0, 500))
            next(read)
            folder.rename(folder.parent / "orders-3.0123456789abcdef0123456789abcdef-delete")
            with pytest.raises(PartitionNotFound):
                view.refresh()
            assert len(list(read)) == 499

    def test_log_start_of_the_parents_checkpoint(self, folder: Path) -> None:
        checkpoint = folder.parent / "log-start-offset-checkpoint"
        checkpoint.write_text("0\n2\norders 3 123\norders 4 7\n")
        with LogView(folder) as view:
            assert view.log_start_offset == 123
            with pytest.raises(OffsetOutOfRange):
                view.read(122, 1)
            assert view.offset_for_time(1000).offset == 123  # type: ignore[union-attr]
            assert view.offset_for_time(-2).offset == 123  # type: ignore[union-attr]

    def test_damaged_checkpoint_is_a_problem_not_an_error(self, folder: Path) -> None:
        checkpoint = folder.parent / "log-start-offset-checkpoint"
        checkpoint.write_text("7\n")
        with LogView(folder) as view:
            assert view.log_start_offset == 0
            assert [problem.path for problem in view.problems] == [str(checkpoint)]


class TestReading:
    def test_read_names_the_batch_found(self, folder: Path) -> None:
        """SEG-10, LOG-22."""
        size = len(batches(500, 1, 10)[0])
        with LogView(folder) as view:
            info = view.read(523, 10 * size)
            where = info.fetch_offset_metadata
            assert (where.message_offset, where.segment_base_offset) == (520, 500)
            assert where.relative_position_in_segment == info.records.position == 2 * size
            assert info.records.size == 10 * size
            assert not info.first_entry_incomplete

    def test_at_least_one_batch_unless_told_otherwise(self, folder: Path) -> None:
        with LogView(folder) as view:
            assert view.read(523, 1).records.size == len(batches(520, 1, 10)[0])
            cut = view.read(523, 1, min_one_message=False)
            assert (cut.records.size, cut.first_entry_incomplete) == (1, True)

    def test_log_end_is_empty_and_beyond_it_an_error(self, folder: Path) -> None:
        with LogView(folder) as view:
            info = view.read(1000, 100)
            assert (info.records.size, info.fetch_offset_metadata.message_offset) == (0, 1000)
            with pytest.raises(OffsetOutOfRange, match="after the log end"):
                view.read(1001, 100)

    def test_offsets_in_a_gap_between_segments(self, tmp_path: Path) -> None:
        path = tmp_path / "t-0"
        write_segment(path, 0, batches(0, 5, 10))
        write_segment(path, 80, batches(90, 5, 10))
        with LogView(path) as view:
            assert view.read(60, 1).fetch_offset_metadata.message_offset == 90
            assert offsets(view) == [*range(50), *range(90, 140)]

    def test_times(self, folder: Path) -> None:
        """LOG-57: -1 is the end, -2 the start, -3 the largest time; else the first record at or after."""
        with LogView(folder) as view:
            assert view.offset_for_time(-1).offset == 1000  # type: ignore[union-attr]
            assert view.offset_for_time(-2).offset == 0  # type: ignore[union-attr]
            assert view.offset_for_time(-3) == (999, 1999, 0)
            assert view.offset_for_time(0) == (0, 1000, 0)
            assert view.offset_for_time(1500) == (500, 1500, 0)
            assert view.offset_for_time(2000) is None

    def test_times_that_jump(self, tmp_path: Path) -> None:
        """Two producers whose clocks differ: the first record in offset order that is late enough."""
        path = tmp_path / "t-0"
        times = [100, 900, 110, 120, 910, 130]
        parts = [batch(n, [(time, None, b"x" * 3000)]) for n, time in enumerate(times)]
        write_segment(path, 0, parts)
        with LogView(path) as view:
            found = {at: view.offset_for_time(at) for at in (1, 100, 101, 115, 900, 901, 911)}
            assert [None if one is None else one[:2] for one in found.values()] == [
                (0, 100), (0, 100), (1, 900), (1, 900), (1, 900), (4, 910), None,
            ]  # fmt: skip
            assert view.offset_for_time(-3) == (4, 910, 0)

    def test_damage_in_the_middle_is_told_after_what_lies_before(self, folder: Path) -> None:
        path = log_file(folder, 0)
        data = bytearray(path.read_bytes())
        position = len(b"".join(batches(0, 7, 10)))
        data[position + 80] ^= 1
        path.write_bytes(data)
        with LogView(folder) as view:
            given = []
            with pytest.raises(CorruptRecord) as error:
                for record in records(view, 0, 1000):
                    given.append(record.offset)
            assert given == list(range(70))
            assert (error.value.path, error.value.offset, error.value.position) == (str(path), 70, position)
            assert error.value.hint
            assert offsets(view, 80) == list(range(80, 1000))

    def test_older_segment_that_is_torn_loses_nothing_silently(self, folder: Path) -> None:
        os.truncate(log_file(folder, 0), log_file(folder, 0).stat().st_size - 1)
        with LogView(folder) as view:
            given = []
            with pytest.raises(CorruptRecord, match="middle of a batch") as error:
                for record in records(view, 0, 1000):
                    given.append(record.offset)
            assert (given, error.value.offset) == (list(range(490)), 490)

    def test_crc_right_but_offsets_going_back(self, folder: Path) -> None:
        path = log_file(folder, 0)
        parts = batches(0, 50, 10)
        parts[20] = struct.pack(">q", 100) + parts[20][8:]
        path.write_bytes(b"".join(parts))
        with LogView(folder) as view, pytest.raises(CorruptRecord, match="below") as error:
            list(records(view, 0, 1000))
        assert error.value.position == len(b"".join(parts[:20]))

    def test_many_segments_need_few_descriptors(self, tmp_path: Path) -> None:
        path = tmp_path / "t-0"
        for base in range(0, 400, 10):
            write_segment(path, base, batches(base, 1, 10))
        with LogView(path) as view:
            view._descriptors = limited = Descriptors(5)
            for segment in view.segments:
                segment._descriptors = limited
            before = len(os.listdir("/proc/self/fd"))
            assert offsets(view) == list(range(400))
            assert len(os.listdir("/proc/self/fd")) - before <= 6

    def test_closed(self, folder: Path) -> None:
        view = LogView(folder)
        read = iter(records(view, 0, 1000))
        next(read)
        view.close()
        view.close()
        with pytest.raises(LogClosed, match="log orders-3 is closed"):
            list(read)
        with pytest.raises(ValueError, match="log orders-3 is closed"):
            view.read(0, 1)
        with pytest.raises(LogClosed):
            view.refresh()

    def test_v2_frame_without_records_is_a_batch(self, tmp_path: Path) -> None:
        """A batch that compaction emptied counts for the end, and gives no record."""
        path = tmp_path / "t-0"
        body = struct.pack(">hiqqqhii", 0, 4, -1, 1000, -1, -1, -1, 0)
        write_segment(path, 0, [*batches(0, 1, 10), framed(10, body), *batches(15, 1, 10)])
        with LogView(path) as view:
            assert view.log_end_offset == 25
            assert offsets(view) == [*range(10), *range(15, 25)]


class TestOpening:
    def test_data_directory_names_its_partitions(self, folder: Path) -> None:
        with pytest.raises(NotAPartition, match="orders-3"):
            LogView(folder.parent)

    def test_segment_file_names_its_directory(self, folder: Path) -> None:
        with pytest.raises(NotAPartition) as error:
            LogView(log_file(folder, 0))
        assert str(folder) in (error.value.hint or "")
