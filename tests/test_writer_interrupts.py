"""A Ctrl-C while a writer is created leaves no orphaned thread."""

import gc
import itertools
import threading
from functools import partial
from pathlib import Path

import pytest

import kafkalog
import kafkalog.log.accumulator
import kafkalog.storage.group_commit
from tests.interruptions import interrupted_at

PLACES = (kafkalog.log.accumulator.__file__, kafkalog.storage.group_commit.__file__, threading.__file__)


@pytest.mark.slow
@pytest.mark.in_memory
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_log_ends_the_threads_of_a_writer_that_nobody_got(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    for moment in itertools.count(1):
        log = kafkalog.open(tmp_path / "t-0", "a")
        ended = interrupted_at(moment, partial(log.writer, sync=5), PLACES)
        gc.collect()
        log.close()
        assert set(threading.enumerate()) <= before, f"after a Ctrl-C at moment {moment}"
        if ended is None:
            break
