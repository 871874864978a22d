"""An import of a data directory refuses an export with missing files, and another topic of the same name."""

import shutil
from pathlib import Path

import pytest

import kafkalog
from kafkalog.errors import CorruptBackup, InconsistentTopicId
from kafkalog.exchange.kafka_dir import export_directory, import_directory


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """An export of two partitions, each with several segments."""
    with kafkalog.open_dirs(tmp_path / "data", "a") as dirs:
        dirs.create_topic("orders", 2, {"segment.bytes": "1000"})
        for number in range(2):
            for n in range(30):
                dirs["orders", number].append([b"%d" % n * 40])
    export_directory(tmp_path / "data", tmp_path / "out", committed=lambda _: {"g": {"orders": {0: 9}}})
    return tmp_path / "out"


def test_missing_segment_is_refused(exported: Path, tmp_path: Path) -> None:
    segment = sorted((exported / "orders-0").glob("*.log"))[1]
    for path in (exported / "orders-0").glob(f"{segment.stem}.*"):
        path.unlink()
    with pytest.raises(CorruptBackup, match="which was exported, is missing") as caught:
        import_directory(exported, tmp_path / "mine")
    assert caught.value.path == str(exported / "orders-0") and not list(tmp_path.glob("mine/orders*"))


@pytest.mark.parametrize("topics", [[], ["orders"]])
def test_missing_partition_is_refused(exported: Path, tmp_path: Path, topics: list[str]) -> None:
    shutil.rmtree(exported / "orders-1")
    with pytest.raises(CorruptBackup, match="orders-1, which was exported, is missing"):
        import_directory(exported, tmp_path / "mine", topics=topics)


def test_another_topic_is_not_resumed(exported: Path, tmp_path: Path) -> None:
    with kafkalog.open_dirs(tmp_path / "mine", "a") as dirs:
        dirs.create_topic("orders", 2, {})
    committed: list[object] = []
    with pytest.raises(InconsistentTopicId, match="belongs to the topic with id"):
        import_directory(exported, tmp_path / "mine", resume=True, commit=lambda _, groups: committed.append(groups))
    assert not committed


def test_what_recovery_kept_is_left_out(exported: Path, tmp_path: Path) -> None:
    entry = exported / "orders-0" / "kafkalog-kept" / "0-0"
    entry.mkdir(parents=True)
    (entry / "manifest.json").write_text("{}")
    assert len(import_directory(exported, tmp_path / "mine")) == 2
    assert not (tmp_path / "mine" / "orders-0" / "kafkalog-kept").exists()
