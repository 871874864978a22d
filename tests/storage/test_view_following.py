"""Mode "r" below the face: following a directory that another process changes."""

import gc
import os
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import CorruptRecord, OffsetOutOfRange, PartitionNotFound
from kafkalog.reading.chunks import records
from kafkalog.storage.readonly.index import IndexView
from kafkalog.storage.readonly.view import LogView
from kafkalog.storage.readonly.watch import FRESH_MS, LISTING_MS
from kafkalog.util.fileio import FileSystem
from tests import builder
from tests.descriptors import open_descriptors
from tests.faults import FaultFS
from tests.mock_time import MockClock
from tests.raw_batches import batch, batches, write_segment
from tests.storage.views import append, log_file, offsets, thousand_offsets
from tests.transactional import TRANSACTIONAL


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return thousand_offsets(tmp_path / "orders-3")


def test_a_closed_view_holds_no_copy_of_an_index(folder: Path) -> None:
    view = LogView(folder)
    assert offsets(view, 777, 778) == [777]
    assert view.offset_for_time(0) is not None

    def copies() -> list[IndexView[Any]]:
        found = [one for one in gc.get_objects() if isinstance(one, IndexView)]
        return [one for one in found if one.path.startswith(str(folder))]

    assert copies()
    view.close()
    assert not copies()


