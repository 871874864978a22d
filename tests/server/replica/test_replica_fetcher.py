"""A follower over a real connection: copies, truncations, restarts, and inputs that must not harm it."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.client.errors import PeerError, PeerMisbehaved
from kafkalog.server.client.login import connect
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.replica.fetch_session import FULL
from kafkalog.server.replica.following import PartitionAnswer, Row
from kafkalog.server.replica.following_session import SessionRequest
from kafkalog.server.replica.leader_source import CONSUMER, FETCH, Answers, Bounds, LeaderSource
from kafkalog.server.replica.roles import Role
from kafkalog.server.replica.throttle import FollowingThrottle
from kafkalog.server.replica.voter_source import LIMITS, VoterSource
from kafkalog.types import TopicPartition
from kafkalog.util.checkpoint import OffsetCheckpoint
from tests.builder import R, batch
from tests.server.client.peers import HOST
from tests.server.looping import in_loop
from tests.server.replica.copies import (
    FOLLOWER,
    LEADER,
    QUICK,
    bytes_from,
    make_follower,
    make_leader,
    pair_in,
    partitions_of,
    until,
)

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)


@in_loop
async def test_an_empty_follower_gets_everything(tmp_path: Path) -> None:
    """Four partitions of different sizes, written before and while it follows: the same bytes, and the mark."""
    async with pair_in(tmp_path) as pair:
        keys = [*partitions_of("t", "u")]
        for number, key in enumerate(keys):
            for index in range(50 * number):
                pair.append(key, b"%d" % index * 100, b"another")
        pair.begin(*keys)
        pair.fetcher.start()
        await pair.until_same(*keys)
        for index in range(200):
            pair.append(keys[index % 4], b"later %d" % index)
            if index % 20 == 0:
                await asyncio.sleep(0.001)
        await pair.until_same(*keys)
        await until(lambda: all(state.is_in_sync for state in pair.fetcher.states.values()))
        assert pair.connections == 1 and pair.fetcher.peer_error is None
        followers = pair.leader.replicas.find(keys[3]).followers
        end = pair.logs(keys[3])[0].log_end_offset
        await until(lambda: followers[FOLLOWER].log_end.message_offset == end)  # its next fetch says how far it is


@in_loop
async def test_a_batch_larger_than_what_is_asked_for_at_once(tmp_path: Path) -> None:
    limits = QUICK._replace(max_bytes=4000, partition_max_bytes=1000)
    async with pair_in(tmp_path, limits) as pair:
        for index in range(10):
            pair.append(T0, b"x" * 3000)
            pair.append(T1, b"y" * (index * 500))
        pair.begin(T0, T1)
        pair.fetcher.start()
        await pair.until_same(T0, T1)


@in_loop
async def test_what_another_leader_wrote_is_cut(tmp_path: Path) -> None:
    """Both led for a while, each in epochs of its own: the follower keeps what both have, and nothing else."""
    async with pair_in(tmp_path) as pair:
        leader, own = pair.leader.replicas.find(T0), pair.own.replicas.find(T0)
        for partition, mine, rounds in ((leader, (0, 1, 4, 7), 4), (own, (0, 1, 2, 3, 5, 6), 7)):
            for epoch in mine:
                members = (partition.node_id, 9)
                partition.become_leader(Role(partition.node_id, epoch, epoch, members, members))
                for index in range(3 if epoch < 2 else rounds):
                    value = b"of epoch %d, %d" % (epoch, index)
                    partition.append(bytearray(batch([R(value)])), 1)
        assert own.log.log_end_offset > leader.log.log_end_offset
        pair.begin(T0, epoch=8)
        pair.append(T0, b"of epoch 8")
        pair.fetcher.start()
        await pair.until_same(T0)
        assert pair.logs(T0)[1].leader_epochs == leader.log.leader_epochs
        assert [epoch for epoch, _ in own.log.leader_epochs] == [0, 1, 4, 7, 8]


CHECKPOINTS = ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "cleaner-offset-checkpoint")


@in_loop
async def test_no_checkpoint_says_more_than_a_cut_leaves(tmp_path: Path) -> None:
    """MGR-25: what comes behind a follower's cut was neither flushed nor cleaned."""
    async with pair_in(tmp_path) as pair:
        for index in range(4):
            pair.append(T0, b"%d" % index)
            pair.append(T1, b"%d" % index)
        pair.begin(T0, T1)
        pair.fetcher.start()
        await pair.until_same(T0, T1)
        await pair.fetcher.stop()
        own = pair.own.replicas.find(T0)
        own.become_leader(Role(FOLLOWER, 1, 50, (FOLLOWER, 9), (FOLLOWER, 9)))
        for _ in range(6):
            own.append(bytearray(batch([R(b"of another epoch")])), 1)
        for name in CHECKPOINTS:
            (tmp_path / "own" / name).write_text("0\n3\nother 0 9\nt 0 9\nt 1 3\n")
        pair.begin(T0, epoch=2)
        pair.append(T0, b"of epoch 2")
        pair.fetcher.start()
        await pair.until_same(T0)
        for name in CHECKPOINTS:
            assert OffsetCheckpoint(tmp_path / "own" / name).read() == {
                TopicPartition("other", 0): 9, T0: 4, T1: 3,
            }  # fmt: skip


