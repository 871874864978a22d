"""High watermarks as a node of a replica set finds them when it starts. CKPT-6."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog.config.broker import BrokerConfig
from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.manager.log_manager import LogManager
from kafkalog.manager.opening import restore_high_watermarks
from kafkalog.server.node import store as node_store
from kafkalog.server.node.store import NODE_FILE
from kafkalog.server.settings.config import ServerConfig
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import HIGH_WATERMARK_FILE, OffsetCheckpoint
from tests.faults import FaultFS
from tests.server.replica.partitions import make_batch

KEYS = [TopicPartition("t", index) for index in range(4)]


def stored(*paths: Path) -> None:
    """Logs of five records each, in all of the directories; none says how far they are replicated."""
    with LogManager.open([str(path) for path in paths], BrokerConfig(log_cleaner_enable=False)) as store:
        for key in KEYS:
            for _ in range(5):
                store.get_or_create(key).append_as_leader(bytearray(make_batch()))
    for path in paths:
        (path / HIGH_WATERMARK_FILE).unlink()


def open_store(fs: FaultFS, *paths: Path) -> LogManager:
    return LogManager.open([str(path) for path in paths], BrokerConfig(log_cleaner_enable=False), fs=fs)


def test_each_directorys_file_is_read_once_for_all_its_logs(tmp_path: Path) -> None:
    """CKPT-6: read when the node joins its set; a log of which it says nothing, and a directory without it, begin at
    their start."""
    one, two = tmp_path / "one", tmp_path / "two"
    stored(one, two)
    in_one = sorted(key for key in KEYS if (one / f"{key}").is_dir())
    assert 0 < len(in_one) < len(KEYS)
    (one / HIGH_WATERMARK_FILE).write_text(f"0\n2\n{in_one[0].topic} {in_one[0].partition} 3\nt 99 9\n")
    fs = FaultFS()
    with open_store(fs, one, two) as store:
        fs.calls.clear()
        restore_high_watermarks(store)
        reads = [Path(call.path) for call in fs.calls if call.op == "open_read" and HIGH_WATERMARK_FILE in call.path]
        assert sorted(reads) == [one / HIGH_WATERMARK_FILE, two / HIGH_WATERMARK_FILE]
        assert {key: log.high_watermark for key, log in store.logs.items()} == {
            key: 3 if key == in_one[0] else 0 for key in KEYS
        }
        assert all(log.log_end_offset == 5 for log in store.logs.values())


def test_a_mark_beyond_the_end_is_the_end(tmp_path: Path) -> None:
    """PART-12."""
    stored(tmp_path)
    (tmp_path / HIGH_WATERMARK_FILE).write_text("0\n1\nt 0 9\n")
    with open_store(FaultFS(), tmp_path) as store:
        restore_high_watermarks(store)
        assert store.logs[KEYS[0]].high_watermark == 5


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    """CKPT-6."""
    stored(tmp_path)
    (tmp_path / HIGH_WATERMARK_FILE).write_text("0\n1\nt 0 3\n")
    fs = FaultFS()
    with open_store(fs, tmp_path) as store:
        fs.fail("open_read", path=HIGH_WATERMARK_FILE, times=1)
        with pytest.raises(StorageError):
            restore_high_watermarks(store)
        (tmp_path / HIGH_WATERMARK_FILE).write_text("0\n1\nt 0 3 of 5\n")
        with pytest.raises(CorruptCheckpoint):
            restore_high_watermarks(store)
        (tmp_path / HIGH_WATERMARK_FILE).unlink()


@pytest.mark.parametrize(("damaged", "mark"), [(NODE_FILE, 3), (HIGH_WATERMARK_FILE, 0)])
def test_a_start_that_fails_raises_no_high_watermark(tmp_path: Path, damaged: str, mark: int) -> None:
    """Its close writes them, and the log ends would let consumers read what no other node may have."""
    stored(tmp_path)
    (tmp_path / HIGH_WATERMARK_FILE).write_text("0\n4\n" + "".join(f"t {key.partition} 3\n" for key in KEYS))
    (tmp_path / damaged).write_text("damaged")
    config = ServerConfig({"node.id": 1, "kafkalog.replicas": "1@host1:9091,2@host2:9092,3@host3:9093"})
    with pytest.raises(CorruptCheckpoint, match=damaged):
        node_store.open_store([str(tmp_path)], config)
    assert OffsetCheckpoint(tmp_path / HIGH_WATERMARK_FILE).read() == dict.fromkeys(KEYS, mark)
