"""With damage refused, a store or server leaves the damaged partition closed and unchanged, and serves the rest."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import ConfigError, CorruptRecord
from kafkalog.server.node.store import open_store
from kafkalog.server.settings.config import ServerConfig
from kafkalog.storage.names import CLEAN_SHUTDOWN_FILE
from kafkalog.types import TopicPartition
from tests.crash.disk import read_image
from tests.storage.test_kept import make_damaged


@pytest.fixture
def directories(tmp_path: Path) -> list[str]:
    """One data directory with a damaged partition that was not closed well, one with a sound partition."""
    (tmp_path / "hurt").mkdir()
    make_damaged(tmp_path / "hurt")
    kafkalog.open(tmp_path / "sound" / "bills-0", "a").close()
    return [str(tmp_path / "hurt"), str(tmp_path / "sound")]


def test_a_store_that_refuses(directories: list[str]) -> None:
    partition = Path(directories[0]) / "orders-0"
    before = read_image(partition)
    with kafkalog.open_dirs(directories, "a", on_damage="refuse") as dirs:
        assert isinstance(dirs.problems[TopicPartition("orders", 0)], CorruptRecord)
        with pytest.raises(CorruptRecord):
            dirs["orders", 0]
        assert dirs["bills", 0].append(b"served").first_offset == 0
    assert read_image(partition) == before
    assert not (partition.parent / CLEAN_SHUTDOWN_FILE).exists()
    with kafkalog.open_dirs(directories, "a") as dirs:
        assert dirs["orders", 0].end_offset == 15


def test_a_server_that_refuses(directories: list[str]) -> None:
    partition = Path(directories[0]) / "orders-0"
    before = read_image(partition)
    store = open_store(directories, ServerConfig({"kafkalog.on.damage": "refuse"}))
    try:
        assert list(store.manager.logs) == [TopicPartition("bills", 0)]
    finally:
        store.close()
    assert read_image(partition) == before and not (partition.parent / CLEAN_SHUTDOWN_FILE).exists()
    with pytest.raises(ConfigError, match=r"kafkalog\.on\.damage"):
        ServerConfig({"kafkalog.on.damage": "skip"})
