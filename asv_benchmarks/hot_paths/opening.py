"""Opening: a log to read and to append, after a crash, a directory of many; verifying, repairing, dumping one."""

import io
from collections.abc import Iterator
from pathlib import Path

import kafkalog
from asv_benchmarks.benchmarks.common import fill_log
from asv_benchmarks.hot_paths.path import Place, Work, hot_path
from asv_benchmarks.opening import make
from kafkalog.config.topic import LogConfig
from kafkalog.manager.log_manager import LogManager
from kafkalog.storage.log import UnifiedLog
from kafkalog.tools.dump.files import DumpOptions, dump_files
from kafkalog.tools.repair.directories import repair
from kafkalog.tools.verify.directories import verify


def _filled(place: Place, per_batch: int = 100) -> Path:
    path = place.directory / "hot-0"
    fill_log(path, per_batch, place.size(1 << 20, 64 << 20))
    return path


def recovered(path: Path) -> int:
    """Recover a log from its first offset and close it; return its bytes."""
    log = UnifiedLog.open(path, LogConfig(), had_clean_shutdown=False, recovery_threads=1)
    size = log.size
    log.close()
    return size


def checked(path: Path, *, deep: bool = False) -> int:
    """Verify every checksum and index of a log; return its bytes."""
    report = verify(path, threads=1, deep=deep)
    assert report.ok and not report.notes, str(report)
    return report.sums.bytes


@hot_path("opening", "open a log to read", item="log")
def open_read(place: Place) -> Iterator[Work]:
    path = _filled(place)

    def once() -> int:
        for _ in range(5):
            kafkalog.open(path).close()
        return 5

    yield Work(once)


@hot_path("opening", "open a log to append", item="log")
def open_append(place: Place) -> Iterator[Work]:
    path = _filled(place)

    def once() -> int:
        for _ in range(5):
            kafkalog.open(path, "a").close()
        return 5

    yield Work(once)


@hot_path("opening", "recover batches of 1", item="byte")
def recover_1(place: Place) -> Iterator[Work]:
    path = _filled(place, 1)
    yield Work(lambda: recovered(path))


@hot_path("opening", "recover batches of 100", item="byte")
def recover_100(place: Place) -> Iterator[Work]:
    path = _filled(place)
    yield Work(lambda: recovered(path))


@hot_path("opening", "start and stop a log manager", item="partition")
def manager(place: Place) -> Iterator[Work]:
    partitions = place.size(4, 1000)
    make(place.directory, partitions, place.size(3, 10))

    def once() -> int:
        LogManager.open([place.directory]).close()
        return partitions

    yield Work(once)


@hot_path("tools", "verify batches of 1", item="byte")
def verify_1(place: Place) -> Iterator[Work]:
    path = _filled(place, 1)
    yield Work(lambda: checked(path))


@hot_path("tools", "verify batches of 100", item="byte")
def verify_100(place: Place) -> Iterator[Work]:
    path = _filled(place)
    yield Work(lambda: checked(path))


@hot_path("tools", "verify deep", item="byte")
def verify_deep(place: Place) -> Iterator[Work]:
    path = _filled(place)
    yield Work(lambda: checked(path, deep=True))


@hot_path("tools", "plan a repair", item="plan")
def repair_plan(place: Place) -> Iterator[Work]:
    path = _filled(place)

    def once() -> int:
        repair(path, all_indexes=True)
        return 1

    yield Work(once)


def _dumped(paths: list[str], **options: bool) -> int:
    dump_files(paths, io.BytesIO(), DumpOptions(**options), err=io.BytesIO())
    return 1


@hot_path("tools", "dump text of records", item="file")
def dump_log(place: Place) -> Iterator[Work]:
    paths = [str(min(_filled(place).glob("*.log")))]
    yield Work(lambda: _dumped(paths, deep_iteration=True, print_data_log=True))


@hot_path("tools", "dump text of batches", item="file")
def dump_batches(place: Place) -> Iterator[Work]:
    paths = [str(min(_filled(place, 1).glob("*.log")))]
    yield Work(lambda: _dumped(paths))


@hot_path("tools", "dump text of indexes", item="file")
def dump_index(place: Place) -> Iterator[Work]:
    path = _filled(place)
    paths = [str(min(path.glob(f"*{suffix}"))) for suffix in (".index", ".timeindex")]
    yield Work(lambda: _dumped(paths))
