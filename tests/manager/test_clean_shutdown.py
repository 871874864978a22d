"""Content of the clean-shutdown marker, and its life with all partitions of a directory."""

import os
from pathlib import Path

import pytest

from kafkalog.config.topic import LogConfig
from kafkalog.errors import DirectoryLocked
from kafkalog.manager.clean_shutdown import agreed_epoch, parse_broker_epoch, read_broker_epoch
from kafkalog.manager.log_dir import LogDir
from kafkalog.manager.partition import NEW, Found, open_partition
from tests.manager.managers import MARKER, T0, T1, OpenManager, list_names


@pytest.mark.parametrize(
    ("content", "epoch"),
    [
        (b'{"version":0,"brokerEpoch":426}', 426), (b'{"version":7,"brokerEpoch":"426"}', 426),
        (b'{"version":0,"brokerEpoch":-1}', -1), (b'{"version":0}', -1), (b"", -1), (b"not json", -1),
        (b"[1]", -1), (b'{"brokerEpoch":null}', -1), (b"\xff\xfe", -1), (b"[" * 100_000, -1),
        (b'{"brokerEpoch":true}', -1), (b'{"brokerEpoch":1e400}', -1), (b'{"brokerEpoch":99999999999999999999}', -1),
    ],
)  # fmt: skip
def test_the_epoch_that_a_marker_tells(tmp_path: Path, content: bytes, epoch: int) -> None:
    """CKPT-7: whatever is in it, the marker means clean."""
    assert parse_broker_epoch(content) == epoch
    assert read_broker_epoch(str(tmp_path)) is None
    (tmp_path / MARKER).write_bytes(content)
    assert read_broker_epoch(str(tmp_path)) == epoch
    with OpenManager(tmp_path) as held:
        assert held.manager.previous_broker_epoch == epoch
        log_dir = held.manager.directories[0].log_dir
        assert log_dir is not None and log_dir.marker_found and MARKER not in list_names(tmp_path)


def test_an_epoch_counts_where_all_directories_tell_it(tmp_path: Path) -> None:
    """MGR-28."""
    assert [agreed_epoch(epochs) for epochs in ([4, 4], [4, 5], [4, -1], [4, None], [None], [], [4])] == [
        4, -1, -1, -1, -1, -1, 4,
    ]  # fmt: skip
    for name, epoch in (("a", 4), ("b", 5)):
        (tmp_path / name).mkdir()
        (tmp_path / name / MARKER).write_text(f'{{"version":0,"brokerEpoch":{epoch}}}')
    with OpenManager(tmp_path / "a", tmp_path / "b") as held:
        assert held.manager.previous_broker_epoch == -1


def test_the_marker_is_gone_while_a_partition_is_open_for_writing(tmp_path: Path) -> None:
    """CKPT-7: from before its files change until it is closed well; it is open once."""
    log_dir = LogDir.acquire(tmp_path)
    path = str(tmp_path / "t-0")
    log = open_partition(log_dir, path, LogConfig(), NEW, make=os.mkdir)
    log.close()
    log_dir.partition_closed("t-0", True)
    log_dir.release()
    assert MARKER in list_names(tmp_path)
    log_dir = LogDir.acquire(tmp_path)
    log = open_partition(log_dir, path, LogConfig(), Found(True))
    assert MARKER not in list_names(tmp_path)
    with pytest.raises(DirectoryLocked, match="t-0 is already open for writing in this process") as caught:
        open_partition(log_dir, path, LogConfig(), Found(True))
    assert caught.value.path == path
    log.close()
    log_dir.release()
    assert MARKER not in list_names(tmp_path), "no one said that it was closed well"


@pytest.mark.parametrize(("is_clean", "is_new"), [(True, False), (False, False), (True, True)])
def test_a_recovered_partition_is_vouched_for_as_a_new_one_is(tmp_path: Path, is_clean: bool, is_new: bool) -> None:
    """CKPT-7: of a log that was found clean the marker says only what an earlier marker said."""
    if not is_new:
        (tmp_path / "t-0").mkdir()
    log_dir = LogDir.acquire(tmp_path)
    found = Found(is_clean)
    open_partition(log_dir, str(tmp_path / "t-0"), LogConfig(), found, make=os.mkdir if is_new else None).close()
    log_dir.partition_closed("t-0", True)
    log_dir.release()
    assert (MARKER in list_names(tmp_path)) == (is_new or not is_clean)


def test_each_directory_is_clean_or_not_by_itself(tmp_path: Path) -> None:
    """CKPT-7, MGR-19: without a marker the logs of that directory are recovered, and it has one after the close."""
    a, b = tmp_path / "a", tmp_path / "b"
    with OpenManager(a, b) as held:
        held.create_log(T0, directory=a)
        held.create_log(T1, directory=b)
    (a / MARKER).unlink()
    data = (a / "t-0" / "00000000000000000000.log").read_bytes()
    (a / "t-0" / "00000000000000000000.log").write_bytes(data + data[:50])
    with OpenManager(a, b) as held:
        assert (a / "t-0" / "00000000000000000000.log").read_bytes() == data
        assert {log.log_end_offset for log in held.manager.logs.values()} == {3}
    assert MARKER in list_names(a) and MARKER in list_names(b)
