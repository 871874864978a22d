"""Opening the data directories of a server: what is refused before anything changes in them."""

import os
from pathlib import Path

import pytest

from kafkalog.errors import ConfigError
from kafkalog.manager.log_manager import LogManager
from kafkalog.server.node.store import NODE_FILE, open_store
from kafkalog.server.settings.config import ServerConfig

META = "version=1\ncluster.id=MkU3OEVBNTcwNTJENDM2Qg\nnode.id=4\n"


def test_a_cordoned_directory_that_is_none_of_the_server_is_refused(tmp_path: Path) -> None:
    """At the start and while it is open, as for directories without a server."""
    config = ServerConfig({"cordoned.log.dirs": str(tmp_path / "elsewhere")})
    with pytest.raises(ConfigError, match=r"cordoned\.log\.dirs names .*elsewhere, which is not a data directory here"):
        open_store([str(tmp_path / "a")], config)
    store = open_store([str(tmp_path / "a")], ServerConfig())  # nothing holds it, and nothing runs
    try:
        with pytest.raises(ConfigError, match=r"cordoned\.log\.dirs names /elsewhere"):
            store.manager.alter_config({"cordoned.log.dirs": "/elsewhere"})
        assert store.manager.config.cordoned_log_dirs == ()
        store.manager.alter_config({"cordoned.log.dirs": "*"})
        store.manager.alter_config({"cordoned.log.dirs": str(tmp_path / "a")})
    finally:
        store.close()


def test_the_number_of_another_node_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text(META)
    with pytest.raises(ConfigError, match=r"node\.id is 5, but the directories belong to node 4"):
        open_store([str(tmp_path)], ServerConfig({"node.id": 5}))
    assert sorted(os.listdir(tmp_path)) == ["meta.properties"]
    store = open_store([str(tmp_path)], ServerConfig())
    store.close()
    assert store.identity == (4, "MkU3OEVBNTcwNTJENDM2Qg")


def test_who_the_node_is_cannot_be_kept(tmp_path: Path) -> None:
    """Opened logs are closed again: the next opener can lock them."""
    for content in ("{}", "[" * 50_000):
        (tmp_path / NODE_FILE).write_text(content)
        with pytest.raises(Exception, match="has no valid identity of the node"):
            open_store([str(tmp_path)], ServerConfig())
    (tmp_path / NODE_FILE).write_text("[" * 100_000)
    with pytest.raises(Exception, match="at most 65536 expected .*too long for a file of its kind"):
        open_store([str(tmp_path)], ServerConfig())
    (tmp_path / NODE_FILE).unlink()
    LogManager.open([tmp_path]).close()
