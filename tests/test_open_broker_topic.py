"""A topic that only a broker's metadata knows, opened for writing: it has the settings that it has at the broker."""

import logging
from pathlib import Path

import pytest

import kafkalog
from kafkalog.manager.cluster_metadata import METADATA_DIRECTORY
from kafkalog.manager.topics import TOPICS_FILE
from tests.manager.metadata_files import topic_values, write_metadata

SETTINGS = {"message.timestamp.type": "LogAppendTime", "segment.ms": "7"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A partition whose topic has no entry in the topics file, beside a broker's metadata."""
    kafkalog.open(tmp_path / "t-0", "a").close()
    (tmp_path / TOPICS_FILE).unlink()
    write_metadata(tmp_path, topic_values("t", SETTINGS))
    return tmp_path


def test_the_broker_s_settings_count(data: Path) -> None:
    with kafkalog.open(data / "t-0", "a") as log:
        assert log.settings == SETTINGS
    with kafkalog.open(data / "t-0", "a", segment_ms=9) as log:
        assert log.settings == SETTINGS | {"segment.ms": "9"}
    assert not (data / TOPICS_FILE).exists()


def test_a_partition_that_is_made_there_has_them_too(data: Path) -> None:
    for _ in range(2):
        with kafkalog.open(data / "t-1", "a") as log:
            assert log.settings == SETTINGS


def test_metadata_that_cannot_be_read_is_told_and_the_defaults_count(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = next((data / METADATA_DIRECTORY).glob("*.log"))
    path.write_bytes(path.read_bytes()[:-1])
    with caplog.at_level(logging.WARNING), kafkalog.open(data / "t-0", "a") as log:
        assert log.settings == {}
    assert "t-0: cannot read the topic's settings" in caplog.text
