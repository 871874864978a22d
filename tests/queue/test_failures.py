"""What a queue does if a partition of its topic fails: the records of the others are handed out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")

import kafkalog
from kafkalog._core.batch.scan import scan
from kafkalog.errors import CorruptRecord, UnknownTopicOrPartition
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.share.partition import Fetched, SharePartition
from kafkalog.sharing.fetched import read_fetched
from kafkalog.sharing.links import SharedTopic

SMALL: dict[str, Any] = {"log_cleaner_enable": False}


def break_size(path: Path) -> None:
    """Give the first batch of a log an absurd size."""
    with next(path.glob("*.log")).open("r+b") as segment:
        segment.seek(8)
        segment.write(b"\x00\x00\x00\x01")


def test_a_damaged_partition_hides_no_records_of_others(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 2)
        dirs["tasks", 1].append([b"lost"])
        break_size(tmp_path / "tasks-1")
        with dirs["tasks"].queue("workers") as queue:
            for value in (b"a", b"b"):
                dirs["tasks", 0].append([value])
                [item] = queue.acquire()
                assert (item.value, item.delivery_count) == (value, 1)
                item.ack()
            logged = [one.getMessage() for one in caplog.records if one.name == "kafkalog.sharing.member"]
            assert len(logged) == 1 and "tasks-1" in logged[0], logged
            with pytest.raises(CorruptRecord, match="tasks-1"):
                queue.acquire()


def test_a_topic_that_is_not_found_hides_no_acquired_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = SharePartition.fetch

    async def moved(self: SharePartition, *args: Any, **more: Any) -> Fetched:
        if self.place.partition == 1:
            return Fetched(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return await fetch(self, *args, **more)

    async def unknown(name: str) -> SharedTopic:
        raise UnknownTopicOrPartition(f"there is no topic {name}")

    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 2)
        dirs["tasks", 0].append([b"a"])
        with dirs["tasks"].queue("workers") as queue:
            worker: Any = queue._worker
            monkeypatch.setattr(SharePartition, "fetch", moved)
            monkeypatch.setattr(worker._links, "topic", unknown)
            [item] = queue.acquire()
            assert (item.value, item.delivery_count) == (b"a", 1)
            item.ack()
            with pytest.raises(UnknownTopicOrPartition, match="there is no topic tasks"):
                queue.acquire()


def test_records_behind_damage_in_an_answer_are_released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(data: bytes, rows: Any) -> Any:
        at = next((one.position for one in scan(data) if one.base_offset == 1), None)
        return read_fetched(data if at is None else data[: at + 8] + bytes(4) + data[at + 12 :], rows)

    with kafkalog.open_dirs(tmp_path, "a", **SMALL) as dirs:
        dirs.create_topic("tasks", 1)
        for value in (b"a", b"b", b"c"):
            dirs["tasks", 0].append([value])
        with dirs["tasks"].queue("workers") as queue:
            with monkeypatch.context() as patch:
                patch.setattr("kafkalog.sharing.member.read_fetched", broken)
                [first] = queue.acquire()
                assert (first.value, first.delivery_count) == (b"a", 1)
                first.ack()
                with pytest.raises(CorruptRecord, match="tasks-0") as caught:
                    queue.acquire()
                assert (caught.value.offset, caught.value.position) == (1, 0)
            assert [(one.value, one.delivery_count) for one in queue.acquire()] == [(b"b", 3), (b"c", 3)]
