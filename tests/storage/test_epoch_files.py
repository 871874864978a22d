"""The leader epochs of a log and their file: what an append assigns, what is written when, damage (checklist EPOCH)."""

from pathlib import Path

import pytest

from kafkalog.errors import CorruptCheckpoint, IllegalArgument
from kafkalog.storage.leader_epoch import LeaderEpochCache, read_epochs
from kafkalog.storage.log import UnifiedLog
from tests.builder import message_v1
from tests.faults import FaultFS
from tests.storage.logs import config, log, sized_batch

FILE = "leader-epoch-checkpoint"


def append_epochs(a_log: UnifiedLog, *epochs: int) -> None:
    """One append of a batch for each epoch, from the log end on."""
    end = a_log.log_end_offset
    data = b"".join(sized_batch(100, base=end + at, epoch=epoch) for at, epoch in enumerate(epochs))
    a_log.append_as_follower(data, max(epochs))


def test_a_new_epoch_begins_at_the_first_offset_of_its_batch(tmp_path: Path) -> None:
    """LOG-59: as a leader and as a follower, whose buffer may hold several."""
    a_log = log(tmp_path)
    a_log.append_as_leader(bytearray(sized_batch(100, 3)), leader_epoch=1)
    a_log.append_as_leader(bytearray(sized_batch(100, 3)), leader_epoch=1)
    a_log.append_as_leader(bytearray(sized_batch(100, 3)), leader_epoch=4)
    assert a_log.leader_epochs == ((1, 0), (4, 6))
    append_epochs(a_log, 4, 6, 6, 9)
    assert a_log.leader_epochs == ((1, 0), (4, 6), (6, 10), (9, 12))
    a_log.close()
    assert read_epochs(tmp_path / "topic-0") == ((1, 0), (4, 6), (6, 10), (9, 12))


def test_a_followers_batch_of_an_old_format_ends_what_was_known(tmp_path: Path) -> None:
    """LOG-59: v0 and v1 carry no epoch; the next v2 batch starts one, whatever was known before."""
    a_log = log(tmp_path)
    append_epochs(a_log, 3, 5)
    a_log.append_as_follower(message_v1(2, b"old"), 5)
    assert a_log.leader_epochs == () and (tmp_path / "topic-0" / FILE).read_text() == "0\n0\n"
    append_epochs(a_log, 4)
    assert a_log.leader_epochs == ((4, 3),)
    mixed = sized_batch(100, base=4, epoch=6) + message_v1(5, b"old") + sized_batch(100, base=6, epoch=6)
    a_log.append_as_follower(mixed, 6)
    assert a_log.leader_epochs == ((6, 6),)
    a_log.append_as_follower(sized_batch(100, base=7, epoch=7) + message_v1(8, b"old"), 7)
    assert a_log.leader_epochs == ()
    append_epochs(a_log, 7)
    assert a_log.leader_epochs == ((7, 9),)
    a_log.close()


def test_a_leader_converts_an_old_format_and_keeps_its_epochs(tmp_path: Path) -> None:
    """LOG-59: what is written is v2."""
    a_log = log(tmp_path)
    a_log.append_as_leader(bytearray(sized_batch(100)), leader_epoch=2)
    a_log.append_as_leader(bytearray(message_v1(0, b"old")), leader_epoch=2)
    assert a_log.leader_epochs == ((2, 0),)
    a_log.close()


def test_a_followers_batch_without_epoch_is_refused(tmp_path: Path) -> None:
    """LOG-82: nothing is written, the batches before it neither."""
    a_log = log(tmp_path)
    data = sized_batch(100, base=0, epoch=1) + sized_batch(100, base=1, epoch=-1)
    with pytest.raises(IllegalArgument, match="no leader epoch, which a follower requires"):
        a_log.append_as_follower(data, 1)
    assert (a_log.log_end_offset, a_log.size, a_log.leader_epochs) == (0, 0, ())
    a_log.append_as_follower(data, None)  # the copy of a log, which has such batches after a clean of older formats
    assert (a_log.log_end_offset, a_log.leader_epochs) == (2, ((1, 0),))
    a_log.close()


