"""Source of a topic's settings: the topics file, a broker's metadata, or none."""

from pathlib import Path

import pytest

import kafkalog
from kafkalog.config.broker import BrokerConfig
from kafkalog.config.topic import LogConfig
from kafkalog.errors import CorruptRecord
from kafkalog.manager.cluster_metadata import METADATA_DIRECTORY
from kafkalog.manager.known_topics import KEEP_ALL, read_known_topics
from kafkalog.tools.retain.directories import retain
from kafkalog.types import TopicPartition
from tests.manager.metadata_files import BROKER, ID, TOPIC, metadata_value, setting, topic_values, write_metadata

NOW = 1_700_000_000_000
DAY = 86_400_000


def test_the_broker_s_settings_of_its_topics(tmp_path: Path) -> None:
    write_metadata(tmp_path, topic_values("t", {"retention.ms": "5", "segment.ms": "7"}))
    known = read_known_topics([str(tmp_path)])
    made = known.config_of("t", BrokerConfig(log_segment_bytes=1 << 20))
    assert (made.retention_ms, made.segment_ms, made.segment_bytes) == (5, 7, 1 << 20)
    assert known.settings_of("other") is None


def test_a_topic_without_settings_has_the_store_s(tmp_path: Path) -> None:
    write_metadata(tmp_path, topic_values("t", {}))
    known = read_known_topics([str(tmp_path)])
    assert known.config_of("t", BrokerConfig()) == LogConfig()
    assert known.has_known_retention("t", BrokerConfig())


def test_what_changed_and_what_went(tmp_path: Path) -> None:
    """The last record of a setting counts; a removed topic is unknown."""
    write_metadata(
        tmp_path,
        [
            *topic_values("t", {"retention.ms": "5", "segment.ms": "7"}),
            setting(TOPIC, "t", "retention.ms", "6"),
            setting(TOPIC, "t", "segment.ms", None),
            *topic_values("gone", {"retention.ms": "1"}, topic_id="OWaNnne1Th-s6Mc2ZfTCvg"),
            metadata_value("RemoveTopicRecord", topicId="OWaNnne1Th-s6Mc2ZfTCvg"),
        ],
    )
    known = read_known_topics([str(tmp_path)])
    assert known.settings_of("t") == {"retention.ms": "6"}
    assert known.settings_of("gone") is None


def test_a_setting_that_this_version_does_not_take_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"retention.ms": "5", "errors.deadletterqueue.x": "1", "segment.ms": "0"}
    write_metadata(tmp_path, topic_values("t", settings))
    assert read_known_topics([str(tmp_path)]).settings_of("t") == {"retention.ms": "5"}
    assert "ignoring the setting errors.deadletterqueue.x=1" in caplog.text
    assert "ignoring the setting segment.ms=0" in caplog.text


def test_dynamic_settings_of_the_broker(tmp_path: Path) -> None:
    """Those that every broker has, and those of the one; what means nothing here is passed over."""
    write_metadata(
        tmp_path,
        [
            setting(BROKER, "", "log.retention.ms", "5"),
            setting(BROKER, "", "num.io.threads", "5"),
            setting(BROKER, "7", "log.segment.bytes", "2000000"),
        ],
    )
    assert read_known_topics([str(tmp_path)]).store_settings() == {"log.retention.ms": "5"}
    (tmp_path / "meta.properties").write_text(f"version=1\nnode.id=7\ncluster.id={ID}\ndirectory.id={ID}\n")
    assert read_known_topics([str(tmp_path)]).store_settings() == {
        "log.retention.ms": "5", "log.segment.bytes": "2000000",
    }  # fmt: skip


def test_the_topics_file_counts_over_the_metadata(tmp_path: Path) -> None:
    write_metadata(tmp_path, topic_values("t", {"retention.ms": "5"}))
    kafkalog.open(tmp_path / "t-0", "a", retention_ms=9).close()
    assert read_known_topics([str(tmp_path)]).settings_of("t") == {"retention.ms": "9"}


def test_a_topic_of_nobody(tmp_path: Path) -> None:
    known = read_known_topics([str(tmp_path)])
    assert known.config_of("t", BrokerConfig()).overrides() == KEEP_ALL
    assert known.config_of("t", BrokerConfig(log_retention_minutes=1)).retention_ms == 60_000
    assert known.config_of("t", BrokerConfig(log_retention_bytes=-1)).retention_ms == 7 * DAY
    assert not known.has_known_retention("t", BrokerConfig(num_partitions=3))
    assert known.store_settings() == {}


def test_damaged_metadata_is_an_error(tmp_path: Path) -> None:
    """Settings that cannot be read are no reason to take defaults, and delete by them."""
    write_metadata(tmp_path, topic_values("t", {"retention.ms": "-1"}))
    path = tmp_path / METADATA_DIRECTORY / f"{0:020d}.log"
    whole = path.read_bytes()
    for damaged in (whole + whole[:-5] + b"\0", whole[:30] + bytes([whole[30] ^ 1]) + whole[31:]):
        path.write_bytes(damaged)
        with pytest.raises(CorruptRecord, match=r"its settings are unknown.*kafkalog repair"):
            read_known_topics([str(tmp_path)])


def test_replicas_bound_retention_by_the_checkpointed_high_watermark(tmp_path: Path) -> None:
    """LOG-41: with one copy the log end counts, whatever an old checkpoint says; with two what is replicated."""
    with kafkalog.open(tmp_path / "t-0", "a", message_timestamp_before_max_ms=2**63 - 1) as log:
        for _ in range(3):
            log.append([(b"k", b"v", NOW)])
            log.roll()
    (tmp_path / "kafkalog.topics.json").unlink()
    for replicas, bases in ((2, [0]), (1, [0, 1, 2])):
        (tmp_path / "replication-offset-checkpoint").write_text("0\n1\nt 0 1\n")
        write_metadata(tmp_path, topic_values("t", {"retention.ms": str(DAY)}, replicas=replicas))
        assert read_known_topics([str(tmp_path)]).has_replicas(TopicPartition("t", 0)) is (replicas > 1)
        assert [one.base_offset for one in retain(tmp_path, now_ms=NOW + 2 * DAY).due] == bases
    write_metadata(tmp_path, topic_values("t", {"retention.ms": str(DAY)}, replicas=2))
    assert [one.base_offset for one in retain(tmp_path, now_ms=NOW + 2 * DAY, apply=True).due] == [0]
    with kafkalog.open(tmp_path / "t-0") as log:
        assert (log.start_offset, log.end_offset, log.high_watermark) == (1, 3, 1)
