"""`topics alter --partitions`: new partitions have the topic's settings, wherever they are known from."""

from pathlib import Path

import kafkalog
from kafkalog.dirs.create import add_partitions
from kafkalog.manager.known_topics import read_known_topics
from kafkalog.manager.topics import TOPICS_FILE
from tests.manager.metadata_files import topic_values, write_metadata

SETTINGS = {"cleanup.policy": "compact", "retention.ms": "-1"}


def test_a_broker_s_topic_keeps_its_settings_in_every_directory(tmp_path: Path) -> None:
    """The metadata is in one directory only; an entry with defaults in the other would let retention delete."""
    directories = [str(tmp_path / name) for name in ("one", "two")]
    for number, path in enumerate(directories):
        Path(path).mkdir()
        kafkalog.open(f"{path}/t-{number}", "a").close()
        Path(path, TOPICS_FILE).unlink()
    write_metadata(tmp_path / "one", topic_values("t", SETTINGS))
    assert add_partitions(directories, "t", 4) == 2
    for path in directories:
        assert read_known_topics([path]).settings_of("t") == SETTINGS
    with kafkalog.open_dirs(directories) as dirs:
        assert dirs.topics["t"].settings == SETTINGS and dirs.topics["t"].partitions == (0, 1, 2, 3)