def test_an_empty_cache_knows_no_epoch(tmp_path: Path) -> None:
    """EPOCH-9: no earliest, none before and none after; clearing clears the file."""
    epochs = LeaderEpochCache.open(tmp_path)
    assert (epochs.entries, epochs.latest_epoch, epochs.epoch_for(0)) == ((), -1, -1)
    assert epochs.end_offset_for(3, 10) == (-1, -1)
    epochs.assign(3, 0)
    epochs.write_if_changed()
    epochs.clear()
    assert epochs.entries == () and epochs.has_changed
    epochs.write_if_changed()
    assert (tmp_path / FILE).read_text() == "0\n0\n" and LeaderEpochCache.open(tmp_path).entries == ()


@pytest.mark.parametrize("content", ["1\n0\n", "0\n2\n1 5\n", "0\n1\n1 five\n", "0\n1\n-1 5\n", "junk"])
def test_a_file_that_cannot_be_read_stops_the_opening(tmp_path: Path, content: str) -> None:
    """EPOCH-10."""
    log(tmp_path).close()
    path = tmp_path / "topic-0" / FILE
    path.write_text(content)
    with pytest.raises(CorruptCheckpoint, match="malformed checkpoint, line") as caught:
        UnifiedLog.open(tmp_path / "topic-0", config())
    assert caught.value.path == str(path) and path.read_text() == content
    assert "repair --checkpoints --apply" in str(caught.value.hint)


def test_many_epochs_are_one_write(tmp_path: Path) -> None:
    """EPOCH-11: of ten that rise none is removed; one that goes back removes those it contradicts."""
    fs = FaultFS()
    a_log = log(tmp_path, fs=fs)
    fs.calls.clear()
    append_epochs(a_log, *range(10))
    assert a_log.leader_epochs == tuple((n, n) for n in range(10))
    assert [Path(call.path).name for call in fs.named("rename")] == [FILE + ".tmp"]
    a_log.close()
    epochs = LeaderEpochCache.open(tmp_path / "topic-0")
    epochs.assign(4, 20)
    assert epochs.entries == ((0, 0), (1, 1), (2, 2), (3, 3), (4, 20))


def test_a_negative_end_cuts_nothing(tmp_path: Path) -> None:
    """EPOCH-5."""
    epochs = LeaderEpochCache.open(tmp_path)
    epochs.assign(1, 0)
    epochs.truncate_from_end(-1)
    assert epochs.entries == ((1, 0),)
    epochs.truncate_from_end(0)
    assert epochs.entries == ()


@pytest.mark.parametrize("clean", [True, False])
def test_a_missing_file_is_rebuilt_from_the_batches(
    tmp_path: Path, clean: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An append would begin again at epoch 0, below that of its log's batches."""
    a_log = log(tmp_path)
    append_epochs(a_log, 3, 3, 5)
    a_log.roll()
    append_epochs(a_log, 5, 8)
    a_log.close()
    (tmp_path / "topic-0" / FILE).unlink()
    again = UnifiedLog.open(tmp_path / "topic-0", config(), recovery_point=5, had_clean_shutdown=clean)
    assert again.leader_epochs == ((3, 0), (5, 2), (8, 4)) == read_epochs(tmp_path / "topic-0")
    assert f"{FILE} was missing" in caplog.text
    again.append_as_leader(bytearray(sized_batch(100)))
    assert again.leader_epochs[-1] == (8, 4)
    again.close()


def test_a_missing_file_is_rebuilt_without_what_old_formats_ended(tmp_path: Path) -> None:
    """LOG-59, also with a log start inside an epoch; a log without epochs gets its empty file."""
    a_log = log(tmp_path)
    append_epochs(a_log, 3)
    a_log.append_as_follower(message_v1(1, b"old"), 5)
    path = tmp_path / "topic-0"
    a_log.close()
    (path / FILE).unlink()
    again = UnifiedLog.open(path, config())
    assert again.leader_epochs == () and (path / FILE).read_text() == "0\n0\n"
    append_epochs(again, 4, 4, 6)
    again.close()
    (path / FILE).unlink()
    once_more = UnifiedLog.open(path, config(), log_start_offset=3)
    assert once_more.leader_epochs == ((4, 3), (6, 4))
    once_more.close()
