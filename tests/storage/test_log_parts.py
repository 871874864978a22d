"""Each part of a log with a core of its own and nothing else."""

import errno
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kafkalog._core.batch.ready_batch import ReadyBatch
from kafkalog._core.batch.scan import scan
from kafkalog._core.log.append_engine import AppendEngine
from kafkalog._core.log.log_fields import LogFields
from kafkalog.errors import CleaningAborted, LogClosed, StorageError
from kafkalog.storage.leader_epoch import LeaderEpochCache
from kafkalog.storage.log import UnifiedLog
from kafkalog.storage.log_parts.appender import LogAppender
from kafkalog.storage.log_parts.batch_writer import BatchWriter
from kafkalog.storage.log_parts.core import LogCore
from kafkalog.storage.log_parts.cutter import LogCutter
from kafkalog.storage.log_parts.files import LogFiles
from kafkalog.storage.log_parts.flusher import LogFlusher
from kafkalog.storage.log_parts.reader import LogReader
from kafkalog.storage.log_parts.remover import LogRemover
from kafkalog.storage.log_parts.replacer import LogReplacer
from kafkalog.storage.log_parts.roller import LogRoller
from kafkalog.storage.log_parts.watermark import HighWatermark
from kafkalog.storage.log_state import started
from kafkalog.storage.names import DELETED_SUFFIX
from kafkalog.storage.producer_state import EXPIRATION_MS, ProducerStateManager
from kafkalog.storage.recovery.loader import begin_log
from kafkalog.util.fileio import OS, FileSystem
from tests.faults import FaultFS
from tests.mock_time import MockClock, MockScheduler
from tests.storage.logs import NOW, config, sized_batch

PARTS = (
    LogAppender, BatchWriter, LogCutter, LogFiles, LogFlusher, LogReader, LogRemover, LogReplacer, LogRoller,
    HighWatermark,
)  # fmt: skip


def core_of(path: Path, *, fs: FileSystem = OS, scheduler: MockScheduler | None = None, **settings: Any) -> LogCore:
    """The core of a new log in `path`/topic-0."""
    directory, clock = path / "topic-0", MockClock(NOW)
    directory.mkdir()
    found = config(**settings)
    loaded = begin_log(str(directory), found, fs=fs, clock=clock)
    state = started(loaded.segments, log_start_offset=0, log_end_offset=0, recovery_point=0, high_watermark=0)
    producers = ProducerStateManager(str(directory), fs=fs, expiration_ms=EXPIRATION_MS, names=())
    return LogCore(
        str(directory), found, state, LeaderEpochCache.open(str(directory), fs=fs), producers, fs=fs, clock=clock,
        scheduler=scheduler, leader_epoch=0, high_watermark_follows_end=True,
    )  # fmt: skip


def writer_of(core: LogCore) -> tuple[BatchWriter, LogFlusher, LogRoller]:
    flusher = LogFlusher(core)
    roller = LogRoller(core, flusher, LogRemover(core))
    return BatchWriter(core, flusher, roller), flusher, roller


def write(core: LogCore, times: int = 1, size: int = 100) -> None:
    """Write so many batches of one record."""
    for _ in range(times):
        data = bytearray(sized_batch(size))
        writer_of(core)[0].append_checked(data, scan(data), 0, NOW)


def names(core: LogCore) -> list[str]:
    return sorted(file.name for file in Path(core.path).iterdir())


@pytest.mark.parametrize("part", [*PARTS, UnifiedLog, LogCore], ids=lambda part: part.__name__)
def test_a_part_is_small_and_made_of_what_it_has(part: type) -> None:
    found = [name for name in vars(part) if not name.startswith("_") and inspect.isroutine(getattr(part, name))]
    assert len(found) <= 40
    assert part.__mro__[1:-1] == ((LogFields,) if part is LogCore else ())


