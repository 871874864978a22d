"""Dead letters of share groups (KIP-1191): what is written of records that are rejected or delivered too often."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import kafkalog
from kafkalog._core.batch.encode import encode_batch
from kafkalog.errors import InvalidTopic, NotEnoughReplicas
from kafkalog.server.share import dead_letters
from kafkalog.types import TopicPartition
from tests.server.looping import in_loop
from tests.server.nodes import call, node_for
from tests.server.share.sharing import (
    ACCEPT,
    REJECT,
    RELEASE,
    SMALL,
    Member,
    joined,
    offsets,
    produce,
    produce_values,
    set_group,
)
from tests.server.share.test_share_partitions import stored

LETTERS: Final = "dlq.t"
ENABLED: Final = {"errors.deadletterqueue.group.enable": "true"}
REJECTED, EXCEEDED = "Offset rejected by client.", "Offset delivery count exceeded the threshold."


async def with_letters(node: Any, topic: str = LETTERS, **more: str) -> Member:
    """A member of a group that has dead letters."""
    member = await joined(node)
    await set_group(node, errors_deadletterqueue_topic_name=topic, share_delivery_count_limit="2", **more)
    return member


async def until_archived(node: Any, lag: int) -> None:
    while (await offsets(node)).get(0, (0, None))[1] != lag:  # none while a new node loads its groups
        await asyncio.sleep(0)


def letters(path: Path, partition: int = 0) -> list[tuple[int, str, str]]:
    """Offset, count and message of the letters, each of which is about partition 0 of topic t and group g."""
    found = []
    with kafkalog.open(path / f"{LETTERS}-{partition}") as log:
        for record in log.records():
            headers = {name.removeprefix("__dlq.errors."): text.decode() for name, text in record.headers}
            assert (headers["topic"], headers["partition"], headers["group"]) == ("t", "0", "g")
            found.append((int(headers["offset"]), headers["delivery.count"], headers["message"]))
    return sorted(found)


def contents(path: Path) -> list[tuple[bytes | None, bytes | None]]:
    with kafkalog.open(path / f"{LETTERS}-0") as log:
        return sorted((record.key, record.value) for record in log.records())


@in_loop
async def test_what_is_rejected_or_comes_too_often_has_a_letter(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create(LETTERS, 1, ENABLED)
        member = await with_letters(node)
        await produce(node, 6)
        assert await member.acquired() == [(0, 5, 1)]
        assert await member.complete((0, 1, REJECT), (2, 2, ACCEPT), (3, 3, 0), (4, 5, RELEASE)) == 0
        await until_archived(node, 2)
        assert await member.acquired() == [(4, 5, 2)]
        assert await member.complete((4, 4, REJECT), (5, 5, RELEASE)) == 0
        await until_archived(node, 0)
        assert await member.acquired() == []
    assert letters(tmp_path) == [(0, "1", REJECTED), (1, "1", REJECTED), (4, "2", REJECTED), (5, "2", EXCEEDED)]
    assert contents(tmp_path) == [(None, None)] * 4


@in_loop
async def test_records_are_copied_in_parts_if_the_group_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "_MOST_BYTES", 1000)
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create(LETTERS, 1, ENABLED)
        member = await with_letters(node, errors_deadletterqueue_copy_record_enable="true")
        values = [b"%d" % number * 300 for number in range(9)]
        await produce_values(node, values)
        assert await member.acquired() == [(0, 8, 1)]
        assert await member.complete((0, 8, REJECT)) == 0
        await until_archived(node, 0)
        assert node.replicas.partition(LETTERS, 0).log.log_end_offset == 9
    assert [value for _, value in contents(tmp_path)] == values
    with kafkalog.open(tmp_path / f"{LETTERS}-0") as log:
        sizes = [one.size for one in log.batches()]
        assert len(sizes) > 2 and max(sizes) <= 1000


@in_loop
async def test_copies_are_those_of_the_range_as_far_as_memory_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        whole = [(None if n == 4 else b"%d" % n * 100, None if n == 5 else b"%d" % n * 200) for n in range(8)]
        await node.topics.create("kept", 1)
        log = node.replicas.partition("kept", 0).log
        for rows in (whole[:4], whole[4:]):
            node.replicas.append_now(TopicPartition("kept", 0), encode_batch(rows, timestamp=0), "client")

        def read(first: int, last: int) -> tuple[list[int], int]:
            found, end = dead_letters._read(log, first, last)
            assert all(found[offset] == whole[offset] for offset in found)
            return list(found), end

        assert read(1, 6) == ([1, 2, 3, 4, 5, 6], 6)
        assert read(7, 7) == ([7], 7)
        for limit, expected in ((900, [0, 1, 2, 3]), (899, [0, 1, 2]), (0, [0])):
            monkeypatch.setattr(dead_letters, "_MOST_BYTES", limit)
            assert read(0, 7) == (expected, expected[-1])
        monkeypatch.setattr(dead_letters, "_MOST_BYTES", 599)
        assert read(4, 7) == ([4, 5, 6], 6), "200 and 100 bytes of those without key or value"
        monkeypatch.setattr(dead_letters, "_MOST_BYTES", 1 << 20)
        await node.replicas.delete_records(TopicPartition("kept", 0), 2)
        assert read(0, 3) == ([2, 3], 3), "nothing of what was deleted, also in a batch that is there"
        assert read(0, 1) == ([], 1)


@in_loop
async def test_a_record_that_is_too_large_for_a_letter_is_not_copied_and_others_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create(LETTERS, 1, ENABLED | {"max.message.bytes": "1000"})
        member = await with_letters(node, errors_deadletterqueue_copy_record_enable="true")
        values = [b"first", b"large" * 300, b"last"]
        await produce_values(node, values)
        assert await member.acquired() == [(0, 2, 1)]
        assert await member.complete((0, 2, REJECT)) == 0
        await until_archived(node, 0)
    assert [offset for offset, _, _ in letters(tmp_path)] == [0, 1, 2]
    with kafkalog.open(tmp_path / f"{LETTERS}-0") as log:
        assert [record.value for record in log.records()] == [b"first", None, b"last"]
    [logged] = [text for text in caplog.messages if "too large for a copy" in text]
    assert logged.startswith("a record of t-0 from 0 on is too large for a copy in dlq.t-0: ")


@in_loop
async def test_letters_of_records_that_cannot_be_read_have_no_copies(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create(LETTERS, 1, ENABLED)
        member = await with_letters(node, errors_deadletterqueue_copy_record_enable="true")
        await produce(node, 2)
        assert await member.acquired() == [(0, 1, 1)]
        with (tmp_path / "t-0" / f"{0:020}.log").open("r+b") as segment:
            segment.seek(-1, os.SEEK_END)
            last = segment.read(1)
            segment.seek(-1, os.SEEK_END)
            segment.write(bytes([last[0] ^ 1]))
        assert await member.complete((0, 1, REJECT)) == 0
        await until_archived(node, 0)
    assert letters(tmp_path) == [(0, "1", REJECTED), (1, "1", REJECTED)]
    assert contents(tmp_path) == [(None, None)] * 2
    [logged] = [text for text in caplog.messages if "cannot be copied" in text]
    assert logged.startswith("records of t-0 from 0 on cannot be copied to dead letters: ")


PROBLEMS: Final[dict[str, tuple[str, dict[str, str] | None, str]]] = {
    "no topic": (LETTERS, None, "DLQ topic does not exist and auto create is disabled on cluster"),
    "not enabled": (LETTERS, {}, "DLQ is not enabled on configured DLQ topic"),
    "another prefix": ("letters", ENABLED, "Configured DLQ topic name does not comply with the prefix dlq."),
    "too large": (LETTERS, ENABLED | {"max.message.bytes": "50"}, "bytes"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_records_are_archived_without_a_letter_that_cannot_be_written(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    topic, settings, message = PROBLEMS[name]

    @in_loop
    async def run() -> None:
        async with node_for(tmp_path, **SMALL) as node:
            if settings is not None:
                await node.topics.create(topic, 1, settings)
            member = await with_letters(node, topic)
            await produce(node, 2)
            assert await member.acquired() == [(0, 1, 1)]
            assert await member.complete((0, 1, REJECT)) == 0
            await until_archived(node, 0)
            found = node.topics.get(topic)
            assert found is None or node.replicas.partition(topic, 0).log.log_end_offset == 0

    run()
    [line] = [one.getMessage() for one in caplog.records if "no dead letters" in one.getMessage()]
    assert "offsets 0 to 1" in line and message in line


TOO_FEW: Final = NotEnoughReplicas("one of two")


@pytest.mark.parametrize(
    ("errors", "tries", "is_written"),
    [([TOO_FEW] * 4, 5, True), ([TOO_FEW] * 5, 5, False), ([InvalidTopic("no retry helps")], 1, False)],
)
@in_loop
async def test_a_letter_is_written_once_its_partition_takes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
    errors: list[Exception], tries: int, is_written: bool,
) -> None:  # fmt: skip
    monkeypatch.setattr(dead_letters, "BACKOFF_S", 0.0)
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create(LETTERS, 1, ENABLED)
        member = await with_letters(node)
        await produce(node, 1)
        assert await member.acquired() == [(0, 0, 1)]
        append, refusals, tried = node.replicas.append_now, list(errors), []

        def append_now(place: TopicPartition, *more: Any, **named: Any) -> Any:
            if place.topic == LETTERS:
                tried.append(place)
                if refusals:
                    raise refusals.pop()
            return append(place, *more, **named)

        node.replicas.append_now = append_now
        assert await member.complete((0, 0, REJECT)) == 0
        await until_archived(node, 0)
    assert len(tried) == tries
    assert letters(tmp_path) == ([(0, "1", REJECTED)] if is_written else [])
    assert any("no dead letters" in text for text in caplog.messages) != is_written


@in_loop
async def test_the_topic_is_created_where_that_is_allowed(tmp_path: Path) -> None:
    more = {"errors_deadletterqueue_auto_create_topics_enable": True, "errors_deadletterqueue_topic_name_prefix": ""}
    async with node_for(tmp_path, **SMALL, **more, num_partitions=3) as node:
        member = await with_letters(node, "letters")
        await produce(node, 1)
        await produce(node, 1, partition=1)
        rows = await member.fetch(places=(0, 1))
        assert len(rows) == 2
        await member.fetch((0, 0, REJECT), places=(0, 1))
        await until_archived(node, 0)
        while (await offsets(node))[1][1]:
            await asyncio.sleep(0)
        own = node.topics.own_settings("letters")
        assert own == ENABLED | {"message.timestamp.type": "LogAppendTime"}
        ends = [node.replicas.partition("letters", index).log.log_end_offset for index in range(3)]
        assert ends == [1, 1, 0], "in the partition of the same number"


@contextmanager
def letters_are_never_written(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    with monkeypatch.context() as patched:
        patched.setattr(dead_letters, "write", never)
        yield


@in_loop
async def test_letters_that_a_stop_cut_short_follow_after_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with letters_are_never_written(monkeypatch):
        async with node_for(tmp_path, **SMALL) as node:
            await node.topics.create(LETTERS, 1, ENABLED)
            member = await with_letters(node)
            await produce(node, 2)
            assert await member.acquired() == [(0, 1, 1)]
            assert await member.complete((0, 0, REJECT), (1, 1, RELEASE)) == 0
            assert await member.acquired() == [(1, 1, 2)]
            await member.fetch(epoch=-1)  # releases the last delivery
            assert (await offsets(node))[0] == (0, 2)
    states = [(row["firstOffset"], row["deliveryState"]) for _, one in stored(tmp_path) for row in one["stateBatches"]]
    assert states[-3:] == [(0, 3), (1, 0), (1, 3)]
    async with node_for(tmp_path, **SMALL) as node:
        member.node, member.epoch = node, 0
        assert await member.acquired() == [], "nothing is delivered again"
        await until_archived(node, 0)
    assert letters(tmp_path) == [(0, "1", REJECTED), (1, "2", EXCEEDED)]


@in_loop
async def test_members_that_come_at_once_after_a_start_do_not_double_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with letters_are_never_written(monkeypatch):
        async with node_for(tmp_path, **SMALL) as node:
            await node.topics.create(LETTERS, 1, ENABLED)
            member = await with_letters(node)
            await produce(node, 2)
            assert await member.acquired() == [(0, 1, 1)]
            assert await member.complete((0, 1, REJECT)) == 0
    async with node_for(tmp_path, **SMALL) as node:
        members = [Member(node, name, number=number) for number, name in enumerate("abc", 6)]
        found = await asyncio.gather(*(one.acquired() for one in members))
        assert found == [[], [], []]
        await until_archived(node, 0)
    assert letters(tmp_path) == [(0, "1", REJECTED), (1, "1", REJECTED)]


@in_loop
async def test_there_are_none_without_the_level_of_the_feature(tmp_path: Path) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        update = [{"feature": "share.version", "max_version_level": 1, "upgrade_type": 3}]
        tree = {"timeout": 5000, "feature_updates": update, "validate_only": False}
        assert (await call(node, "update_features", 1, tree)).error_code == 0
        await node.topics.create(LETTERS, 1, ENABLED)
        member = await with_letters(node)
        await produce(node, 1)
        assert await member.acquired() == [(0, 0, 1)]
        assert await member.complete((0, 0, REJECT)) == 0
        assert (await offsets(node))[0] == (0, 0)
    assert letters(tmp_path) == []


async def set_offsets(node: Any, name: str) -> int:
    """Let group g begin at offset 1 of partition 0, or delete its offsets or the group; return the error code."""
    topics = [{"topic_name": "t", "partitions": [{"partition_index": 0, "start_offset": 1}]}]
    if name == "alter":
        answer = await call(node, "alter_share_group_offsets", 0, {"group_id": "g", "topics": topics})
        return int(answer.error_code)
    if name == "delete":
        tree = {"group_id": "g", "topics": [{"topic_name": "t"}]}
        return int((await call(node, "delete_share_group_offsets", 0, tree)).error_code)
    return int((await call(node, "delete_groups", 2, {"groups_names": ["g"]})).results[0].error_code)


@pytest.mark.parametrize("name", ["alter", "delete", "delete the group"])
@in_loop
async def test_letters_in_progress_are_written_before_the_state_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    async with node_for(tmp_path, **SMALL) as node:
        await node.topics.create(LETTERS, 1, ENABLED)
        member = await with_letters(node)
        await produce(node, 2)
        assert await member.acquired() == [(0, 1, 1)]
        may_write, write = asyncio.Event(), dead_letters.write

        async def waiting(*given: Any) -> None:
            await may_write.wait()
            await write(*given)

        monkeypatch.setattr(dead_letters, "write", waiting)
        assert await member.complete((0, 0, REJECT)) == 0
        await member.fetch(epoch=-1)
        await member.beat(-1, None)
        changing = asyncio.create_task(set_offsets(node, name))
        done, _ = await asyncio.wait([changing], timeout=0.02)
        assert not done
        may_write.set()
        assert await changing == 0
    assert letters(tmp_path) == [(0, "1", REJECTED)]


@in_loop
async def test_letters_that_a_stop_cut_short_are_written_before_offsets_are_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with letters_are_never_written(monkeypatch):
        async with node_for(tmp_path, **SMALL) as node:
            await node.topics.create(LETTERS, 1, ENABLED)
            member = await with_letters(node)
            await produce(node, 2)
            assert await member.acquired() == [(0, 1, 1)]
            assert await member.complete((0, 0, REJECT)) == 0
            await member.fetch(epoch=-1)
            await member.beat(-1, None)
    async with node_for(tmp_path, **SMALL) as node:
        await node.groups.loaded()
        assert await set_offsets(node, "alter") == 0
        assert (await offsets(node))[0][0] == 1
    assert letters(tmp_path) == [(0, "1", REJECTED)]
