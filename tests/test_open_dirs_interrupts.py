"""A Ctrl-C at any moment of opening, changing or closing a store leaves no lock held and no topic half made."""

import gc
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.dirs.log_dirs import LogDirs
from kafkalog.manager.loading import LoadProgress
from tests.interruptions import interrupted_at

pytestmark = [
    pytest.mark.in_memory,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # what is interrupted is dropped
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]
_HERE = os.path.dirname(os.path.abspath(kafkalog.__file__))
FILES = tuple(
    os.path.join(_HERE, *name.split("/"))
    for name in ("dirs/log_dirs.py", "dirs/open.py", "dirs/writable.py", "manager/log_manager.py",
                 "manager/starting.py", "manager/job.py", "manager/directory_set.py", "util/scheduler.py")
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _what_other_files_left_is_not_gone_through() -> None:
    """By the collector, after each moment of a call."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    with kafkalog.open_dirs(tmp_path, "a") as dirs:
        dirs.create_topic("t")
        dirs["t", 0].append(b"v")
    return tmp_path


def interrupt_at_each(call: Callable[[], object], step: int, files: tuple[str, ...] = FILES) -> Iterator[bool]:
    """Yield, for every `step`-th moment of the call, whether it was interrupted."""
    for moment in itertools.count(1, step):
        ended = interrupted_at(moment, call, files)
        if ended is None:
            return
        yield ended


@pytest.mark.slow
def test_an_interrupted_opening_gives_the_directory_back(filled: Path) -> None:
    kept: list[LogDirs] = []
    hits = 0
    for interrupted in interrupt_at_each(lambda: kept.append(kafkalog.open_dirs(filled, "a")), 3):
        hits += interrupted
        while kept:
            kept.pop().close()
        gc.collect()
        with kafkalog.open_dirs(filled, "a") as dirs:
            assert dirs["t", 0].end_offset == 1
    assert hits > 10


def test_a_close_goes_to_its_end(filled: Path) -> None:
    """It is reported then: the marker of a clean shutdown is there."""
    for moment in itertools.count(1, 5):
        dirs = kafkalog.open_dirs(filled, "a")
        ended = interrupted_at(moment, dirs.close, FILES)
        if not dirs.closed:  # it came before there was anything to finish
            dirs.close()
        assert (filled / ".kafka_cleanshutdown").exists()
        if ended is None:
            break


def test_a_topic_is_made_whole_or_not_at_all(filled: Path) -> None:
    with kafkalog.open_dirs(filled, "a") as dirs:
        names = (f"n{number}" for number in itertools.count())
        for _ in interrupt_at_each(lambda: dirs.create_topic(next(names), 3), 7):
            made = dirs.topics
            assert {len(topic.partitions) for name, topic in made.items() if name != "t"} <= {3}
            for name in made.keys() - {"t"}:
                dirs.delete_topic(name)


def test_a_topic_is_deleted_whole_or_not_at_all(filled: Path) -> None:
    with kafkalog.open_dirs(filled, "a") as dirs:
        dirs.create_topic("d", 3)
        for _ in interrupt_at_each(lambda: dirs.delete_topic("d"), 7):
            if "d" in dirs.topics:
                assert len(dirs.topics["d"].partitions) == 3
            else:
                dirs.create_topic("d", 3)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_no_thread_loads_logs_any_more_once_an_interrupt_has_ended_the_opening(filled: Path, times: int) -> None:
    """However often it comes: what recovers a log cuts its files, and somebody else may have them by then."""
    ended, reported = threading.Event(), threading.Event()

    def interrupt(progress: LoadProgress) -> None:
        if not reported.is_set():
            reported.set()
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
                ended.wait(0.2)  # with an opening that ends, this thread would be left

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            kafkalog.open_dirs(filled, "a", progress=interrupt)
        names = [thread.name for thread in threading.enumerate()]
        assert reported.is_set() and not [name for name in names if name.startswith("kafkalog-")], names
    finally:
        ended.set()
        signal.signal(signal.SIGINT, before)