@pytest.mark.parametrize("is_swap", [False, True], ids=["replaced", "swap"])
def test_a_replaced_segment_s_file_is_closed_without_a_garbage_collection(folder: Path, is_swap: bool) -> None:
    """Else a process that follows a compacted log holds the disk space, and the descriptors, of what was deleted."""
    first = log_file(folder, 0)
    new = Path(f"{first}.swap")
    view = LogView(folder)
    before = open_descriptors()
    gc.disable()
    try:
        for _ in range(20):
            assert offsets(view) == list(range(1000))
            new.write_bytes(first.read_bytes())
            if is_swap:
                first.unlink()
                view.refresh()
                assert offsets(view, 0, 10) == list(range(10))
            os.replace(new, first)
            view.refresh()
        view.close()
        assert len(os.listdir("/proc/self/fd")) <= before
    finally:
        gc.enable()


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
        """A directory time from another machine: the directory is listed from time to time all the same."""
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
        """A short read: the reader checks once more, then reports that the log was cut."""
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

    def test_rolled_segment_that_was_cut_and_rolled_again(self, folder: Path) -> None:
        """Between two looks: cut back into an older segment, written on, and rolled at the same offset."""
        with LogView(folder) as view:
            assert offsets(view) == list(range(1000))
            assert view.offset_for_time(5000) is None
            log_file(folder, 500).unlink()
            os.truncate(log_file(folder, 0), sum(map(len, batches(0, 40, 10))))
            append(log_file(folder, 0), batch(400, [b"x"] * 10, timestamp=5000))
            write_segment(folder, 500, batches(500, 3, 10))
            view.refresh()
            assert offsets(view) == [*range(410), *range(500, 530)]
            found = view.offset_for_time(5000)
            assert found is not None and found.offset == 400
            assert view.problems == ()

    def test_time_search_while_the_file_is_cut_and_rolled_again(self, folder: Path) -> None:
        """Apparent damage that comes from an older known length is checked again."""
        with LogView(folder) as view:
            log_file(folder, 500).unlink()
            os.truncate(log_file(folder, 0), sum(map(len, batches(0, 40, 10))))
            append(log_file(folder, 0), batch(400, [b"x"] * 10, timestamp=5000))
            write_segment(folder, 500, batches(500, 3, 10))
            found = view.offset_for_time(5000)
            assert found is not None and found.offset == 400
            view.refresh()
            found = view.offset_for_time(1480)
            assert found is not None and found.offset == 400

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

    def test_time_search_when_a_segment_was_deleted_that_the_view_had_not_opened(self, folder: Path) -> None:
        """No missing file is reported: the log now begins later."""
        write_segment(folder, 1000, batches(1000, 3, 10))
        for target, expected in ((1100, 500), (1600, 600), (2005, 1005)):
            with LogView(folder) as view:
                log_file(folder, 0).unlink(missing_ok=True)
                found = view.offset_for_time(target)
                assert found is not None and found.offset == expected
            write_segment(folder, 0, batches(0, 50, 10))

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

    def test_a_swap_file_that_joins_segments_beside_the_last_of_them(self, folder: Path) -> None:
        """The first one is renamed away, the second is not yet: what the new file has of it is no damage."""
        first, second = log_file(folder, 0), log_file(folder, 500)
        Path(f"{first}.swap").write_bytes(first.read_bytes() + second.read_bytes()[:2000])
        write_segment(folder, 1000, batches(1000, 1, 10))
        for suffix in ("index", "timeindex", "log"):
            path = folder / f"{0:020d}.{suffix}"
            path.rename(f"{path}.deleted")
        with LogView(folder) as view:
            assert [bool(segment.is_elsewhere) for segment in view.segments] == [True, False, False]
            assert offsets(view) == list(range(1010))
            assert offsets(view, 480, 520) == list(range(480, 520))
            found = [view.offset_for_time(time) for time in (1490, 1500, 1700)]
            assert [one and one.offset for one in found] == [490, 500, 700]
        damaged = bytearray(Path(f"{first}.swap").read_bytes())
        damaged[100] ^= 1
        Path(f"{first}.swap").write_bytes(damaged)
        with LogView(folder) as view, pytest.raises(CorruptRecord):
            offsets(view)

    def test_swap_files_of_a_split_beside_the_segment_that_they_replace(self, folder: Path) -> None:
        whole, second = log_file(folder, 0), log_file(folder, 500)
        content = second.read_bytes()
        append(whole, content)
        second.rename(f"{second}.swap")
        write_segment(folder, 1000, batches(1000, 1, 10))
        with LogView(folder) as view:
            assert [bool(segment.is_elsewhere) for segment in view.segments] == [True, True, False]
            assert offsets(view) == list(range(1010))

    @pytest.mark.parametrize("kept", [range(10), range(3, 7), range(0)], ids=["whole", "cleaned", "emptied"])
    def test_a_joined_file_may_end_behind_a_gap_over_the_next_base(self, folder: Path, kept: range) -> None:
        first = log_file(folder, 0)
        last = batch(520, [(1520 + n, b"k%d" % n, b"v") for n in kept], deltas=[*kept], last_delta=9)
        whole = batch(520, [(1520 + n, b"k%d" % n, b"v") for n in range(10)])
        write_segment(folder, 500, [*batches(500, 2, 10), whole, *batches(530, 2, 10)])
        write_segment(folder, 1000, batches(1000, 1, 10))
        Path(f"{first}.swap").write_bytes(b"".join(batches(0, 40, 10)) + last)
        first.unlink()
        with LogView(folder) as view:
            assert offsets(view) == [*range(400), *range(500, 550), *range(1000, 1010)]

    def test_the_last_batch_of_a_joined_file_with_a_base_offset_too_high(self, folder: Path) -> None:
        """The batches behind it have its offsets too, with other records."""
        first = log_file(folder, 0)
        made = batches(0, 50, 10)
        for base in (500, 900, 5000):
            made[-1] = base.to_bytes(8, "big") + made[-1][8:]
            Path(f"{first}.swap").write_bytes(b"".join(made))
            first.unlink(missing_ok=True)
            write_segment(folder, 1000, batches(1000, 1, 10))
            with LogView(folder) as view:
                assert offsets(view, 0, 490) == list(range(490))
                words = f"ends at offset {base + 9}, but the segment must end below 500"
                with pytest.raises(CorruptRecord, match=words):
                    offsets(view)
                assert offsets(view, 500) == list(range(500, 1010))
            with kafkalog.open(folder) as log:
                skipped: list[Any] = []
                found = [record.offset for record in log.records(on_damage="skip", skipped=skipped)]
                assert found == [*range(490), *range(500, 1010)]
                assert [(one.offset, one.next_offset) for one in skipped] == [(490, 500)]

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

    def test_high_watermark_of_the_parents_checkpoint(self, folder: Path) -> None:
        """PART-12: within log start ... log end; without an entry the log end, as for a log of one replica."""
        checkpoint = folder.parent / "replication-offset-checkpoint"
        with LogView(folder) as view:
            assert view.high_watermark == 1000
        for text, mark in [("0\n1\norders 3 700\n", 700), ("0\n1\norders 4 7\n", 1000), ("", 1000),
                           ("0\n1\norders 3 5000\n", 1000), ("0\n1\norders 3 -1\n", 0)]:  # fmt: skip
            checkpoint.write_text(text)
            with LogView(folder) as view:
                assert (view.high_watermark, view.log_end_offset, view.problems) == (mark, 1000, ())

    def test_what_a_live_writer_appends_is_seen_though_its_checkpoint_lags(self, folder: Path) -> None:
        """Only reading up to the high watermark waits for the checkpoint; uncommitted and committed reading do not."""
        checkpoint = folder.parent / "replication-offset-checkpoint"
        checkpoint.write_text("0\n1\norders 3 700\n")
        with LogView(folder) as view:
            with (folder / f"{500:020d}.log").open("ab") as file:
                file.write(batches(1000, 1, 10)[0])
            view.refresh()
            assert (view.high_watermark, view.last_stable_offset, view.log_end_offset) == (700, 1010, 1010)
            found = view.read(690, 1 << 20, "high_watermark")
            assert [batch.base_offset for batch in found.records.batches()] == [690]
            assert view.read(700, 1 << 20, "high_watermark").records.size == 0
            late = view.offset_for_time(-1, "high_watermark")
            assert late is not None and late.offset == 700
            checkpoint.write_text("0\n1\norders 3 1010\n")
            (folder / "a-new-name").touch()  # the directory is listed again, and the checkpoints are read
            view.refresh()
            assert view.high_watermark == 1010

    @pytest.mark.parametrize("text", ["7\n", "0\n2\norders 3 5\n", "0\n1\norders 3\n", "0\n1\norders x 5\n", "\xff"])
    def test_a_damaged_high_watermark_is_a_problem_not_an_error(self, folder: Path, text: str) -> None:
        """CKPT-6: reported with its file; the log is read as without it."""
        checkpoint = folder.parent / "replication-offset-checkpoint"
        checkpoint.write_bytes(text.encode("latin-1"))
        (folder.parent / "log-start-offset-checkpoint").write_text("0\n1\norders 3 10\n")
        with LogView(folder) as view:
            assert (view.log_start_offset, view.high_watermark, view.log_end_offset) == (10, 1000, 1000)
            assert [problem.path for problem in view.problems] == [str(checkpoint)]

    def test_the_epoch_of_the_log_start_is_in_the_epoch_file(self, folder: Path) -> None:
        """The file is read and never made: a directory that is another's stays as it is."""
        with LogView(folder) as view:
            assert view.offset_for_time(-2) == (0, -1, -1)
            assert not (folder / "leader-epoch-checkpoint").exists()
            (folder / "leader-epoch-checkpoint").write_text("0\n2\n4 0\n6 500\n")
            assert view.offset_for_time(-2) == (0, -1, 4)
            (folder / "leader-epoch-checkpoint").write_text("0\n2\n4 0\n")
            assert view.offset_for_time(-2) == (0, -1, -1)
            assert [problem.path for problem in view.problems] == [str(folder / "leader-epoch-checkpoint")]

    def test_damaged_checkpoint_is_a_problem_not_an_error(self, folder: Path) -> None:
        checkpoint = folder.parent / "log-start-offset-checkpoint"
        checkpoint.write_text("7\n")
        with LogView(folder) as view:
            assert view.log_start_offset == 0
            assert [problem.path for problem in view.problems] == [str(checkpoint)]