def test_the_writer_writes_and_publishes(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    write(core, 3)
    assert (core.state.log_end_offset, core.state.high_watermark, core.active.size) == (3, 3, 300)
    assert (Path(core.path) / f"{0:020d}.log").stat().st_size == 300


def test_a_write_that_fails_is_cut_off_again(tmp_path: Path) -> None:
    fs = FaultFS()
    core = core_of(tmp_path, fs=fs)
    write(core)
    fs.fail("pwrite", path=".log", code=errno.ENOSPC, partial=20)
    with pytest.raises(StorageError) as error:
        write(core)
    assert (error.value.offset, core.state.log_end_offset, core.active.size) == (1, 1, 100)
    assert core.health.cause is None


def test_the_roller_begins_a_segment_at_the_end(tmp_path: Path) -> None:
    """LOG-17."""
    core = core_of(tmp_path)
    write(core, 2)
    segment = writer_of(core)[2].roll()
    assert segment.base_offset == 2 and core.active is segment and core.state.end_position == 0
    assert [one.base_offset for one in core.state.segments] == [0, 2]


def test_a_roll_that_fails_changes_nothing(tmp_path: Path) -> None:
    fs = FaultFS()
    core = core_of(tmp_path, fs=fs)
    write(core, 2)
    before, state = names(core), core.state
    fs.fail("open", path=f"{2:020d}.log", code=errno.ENOSPC)
    with pytest.raises(StorageError):
        writer_of(core)[2].roll()
    assert core.state is state and core.active.base_offset == 0
    assert [name for name in names(core) if not name.endswith(".snapshot")] == before


def test_the_flusher_raises_the_recovery_point(tmp_path: Path) -> None:
    """LOG-51."""
    core = core_of(tmp_path)
    write(core, 2)
    flusher = LogFlusher(core)
    flusher.commit()
    assert (core.state.recovery_point, core.durable) == (0, 2)
    flusher.flush(1)
    assert core.state.recovery_point == 1


def test_a_failed_sync_poisons_the_core(tmp_path: Path) -> None:
    """LOG-52."""
    fs = FaultFS()
    core = core_of(tmp_path, fs=fs)
    write(core)
    fs.fail("fdatasync", path=".log", code=errno.EIO)
    with pytest.raises(StorageError):
        LogFlusher(core).flush()
    with pytest.raises(StorageError, match="rejects writes"):
        write(core)


def test_the_cutter_cuts_both_ends(tmp_path: Path) -> None:
    """LOG-36, LOG-53."""
    core = core_of(tmp_path, internal_segment_bytes=250)
    write(core, 6)
    flusher, remover = LogFlusher(core), LogRemover(core)
    cutter = LogCutter(core, flusher, remover, LogRoller(core, flusher, remover))
    cuts = core.truncation_count_when_idle()
    assert cutter.truncate_to(5) and core.state.log_end_offset == 5 and core.truncation_count_when_idle() == cuts + 2
    assert cutter.delete_before(3) == 3
    assert [one.base_offset for one in core.state.segments] == [2, 4]
    cutter.truncate_fully_and_start_at(100)
    assert (core.state.log_start_offset, core.state.log_end_offset, core.state.high_watermark) == (100, 100, 100)


@pytest.mark.parametrize("is_scheduled", [True, False])
def test_the_remover_waits_where_there_is_a_scheduler(tmp_path: Path, is_scheduled: bool) -> None:
    """LOG-46."""
    clock = MockClock(NOW)
    scheduler = MockScheduler(clock) if is_scheduled else None
    core = core_of(tmp_path, scheduler=scheduler, file_delete_delay_ms=1000)
    write(core)
    gone = core.active
    gone.change_file_suffixes("", DELETED_SUFFIX)
    LogRemover(core).delete_later((gone,))
    assert any(name.endswith(DELETED_SUFFIX) for name in names(core)) == is_scheduled
    if scheduler is not None:
        clock.advance(1000)
        scheduler.tick()
    assert not any(name.endswith(DELETED_SUFFIX) for name in names(core))


def test_the_replacer_sees_a_cut(tmp_path: Path) -> None:
    """LOG-79."""
    core = core_of(tmp_path, internal_segment_bytes=250)
    write(core, 4)
    replacer = LogReplacer(core, LogFlusher(core), LogRemover(core))
    old = tuple(core.state.segments)[:1]
    with replacer.being_cleaned() as cuts:
        replacer.check_unchanged(old, cuts)
        with core.lock, core.cutting_locked():
            pass
        with pytest.raises(CleaningAborted, match="was truncated"):
            replacer.check_unchanged(old, cuts)


def test_the_high_watermark_stays_within_the_log(tmp_path: Path) -> None:
    """LOG-27."""
    core = core_of(tmp_path)
    write(core, 3)
    mark = HighWatermark(core)
    assert [mark.update_high_watermark(offset) for offset in (2, 9, 0)] == [2, 3, 0]
    assert mark.maybe_update_high_watermark(0) is None


def test_the_reader_reads_until_the_log_is_closed(tmp_path: Path) -> None:
    """LOG-20."""
    core = core_of(tmp_path)
    write(core, 3)
    reader = LogReader(core, HighWatermark(core), None)
    assert reader.read(1, 1000).records.size == 200
    assert reader.readable_end("high_watermark").message_offset == 3
    core.health.close()
    with pytest.raises(LogClosed):
        reader.read(1, 1000)


def test_the_files_move_and_close(tmp_path: Path) -> None:
    """LOG-72."""
    core = core_of(tmp_path)
    write(core)
    _, flusher, roller = writer_of(core)
    files = LogFiles(core, flusher, roller, LogReader(core, HighWatermark(core), None))
    files.rename_dir("topic-0.x-delete")
    assert core.path == str(tmp_path / "topic-0.x-delete") and core.name == "topic-0.x-delete"
    files.close()
    assert core.health.closed and f"{1:020d}.snapshot" in names(core)


def engine_of(core: LogCore, hooks: dict[str, Any]) -> tuple[AppendEngine, list[Any]]:
    """An engine, and what it left to others."""
    left: list[Any] = []
    writer, flusher, _ = writer_of(core)

    def long_way(batch: ReadyBatch, epoch: int, now_ms: int) -> Any:
        left.append("write")
        return writer.append_ready(batch, epoch, now_ms)

    def flush_if_due() -> None:
        left.append("flush")
        flusher.flush_if_due()

    return AppendEngine(core, hooks, long_way, flush_if_due), left


def test_the_engine_leaves_to_others_what_takes_more_than_a_step(tmp_path: Path) -> None:
    core = core_of(tmp_path, internal_segment_bytes=250, flush_messages=2)
    hooks: dict[str, Any] = {}
    engine, left = engine_of(core, hooks)
    found = [engine.append_ready(sized_batch(100)) for _ in range(4)]
    assert [info.first_offset for info in found if info] == [0, 1, 2, 3]
    assert left == ["write", "flush", "write", "flush"]  # what opens a file, and what rolls; the others are due a flush
    assert core.state.recovery_point == 4 and [one.base_offset for one in core.state.segments] == [0, 2]
    hooks["append"] = (print,)
    assert engine.append_ready(sized_batch(100)) is None and core.state.log_end_offset == 4


def test_work_for_after_the_lock_is_done_then(tmp_path: Path) -> None:
    core = core_of(tmp_path)
    engine, _ = engine_of(core, {})
    seen: list[bool] = []
    for _ in range(2):
        core.after_unlock.append(lambda: seen.append(core.lock.locked()))
        engine.append_ready(sized_batch(100))
    assert seen == [False, False] and core.after_unlock == []


@pytest.mark.parametrize("prepare", [
    lambda core: core.health.poison(ValueError("x")),
    lambda core: setattr(core, "leader_epoch", 7),
], ids=["poisoned", "a new epoch"])
def test_the_engine_leaves_the_rest_to_others(tmp_path: Path, prepare: Callable[[LogCore], object]) -> None:
    core = core_of(tmp_path)
    engine, left = engine_of(core, {})
    write(core)
    prepare(core)
    try:
        engine.append_ready(sized_batch(100))
    except StorageError:
        pass
    assert left == ["write"]


class Slotted:
    __slots__ = ("cause", "records", "size")


class Plain:
    pass


@pytest.mark.parametrize("kind", [Slotted, Plain])
def test_fields_are_read_whatever_they_lie_in(tmp_path: Path, kind: type) -> None:
    """Compiled code reads slots by their place: objects without slots, and classes that change, give the same."""
    core = core_of(tmp_path)
    sizes = kind()
    sizes.size, sizes.records = 0, sizes
    core.active = sizes
    for _ in range(2):
        assert core.ready_locked() is core.state
    core.health = kind()
    with pytest.raises(AttributeError, match="cause"):
        core.ready_locked()
    core.health.cause = None  # type: ignore[misc]
    assert core.ready_locked() is core.state


def test_a_class_that_changes_is_looked_at_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = core_of(tmp_path)
    write(core)
    asked: list[object] = []
    for _ in range(2):
        assert core.ready_locked() is core.state
    monkeypatch.setattr(type(core.health), "cause", property(asked.append))
    assert core.ready_locked() is core.state and asked == [core.health]
