"""The file of leader epochs follows the log; if it cannot be written, no append is lost or reported as failed."""

import errno
import logging
from pathlib import Path

import pytest

from kafkalog.errors import StorageError
from tests.faults import FaultFS
from tests.storage.logs import append_batches, log, run


def test_an_append_that_is_done_does_not_fail_for_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A caller that repeats a raised append would write twice. The next append or flush writes the file."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    rule = fs.fail("open", "pwrite", path="leader-epoch-checkpoint", code=errno.ENOSPC)
    with caplog.at_level(logging.WARNING):
        append_batches(a_log, times=3)
    assert a_log.log_end_offset == 3 and rule.fired >= 1
    assert "leader-epoch-checkpoint" in caplog.text
    with pytest.raises(StorageError, match="leader-epoch-checkpoint") as failure:
        a_log.flush()
    assert failure.value.errno == errno.ENOSPC
    fs.heal()
    append_batches(a_log)
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    a_log.close()


@pytest.mark.parametrize("flush", [True, False])
def test_a_flush_or_a_close_writes_it_though_no_data_is_new(tmp_path: Path, flush: bool) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    fs.fail("open", "pwrite", path="leader-epoch-checkpoint", code=errno.EIO)
    append_batches(a_log)
    with pytest.raises(StorageError):
        a_log.flush()
    fs.heal()
    a_log.flush() if flush else a_log.close()
    assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"
    a_log.close()


def test_a_close_that_cannot_write_it_was_not_a_good_one(tmp_path: Path) -> None:
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    fs.fail("open", "pwrite", path="leader-epoch-checkpoint", code=errno.EIO)
    append_batches(a_log)
    with pytest.raises(StorageError, match="leader-epoch-checkpoint"):
        a_log.close()
    assert a_log.closed


@pytest.mark.parametrize("rolls", [False, True])
@pytest.mark.parametrize("first", [3, 30])
def test_epochs_of_batches_that_could_not_be_written_have_not_begun(tmp_path: Path, rolls: bool, first: int) -> None:
    """A follower that reports one would count as having everything from before it."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs, high_watermark_follows_end=False, **({"internal_segment_bytes": 500} if rolls else {}))
    a_log.append_as_follower(run(0, 3, epoch=1), 1)
    fs.fail("pwrite", path=".log", code=errno.ENOSPC)
    batches = run(first, 2, epoch=2) + run(first + 2, 2, epoch=3)
    for _ in range(2):
        with pytest.raises(StorageError):
            a_log.append_as_follower(batches, 3)
        assert a_log.leader_epochs == ((1, 0),) and a_log.log_end_offset <= first
        assert (tmp_path / "topic-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n1 0\n"
    fs.heal()
    a_log.append_as_follower(batches, 3)
    assert a_log.leader_epochs == ((1, 0), (2, first), (3, first + 2)) and a_log.state.leader_epoch == 3
    a_log.close()