class TestPassingProblems:
    """Files that an owner is writing, replacing or deleting are checked again before a problem is reported."""

    @pytest.mark.parametrize("suffix", ["index", "timeindex"])
    def test_an_index_that_comes_a_moment_later_is_no_problem(self, folder: Path, suffix: str) -> None:
        path = folder / f"{0:020d}.{suffix}"
        content = path.read_bytes()
        path.unlink()
        with LogView(folder) as view:
            view.offset_for_time(1400)
            view.read(300, 1)
            [problem] = view.problems
            assert problem.path == str(path) and "missing" in problem.message
            path.write_bytes(content)
            assert view.problems == ()

    def test_indexes_of_a_segment_that_is_deleted_are_no_problem(self, folder: Path) -> None:
        with LogView(folder) as view:
            for suffix in ("index", "timeindex"):
                (folder / f"{0:020d}.{suffix}").unlink()
            view.offset_for_time(1400)
            view.read(300, 1)
            assert len(view.problems) == 2
            (folder / f"{0:020d}.log").unlink()
            assert view.problems == ()

    def test_a_snapshot_that_is_being_written_is_no_problem(self, tmp_path: Path) -> None:
        with kafkalog.open(tmp_path / "t-0", "a") as log:
            for number in range(3):
                of_producer = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
                log.append_bytes(builder.batch([b"v"], attributes=TRANSACTIONAL, **of_producer))
                log.roll()
        [*_, newest] = sorted((tmp_path / "t-0").glob("*.snapshot"))
        content = newest.read_bytes()
        newest.write_bytes(content[:5])
        with LogView(tmp_path / "t-0") as view:
            assert view.last_stable_offset == 0
            assert [problem.path for problem in view.problems] == [str(newest)]
            newest.write_bytes(content)
            assert view.problems == () and view.last_stable_offset == 0
            newest.write_bytes(content[:5])
        with LogView(tmp_path / "t-0") as view:
            assert view.last_stable_offset == 0
            newest.unlink()
            assert view.problems == ()