@in_loop
async def test_a_leader_that_has_let_go_of_the_begin(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with pair_in(tmp_path) as pair:
        for index in range(30):
            pair.append(T0, b"%d" % index)
            pair.append(T1, b"%d" % index)
        leader, own = pair.logs(T0)
        pair.leader.replicas.find(T0).delete_records(20)
        pair.begin(T0)  # it is empty
        pair.begin(T1)
        pair.fetcher.start()
        await pair.until_same(T0, T1)
        assert (own.log_start_offset, own.log_end_offset) == (20, 30)
        assert bytes_from(own, 20)[:8] == (20).to_bytes(8, "big")
        assert "t-0: the leader has offsets 20 to 30; the log is restarted at its start" in caplog.messages
        await pair.fetcher.stop()
        for index in range(30):
            pair.append(T1, b"%d" % index)
        log = pair.logs(T1)[0]
        log.high_watermark_follows_end = True
        log.update_high_watermark(60)
        pair.leader.replicas.find(T1).delete_records(60)  # all that it lacked, and all else
        pair.fetcher.start()
        await until(lambda: pair.logs(T1)[1].log_start_offset == 60)
        pair.append(T1, b"after")
        await until(lambda: pair.logs(T1)[1].log_end_offset == 61)


@in_loop
async def test_a_leader_with_a_shorter_log(tmp_path: Path) -> None:
    """Elected though it lacked records: the records it lacks are truncated, though no epoch shows it."""
    async with pair_in(tmp_path) as pair:
        own = pair.own.replicas.find(T0)
        for index in range(8):
            own.append(bytearray(batch([R(b"%d" % index)])), 1)
        pair.append(T0, b"0")
        pair.begin(T0)
        pair.fetcher.start()
        await pair.until_same(T0)
        assert own.log.log_end_offset == 1


@in_loop
async def test_a_follower_of_an_old_epoch_stands_still_until_it_is_told(tmp_path: Path) -> None:
    """PART-5 from the other side: fenced, it writes nothing, reports that, and continues in the new epoch."""
    async with pair_in(tmp_path) as pair:
        pair.append(T0, b"0")
        pair.begin(T0, T1)
        pair.fetcher.start()
        await pair.until_same(T0)
        make_leader(pair.leader, T0, 5)
        pair.append(T0, b"1")
        pair.append(T1, b"1")
        await until(lambda: (T0, ErrorCode.FENCED_LEADER_EPOCH) in pair.leader_errors)
        await pair.until_same(T1)
        state = pair.fetcher.states[T0]
        assert pair.logs(T0)[1].log_end_offset == 1 and state.is_suspended and not state.is_in_sync
        pair.fetcher.follow(make_follower(pair.own, T0, 5, pair.leader.replicas.find(T0)), 5)
        await pair.until_same(T0)


@in_loop
async def test_a_follower_of_a_later_epoch_tries_again(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        partition = make_leader(pair.leader, T0, 3)
        pair.append(T0, b"0")
        pair.fetcher.follow(make_follower(pair.own, T0, 4, partition), 4)
        pair.begin(T1)
        pair.append(T1, b"0")
        pair.fetcher.start()
        await until(lambda: (T0, ErrorCode.UNKNOWN_LEADER_EPOCH) in pair.leader_errors)
        await pair.until_same(T1)
        make_leader(pair.leader, T0, 4)
        await pair.until_same(T0)


@in_loop
async def test_an_unknown_topic_harms_no_other_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with pair_in(tmp_path) as pair:
        pair.begin(T0, T1)
        gone = pair.own.replicas.find(TopicPartition("u", 0))
        gone.topic_id = None  # versions that know topics by names
        gone.become_follower(Role(LEADER, 0, 9, (LEADER, FOLLOWER), (LEADER,)))
        await pair.leader.topics.delete("u")
        pair.fetcher.follow(gone, 0)
        pair.append(T0, b"0")
        pair.fetcher.start()
        await pair.until_same(T0, T1)
        await until(lambda: pair.fetcher.states[gone.topic_partition].failures > 5)
        code = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        words = f"cannot follow the leader of u-0 now: the leader reports error {code}"
        warned = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert [message for message in warned if "cannot follow" in message] == [words]


@pytest.mark.parametrize(("code", "reported"), [
    (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR),
    (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE),  # its log has grown up to ours meanwhile
])  # fmt: skip
@in_loop
async def test_a_leader_that_cannot_say_where_its_log_is_is_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: ErrorCode, reported: ErrorCode
) -> None:
    async with pair_in(tmp_path) as pair:
        for index in range(3):
            pair.append(T0, b"%d" % index)
        pair.leader.replicas.find(T0).delete_records(3)
        pair.begin(T0)
        connect, asked = pair.fetcher._connect, []

        async def refusing() -> Any:
            source = await connect()
            bounds = source.bounds

            async def refused(keys: Any) -> Any:
                asked.append(keys)
                return {T0: Bounds(int(code), 0, 0)} if len(asked) == 1 else await bounds(keys)

            source.bounds = refused  # type: ignore[method-assign]
            return source

        pair.fetcher._connect = refusing
        pair.fetcher.start()
        await until(lambda: pair.logs(T0)[1].log_start_offset == 3)
        assert asked == [{T0: 0}] * 2
        assert f"cannot follow the leader of t-0 now: the leader reports error {int(reported)}" in caplog.messages
        assert pair.leader_errors == ([(T0, reported)] if code == ErrorCode.NOT_LEADER_OR_FOLLOWER else [])


@in_loop
async def test_damaged_batches_are_not_written(tmp_path: Path) -> None:
    """One byte of the leader's file is flipped: the follower keeps what is sound before, others go on."""
    async with pair_in(tmp_path) as pair:
        for index in range(3):
            pair.append(T0, b"value %d" % index * 10)
            pair.append(T1, b"value")
        [file] = (tmp_path / "leader" / "t-0").glob("*.log")
        size = file.stat().st_size
        with open(file, "r+b") as damaged:
            damaged.seek(size - 5)
            byte = damaged.read(1)
            damaged.seek(size - 5)
            damaged.write(bytes([byte[0] ^ 1]))
        pair.begin(T0, T1)
        pair.fetcher.start()
        await pair.until_same(T1)
        await until(lambda: pair.fetcher.states[T0].failures > 1)
        assert pair.logs(T0)[1].log_end_offset in (0, 2)
        with open(file, "r+b") as mended:
            mended.seek(size - 5)
            mended.write(byte)
        await pair.until_same(T0)


@in_loop
async def test_a_lost_connection_is_made_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with pair_in(tmp_path) as pair:
        pair.append(T0, b"0")
        pair.begin(T0)
        connect, given = pair.fetcher._connect, []

        async def noted() -> Any:
            given.append(await connect())
            return given[-1]

        pair.fetcher._connect = noted
        pair.fetcher.start()
        await pair.until_same(T0)
        for number in range(3):
            given[-1].connection._transport.abort()
            pair.append(T0, b"%d" % number)
            await pair.until_same(T0)
            await until(lambda: pair.fetcher.peer_error is None)
        assert len(given) == 4
        assert sum(message.startswith("lost contact with the leader: ") for message in caplog.messages) == 3


@in_loop
async def test_while_there_is_no_leader_it_says_why(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        pair.begin(T0)
        port = pair.server.ports.pop("PLAINTEXT")
        pair.server.ports["PLAINTEXT"] = 1
        pair.fetcher.start()
        await until(lambda: isinstance(pair.fetcher.peer_error, PeerError))
        assert "127.0.0.1:1" in str(pair.fetcher.peer_error)
        pair.server.ports["PLAINTEXT"] = port
        pair.append(T0, b"0")
        await pair.until_same(T0)


@pytest.mark.parametrize("key", [TopicPartition("t", 7), TopicPartition("u", 0), T0], ids=["t-7", "u-0", "t-0 twice"])
@in_loop
async def test_answers_for_what_was_not_asked_cost_the_connection(tmp_path: Path, key: TopicPartition) -> None:
    async with pair_in(tmp_path) as pair:
        pair.begin(T0)
        connect = pair.fetcher._connect
        errors: list[Any] = []
        given: list[Any] = []

        async def lies() -> Any:
            source = await connect()
            given.append(source.connection)
            fetch, errors[:] = source.fetch, [*errors, pair.fetcher.peer_error]

            async def lied(*asked: Any) -> Any:
                answers = await fetch(*asked)
                return answers if len(errors) > 2 else answers._replace(rows=[*answers.rows, (key, PartitionAnswer(0))])

            source.fetch = lied  # type: ignore[method-assign]
            return source

        pair.fetcher._connect = lies
        pair.fetcher.start()
        pair.append(T0, b"0")
        await pair.until_same(T0)
        await until(lambda: len(errors) > 2)
        assert errors[0] is None and all(isinstance(error, PeerMisbehaved) for error in errors[1:])
        assert f"it answers for {key}, which was not requested" in str(errors[1])
        assert [one.is_open for one in given] == [False, False, True]


@pytest.mark.parametrize(("code", "is_logged"), [
    (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, False), (ErrorCode.INVALID_FETCH_SESSION_EPOCH, False),
    (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, True),
])  # fmt: skip
@in_loop
async def test_a_fetch_that_is_refused_as_a_whole_is_tried_again_over_the_connection(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, code: ErrorCode, is_logged: bool
) -> None:
    """A session that the leader has forgotten is created again silently."""
    async with pair_in(tmp_path) as pair:
        pair.begin(T0)
        connect = pair.fetcher._connect
        asked: list[int] = []

        async def refusing() -> Any:
            source = await connect()
            fetch = source.fetch

            async def refused(*ask: Any) -> Any:
                asked.append(ask[0].epoch)
                return await fetch(*ask) if len(asked) > 2 else Answers(int(code), 0, 0, [])

            source.fetch = refused  # type: ignore[method-assign]
            return source

        pair.fetcher._connect = refusing
        pair.append(T0, b"0")
        pair.fetcher.start()
        await pair.until_same(T0)
        assert pair.connections == 1 and asked[:3] == [0, 0, 0]
        reported = [message for message in caplog.messages if f"answered a fetch with error {int(code)}" in message]
        assert len(reported) == (2 if is_logged else 0)


@in_loop
async def test_what_is_left_is_not_written_any_more(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        pair.begin(T0, T1)
        pair.fetcher.start()
        pair.append(T0, b"0")
        await pair.until_same(T0)
        await pair.fetcher.leave([T0])
        pair.append(T0, b"1")
        pair.append(T1, b"1")
        await pair.until_same(T1)
        assert pair.logs(T0)[1].log_end_offset == 1 and T0 not in pair.fetcher.states


@in_loop
async def test_a_log_that_is_led_here_is_never_changed(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        pair.begin(T0)
        pair.append(T0, b"0")
        make_leader(pair.own, T0, 1)
        pair.fetcher.start()
        await until(lambda: pair.fetcher.states[T0].failures > 1)
        assert pair.logs(T0)[1].log_end_offset == 0


@in_loop
async def test_a_throttled_follower_that_is_behind_waits(tmp_path: Path) -> None:
    """FLOW-19, the follower's half: what is not throttled goes on, and one in sync is never held back."""
    async with pair_in(tmp_path) as pair:
        for _ in range(10):
            pair.append(T0, b"x" * 1000)
        pair.fetcher.throttle = FollowingThrottle(100, lambda key: key == T0)
        pair.fetcher._limits = pair.limits._replace(partition_max_bytes=1200, max_bytes=1200)
        pair.begin(T0, T1)
        pair.fetcher.start()
        await until(lambda: pair.logs(T0)[1].log_end_offset > 0)
        pair.append(T1, b"0")
        await pair.until_same(T1)
        assert pair.logs(T0)[1].log_end_offset < 10
        pair.fetcher.throttle.bytes_per_second = 10**9
        await pair.until_same(T0)


@in_loop
async def test_answers_without_news_take_no_thread(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        pair.append(T0, b"0")
        pair.append(T1, b"0")
        pair.begin(T0, T1)
        pair.fetcher.start()
        await pair.until_same(T0, T1)
        await until(lambda: all(state.is_in_sync for state in pair.fetcher.states.values()))
        run, written, fetched = pair.fetcher._run, [], []

        async def noted(*work: Any) -> Any:
            written.append(work)
            return await run(*work)

        pair.fetcher._run = noted
        fetch_once = pair.fetcher.fetch_once

        async def counted(source: Any) -> None:
            fetched.append(source)
            await fetch_once(source)

        pair.fetcher.fetch_once = counted  # type: ignore[method-assign]
        pair.fetcher._session.lost()  # everything is requested again, and answered
        await until(lambda: len(fetched) > 3)
        assert not written
        pair.append(T0, b"1")
        await pair.until_same(T0)
        assert written


@in_loop
async def test_a_voter_that_leads_nothing_tells_where_its_logs_begin_and_end(tmp_path: Path) -> None:
    """It is asked like a reader of any replica, without an epoch; a leader's follower is redirected to the leader."""
    async with pair_in(tmp_path) as pair:
        for index in range(30):
            pair.append(T0, b"%d" % index)
        voter = pair.leader.replicas.find(T0)
        voter.log.update_high_watermark(30)
        voter.delete_records(20)
        voter.become_follower(Role(9, 3, voter.role.partition_epoch + 1, (LEADER, FOLLOWER, 9), (9,)))
        connection = await connect(HOST, pair.server.ports["PLAINTEXT"])
        try:
            asked = {T0: 2}
            found = await VoterSource(connection, FOLLOWER, LIMITS).bounds(asked)
            assert found == {T0: Bounds(0, 20, 30)}
            refused = await LeaderSource(connection, FOLLOWER, LIMITS).bounds(asked)
            assert refused[T0].error_code == ErrorCode.FENCED_LEADER_EPOCH
        finally:
            await connection.close()


@in_loop
async def test_a_leader_of_an_old_version_has_no_sessions(tmp_path: Path) -> None:
    async with pair_in(tmp_path) as pair:
        pair.append(T0, b"1")
        connection = await connect(HOST, pair.server.ports["PLAINTEXT"])
        connection.versions = {**connection.versions, FETCH: (4, 6)}
        try:
            ask = SessionRequest(0, FULL, {T0: Row(0, -1, -1, 0, 1 << 20)}, ())
            answers = await LeaderSource(connection, CONSUMER, LIMITS).fetch(ask, {"t": None})
        finally:
            await connection.close()
        assert (answers.error_code, answers.session_id, [key for key, _ in answers.rows]) == (0, 0, [T0])
