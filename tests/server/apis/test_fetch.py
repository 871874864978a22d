"""Fetch through real bytes: versions, codes, sessions, isolation."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.control import ControlType
from kafkalog.server.apis.dispatch import dispatch
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.net.outgoing import JOIN_BYTES
from kafkalog.server.node.node import Node
from kafkalog.server.replica.fetch_session import (
    EVICTION_MS,
    FetchSession,
    FetchSessions,
    Key,
    SessionPartition,
    next_epoch,
)
from kafkalog.server.replica.results import FetchResult
from kafkalog.server.replica.roles import Role
from kafkalog.types import TopicPartition
from tests.server.net.networks import add_length, answer_of, connect, network_for
from tests.server.nodes import call, connection_for, joined, request_bytes, run_node
from tests.server.replica.partitions import make_batch, make_marker, make_producer_batch

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
VERSIONS = range(4, 19)


def fetch_tree(node: Node, asked: dict[tuple[str, int], int], **more: Any) -> dict[str, Any]:
    """A request: offsets by topic and partition."""
    topics: dict[str, list[Any]] = {}
    for (name, index), offset in asked.items():
        row = {
            "partition": index,
            "current_leader_epoch": more.get("leader_epoch", -1),
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": more.get("partition_max_bytes", 1 << 20),
        }
        topics.setdefault(name, []).append(row)
    rows = []
    for name, partitions in topics.items():
        known = node.topics.get(name)
        topic_id = UUID(int=99) if known is None else known.id
        rows.append({"topic": name, "topic_id": topic_id, "partitions": partitions})
    return {
        "replica_id": -1,
        "max_wait": more.get("max_wait", 0),
        "min_bytes": more.get("min_bytes", 1),
        "max_bytes": more.get("max_bytes", 1 << 20),
        "isolation_level": more.get("isolation", 0),
        "session_id": more.get("session_id", 0),
        "session_epoch": more.get("epoch", -1),
        "topics": rows,
        "forgotten_topics_data": more.get("forgotten", ()),
        "rack_id": "",
    }


async def fetch(node: Node, asked: dict[tuple[str, int], int], version: int = 12, **more: Any) -> Any:
    return await call(node, "fetch", version, fetch_tree(node, asked, **more))


def partition_rows(answer: Any) -> list[Any]:
    return [one for topic in answer.responses for one in topic.partitions]


def record_sizes(answer: Any) -> dict[int, int]:
    return {one.partition_index: len(one.records or b"") for one in partition_rows(answer)}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_reads_what_was_written(tmp_path: Path, version: int) -> None:
    """FLOW-25."""

    async def body(node: Node) -> None:
        for _ in range(2):
            node.replicas.append_now(T0, make_batch(3), "client")
        answer = await fetch(node, {("t", 0): 3, ("t", 1): 0}, version)
        [first, second] = partition_rows(answer)
        assert bytes(first.records)[:8] == (3).to_bytes(8, "big") and len(first.records) == len(make_batch(3))
        assert (first.error_code, first.high_watermark, first.last_stable_offset) == (0, 6, 6)
        assert first.aborted_transactions is None
        assert (second.error_code, second.high_watermark, len(second.records)) == (0, 0, 0)
        topic = answer.responses[0]
        assert topic.topic_id == node.topics.get("t").id if version >= 13 else topic.topic == "t"

    run_node(tmp_path, body)


def test_a_small_answer_with_more_pieces_than_a_call_takes(tmp_path: Path) -> None:
    """The answer has 540 ranges of files with 541 pieces around them; the system takes 1024 buffers in one call."""
    keys = [("many", number) for number in range(540)]

    async def body(node: Node) -> None:
        async def dispatch_frame(connection: Any, request_frame: bytearray) -> Any:
            return await dispatch(node, connection, request_frame)

        await node.topics.create("many", len(keys))
        for key in keys:
            node.replicas.append_now(TopicPartition(*key), make_batch(1), "client")
        asked = request_bytes("fetch", 11, fetch_tree(node, dict.fromkeys(keys, 0)))
        expected = joined(await dispatch(node, connection_for(), asked))
        assert len(expected) < JOIN_BYTES and expected.count(make_batch(1)[61:]) == len(keys)
        async with network_for(dispatch_frame) as network:
            reader, writer = await connect(network)
            writer.write(add_length(asked))
            assert await answer_of(reader) == expected
            writer.close()

    run_node(tmp_path, body)


@pytest.mark.parametrize("version", [0, 3, 19])
def test_versions_that_are_not_served_close(tmp_path: Path, version: int) -> None:
    """FLOW-25."""

    async def body(node: Node) -> None:
        frame = request_bytes("fetch", 4, fetch_tree(node, {("t", 0): 0}))
        frame[2:4] = version.to_bytes(2, "big")
        assert repr(await dispatch(node, connection_for(), frame)) == "CLOSE"

    run_node(tmp_path, body)


def test_codes_of_the_reference(tmp_path: Path) -> None:
    """FLOW-15, FLOW-18, FLOW-27 and wire.md M5."""

    async def body(node: Node) -> None:
        node.replicas.append_now(T0, make_batch(3), "client")
        [one] = partition_rows(await fetch(node, {("t", 0): 4}, max_wait=10_000))
        fields = (one.error_code, one.high_watermark, one.last_stable_offset, one.log_start_offset)
        assert fields == (ErrorCode.OFFSET_OUT_OF_RANGE, -1, -1, -1)
        assert one.aborted_transactions is None and one.records == b""
        for version, asked, code in (
            (12, ("gone", 0), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (12, ("t", 7), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (12, ("t", -1), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (13, ("gone", 0), ErrorCode.UNKNOWN_TOPIC_ID),
        ):
            [one] = partition_rows(await fetch(node, {asked: 0}, version, max_wait=10_000))
            assert (one.error_code, one.aborted_transactions, one.records) == (code, (), b"")
        [one] = partition_rows(await fetch(node, {("t", 0): 0}, leader_epoch=9))
        assert (one.error_code, one.high_watermark) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)
        first = {0: len(make_batch(3))}
        assert record_sizes(await fetch(node, {("t", 0): 0}, max_bytes=1, partition_max_bytes=1)) == first
        assert record_sizes(await fetch(node, {("t", 0): 0}, max_bytes=0, partition_max_bytes=0)) == first

    run_node(tmp_path, body)


def test_the_id_of_another_topic_of_that_name_is_told(tmp_path: Path) -> None:
    """FLOW-18: a topic that was made again meanwhile is not taken for the one that is asked for by its id."""

    async def body(node: Node) -> None:
        before = fetch_tree(node, {("t", 0): 0})
        assert partition_rows(await call(node, "fetch", 13, before))[0].error_code == 0
        node.replicas.find(T0).topic_id = UUID(int=98)
        assert partition_rows(await call(node, "fetch", 13, before))[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID
        assert partition_rows(await call(node, "fetch", 12, before))[0].error_code == 0
        assert partition_rows(await fetch(node, {("t", 1): 0}, 13))[0].error_code == 0

    run_node(tmp_path, body)


def test_a_session_by_ids_does_not_go_on_with_the_next_topic_of_that_name(tmp_path: Path) -> None:
    """FLOW-18: a topic id that no longer exists is rejected."""

    async def body(node: Node) -> None:
        node.replicas.append_now(T0, make_batch(3), "client")
        first = await fetch(node, {("t", 0): 0}, 13, epoch=0)
        assert record_sizes(first) == {0: len(make_batch(3))}
        await node.topics.delete("t")
        await node.topics.create("t", 2)
        node.replicas.append_now(T0, make_batch(3), "client")
        [one] = partition_rows(await fetch(node, {}, 13, session_id=first.session_id, epoch=1))
        assert (one.error_code, one.records) == (ErrorCode.UNKNOWN_TOPIC_ID, b"")

    run_node(tmp_path, body)


def test_where_the_leader_is_comes_with_the_error(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        node.replicas.find(T0).become_follower(Role(node.node_id + 1, 3, 1, (1, 2), (2,)))
        answer = await fetch(node, {("t", 0): 0}, 16)
        [one] = partition_rows(answer)
        assert one.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (one.current_leader.leader_id, one.current_leader.leader_epoch) == (node.node_id + 1, 3)
        assert not answer.node_endpoints  # this node is alone, and has no address of that one

    run_node(tmp_path, body)


def test_a_topic_with_zstd_is_sent_in_every_version(tmp_path: Path) -> None:
    """As by a broker of 4.4, which looks at no codec of a topic."""

    async def body(node: Node) -> None:
        await node.topics.create("z", 1, {"compression.type": "zstd"})
        codes = [partition_rows(await fetch(node, {("z", 0): 0}, version))[0].error_code for version in (4, 9, 10)]
        assert codes == [0, 0, 0]

    run_node(tmp_path, body)


def test_committed_reading_has_what_was_aborted(tmp_path: Path) -> None:
    """FLOW-16: a list, empty where nothing was aborted."""

    async def body(node: Node) -> None:
        node.replicas.find(T0).log.verifies_transactions = False
        node.replicas.append_now(T0, make_producer_batch(9, 0, transactional=True), "client")
        [one] = partition_rows(await fetch(node, {("t", 0): 0}, isolation=1))
        assert (one.records, one.aborted_transactions, one.last_stable_offset) == (b"", (), 0)
        node.replicas.append_now(T0, make_marker(9, ControlType.ABORT))
        [one] = partition_rows(await fetch(node, {("t", 0): 0}, isolation=1))
        assert [(a.producer_id, a.first_offset) for a in one.aborted_transactions] == [(9, 0)]
        assert one.last_stable_offset == 2 and len(one.records) > 78

    run_node(tmp_path, body)


def test_a_fetch_waits_for_a_produce(tmp_path: Path) -> None:
    """FLOW-11, FLOW-13."""

    async def body(node: Node) -> None:
        task = asyncio.create_task(fetch(node, {("t", 0): 0}, max_wait=30_000))
        await asyncio.sleep(0.01)
        assert not task.done()
        node.replicas.append_now(T0, make_batch(), "client")
        assert record_sizes(await task) == {0: len(make_batch())}
        task = asyncio.create_task(fetch(node, {("t", 0): 1}, max_wait=30))
        assert record_sizes(await task) == {0: 0}

    run_node(tmp_path, body)


def test_a_session_is_told_what_changed(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        node.replicas.append_now(T0, make_batch(), "client")
        for version in (7, 18):
            start = node.replicas.find(T1).log.log_end_offset
            made = await fetch(node, {("t", 0): 0, ("t", 1): start}, version, epoch=0)
            assert made.session_id > 0 and record_sizes(made).keys() == {0, 1}
            session: dict[str, Any] = {"session_id": made.session_id}
            end = node.replicas.find(T0).log.log_end_offset
            again = await fetch(node, {("t", 0): end}, version, epoch=1, **session)
            assert (partition_rows(again), again.session_id, again.error_code) == ([], made.session_id, 0)
            node.replicas.append_now(T1, make_batch(), "client")
            assert record_sizes(await fetch(node, {}, version, epoch=2, **session))[1] > 0
            topic = {"topic": "t", "topic_id": node.topics.get("t").id, "partitions": [1]}
            assert partition_rows(await fetch(node, {}, version, epoch=3, forgotten=[topic], **session)) == []
            wrong = await fetch(node, {}, version, epoch=9, **session)
            assert (wrong.error_code, wrong.session_id, partition_rows(wrong)) == (71, 0, [])
            other = 12 if version > 12 else 13
            assert (await fetch(node, {}, other, epoch=4, **session)).error_code == 106
            closed = await fetch(node, {}, version, epoch=-1, **session)
            assert (closed.error_code, closed.session_id) == (0, 0)
            assert (await fetch(node, {}, version, epoch=4, **session)).error_code == 70
        assert len(node.replicas.sessions) == 0

    run_node(tmp_path, body)


def test_a_session_may_begin_without_partitions(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        node.replicas.append_now(T0, make_batch(), "client")
        made = await fetch(node, {}, epoch=0)
        assert made.session_id > 0 and made.responses == ()
        added = await fetch(node, {("t", 0): 0}, epoch=1, session_id=made.session_id)
        assert added.session_id == made.session_id and record_sizes(added)[0] > 0

    run_node(tmp_path, body)


def test_a_session_that_ends_answers_what_was_asked_for(tmp_path: Path) -> None:
    """As a broker where a request adds and forgets the only partition."""

    async def body(node: Node) -> None:
        made = await fetch(node, {("t", 0): 0}, epoch=0)
        session: dict[str, Any] = {"session_id": made.session_id}
        gone = [{"topic": "t", "partitions": [0]}]
        last = await fetch(node, {("t", 0): 100}, epoch=1, forgotten=gone, **session)
        assert [row.error_code for row in partition_rows(last)] == [ErrorCode.OFFSET_OUT_OF_RANGE]
        assert last.session_id == 0 and (await fetch(node, {}, epoch=2, **session)).error_code == 70

    run_node(tmp_path, body)


def test_an_error_in_a_session_is_told_and_so_is_its_end(tmp_path: Path) -> None:
    async def body(node: Node) -> None:
        made = await fetch(node, {("t", 0): 5, ("gone", 0): 0}, epoch=0)
        assert [one.error_code for one in partition_rows(made)] == [1, 3]
        session: dict[str, Any] = {"session_id": made.session_id}
        assert [one.error_code for one in partition_rows(await fetch(node, {}, epoch=1, **session))] == [1, 3]
        await node.topics.create("gone", 1)
        answer = partition_rows(await fetch(node, {("t", 0): 0}, epoch=2, **session))
        assert [one.error_code for one in answer] == [0, 0]
        assert partition_rows(await fetch(node, {}, epoch=3, **session)) == []

    run_node(tmp_path, body)


# The cache by itself


def session_partitions(*indexes: int) -> dict[Key, SessionPartition]:
    return {("t", index): SessionPartition("t", index, 0, 100) for index in indexes}


class Now:
    ms = 0

    def __call__(self) -> int:
        return self.ms


def test_epochs_wrap_to_1() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 1, -1)] == [1, 2, 1, -1]


def create_session(sessions: FetchSessions, *indexes: int, is_follower: bool = False) -> FetchSession | None:
    return sessions.create(session_partitions(*indexes), False, is_follower)


def test_an_id_that_is_drawn_twice_is_given_once() -> None:
    sessions = FetchSessions(5, Now(), seed=1)
    first = create_session(sessions, 1)
    sessions._random.seed(1)  # as it was before
    second = create_session(sessions, 2)
    assert first is not None and second is not None and first.id != second.id
    assert sessions.get(first.id) is first and sessions.get(second.id) is second
    assert 0 < second.id < 2**31


def test_sessions_take_as_many_partitions_as_they_may_and_no_more() -> None:
    sessions = FetchSessions(9, Now(), most_partitions=4, seed=1)
    assert create_session(sessions, *range(5)) is None
    three = create_session(sessions, 1, 2, 3)
    assert three is not None and create_session(sessions, 1, 2) is None
    one = create_session(sessions, 1)
    assert one is not None and (sessions.partitions, len(sessions)) == (4, 2)
    grown = sessions.resume(one.id, 1, False, list(session_partitions(1, 2).values()), ())
    assert isinstance(grown, FetchSession) and grown.id == 0, "it is answered, and has no session any more"
    assert (sessions.partitions, len(sessions)) == (3, 1)


def test_slots_are_bounded_and_the_larger_session_gets_one() -> None:
    now = Now()
    sessions = FetchSessions(2, now, seed=1)
    small, large = create_session(sessions, 1), create_session(sessions, 1, 2, 3)
    assert small is not None and large is not None
    assert create_session(sessions, 1, 2) is None  # those there are too young
    now.ms = EVICTION_MS - 1
    for session in (small, large):
        assert sessions.resume(session.id, 1, False, [], ()) is session
    now.ms = EVICTION_MS + 1
    assert create_session(sessions, 1) is None  # not larger than the smallest
    middle = create_session(sessions, 1, 2)
    assert middle is not None and sessions.get(small.id) is None and len(sessions) == 2
    follower = create_session(sessions, 1, is_follower=True)
    assert follower is not None and sessions.get(large.id) is None  # a follower's is worth more than any client's
    now.ms += EVICTION_MS + 1
    assert sessions.resume(follower.id, 1, False, [], ()) is follower
    assert create_session(sessions, 1) is not None and sessions.get(middle.id) is None  # not used for long
    now.ms += 1
    assert FetchSessions(0, now).create(session_partitions(1), False, False) is None


def test_a_session_keeps_its_slot_for_two_minutes_after_its_last_use() -> None:
    now = Now()
    sessions = FetchSessions(1, now, seed=1)
    session = create_session(sessions, 1)
    now.ms = 5_000
    assert session is not None and sessions.resume(session.id, 1, False, [], ()) is session
    now.ms = EVICTION_MS
    assert create_session(sessions, 1, 2) is None, "a larger one gets its slot a ms later"
    now.ms = 5_000 + EVICTION_MS
    assert create_session(sessions, 1) is None
    now.ms += 1
    assert create_session(sessions, 1) is not None and sessions.get(session.id) is None
    assert EVICTION_MS == 120_000


def test_partitions_of_all_sessions_are_bounded() -> None:
    sessions = FetchSessions(10, Now(), most_partitions=5, seed=1)
    first = create_session(sessions, 1, 2, 3)
    assert first is not None and create_session(sessions, 1, 2, 3) is None and sessions.partitions == 3
    assert sessions.resume(first.id, 1, False, list(session_partitions(4, 5).values()), ()) is first and first.id
    resumed = sessions.resume(first.id, 2, False, list(session_partitions(6).values()), ())
    assert isinstance(resumed, FetchSession) and len(resumed.partitions) == 6
    assert resumed.id == 0 and len(sessions) == 0  # answered whole, and remembered no more


def test_names_that_no_topic_has_are_not_remembered() -> None:
    sessions = FetchSessions(10, Now(), seed=1)
    known = create_session(sessions, 1)
    long = SessionPartition("a" * 30_000, 0, 0, 100)
    assert known is not None and sessions.create({long.key: long}, False, False) is None
    resumed = sessions.resume(known.id, 1, False, [long], ())
    assert isinstance(resumed, FetchSession) and long.key in resumed.partitions and resumed.id == 0
    assert len(sessions) == 0
    longest, longer = (SessionPartition("a" * size, 0, 0, 100) for size in (249, 250))
    assert sessions.create({longer.key: longer}, False, False) is None
    assert sessions.create({longest.key: longest}, False, False) is not None


def test_what_gave_records_goes_to_the_end() -> None:
    class Some:
        size = 10

    session = FetchSession(1, 0, False, False, 0)
    session.update(session_partitions(1, 2, 3).values(), ())
    answers = [(("t", 1), FetchResult(records=Some())), (("t", 2), FetchResult())]
    reported: Any = session.news(answers)  # type: ignore[arg-type]
    assert [key for key, _ in reported] == [("t", 1)]  # a high watermark of -1 is no news
    assert [index for _, index in session.partitions] == [2, 3, 1]
    assert session.news([(("t", 9), FetchResult(3))]) == []  # forgotten meanwhile
    session.update((), [("t", 2)])
    assert [index for _, index in session.partitions] == [3, 1]


def test_a_long_name_is_not_remembered_in_place_of_another() -> None:
    sessions = FetchSessions(10, Now(), seed=1)
    known = create_session(sessions, 1, 2)
    long = SessionPartition("a" * 30_000, 0, 0, 100)
    assert known is not None
    resumed = sessions.resume(known.id, 1, False, [long], [("t", 1)])
    assert isinstance(resumed, FetchSession) and resumed.id == 0 and len(sessions) == 0


def test_the_high_watermark_of_an_answer_that_diverged_is_told_again() -> None:
    """A follower truncates at such an answer and takes nothing else from it."""
    session = FetchSession(1, 0, False, True, 0)
    session.update(session_partitions(1).values(), ())
    key = "t", 1
    for answer in (FetchResult(high_watermark=5, diverging_epoch=(0, 3)), FetchResult(high_watermark=5)):
        assert session.news([(key, answer)]) == [(key, answer)]
    assert session.news([(key, FetchResult(high_watermark=5))]) == []
