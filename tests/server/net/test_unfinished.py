"""Requests that are begun and not ended: what they take from the others, and which of them is given up."""

import asyncio
import socket
import struct
from typing import Any

import pytest

from kafkalog.server.net import listener, unfinished
from kafkalog.server.net.request_memory import UNAUTHENTICATED_BYTES
from tests.server.net.networks import (
    add_length,
    answer_of,
    both_loops,
    connect,
    echo_frame,
    is_closed,
    network_for,
    run_in,
)

SMALL = add_length(b"12345678")
MOST = 1 << 20
LARGE = add_length(bytes(600_000))  # two of them have no room
STALL_S = unfinished.STALL_S


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No request counts as stalled before a test sets the time for that: a busy machine may stop for as long."""
    monkeypatch.setattr(unfinished, "STALL_S", 3600)


async def wait_until(condition: Any) -> None:
    """Wait until it is so; the test's own timeout ends what never is."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


async def half_of(network: Any, data: bytes, **more: Any) -> Any:
    """A connection that has sent half of a request, and what it sent that was read."""
    before = network.counts.bytes_in
    reader, writer = await connect(network, **more)
    writer.write(data[: len(data) // 2])
    await wait_until(lambda: network.counts.bytes_in > before)
    return reader, writer


def test_a_large_request_waits_in_its_socket_until_it_has_room() -> None:
    async def run() -> None:
        async with network_for(echo_frame, queued_max_request_bytes=MOST) as network:
            first = await half_of(network, LARGE)
            await wait_until(lambda: network.counts.request_bytes >= len(LARGE) // 2)
            held = network.counts.request_bytes
            second = await half_of(network, LARGE)
            assert network.counts.request_bytes == held  # no more than its length was read
            first[1].write(LARGE[len(LARGE) // 2 :])
            assert await answer_of(first[0]) == LARGE[4:]
            second[1].write(LARGE[len(LARGE) // 2 :])
            assert await answer_of(second[0]) == LARGE[4:]
            assert (network.counts.request_bytes, network.counts.refused) == (0, {})
            for _, writer in (first, second):
                writer.close()

    asyncio.run(run())


def test_many_large_requests_at_once_are_all_answered_within_the_limit() -> None:
    most = []

    async def dispatch(connection: Any, frame: bytearray) -> Any:
        most.append(network.counts.request_bytes)
        await asyncio.sleep(0)
        return [bytes(frame[:8])]

    async def run() -> None:
        nonlocal network
        async with network_for(dispatch, queued_max_request_bytes=MOST) as network:
            opened = [await connect(network) for _ in range(20)]
            for _, writer in opened:
                writer.write(LARGE)
            assert [await answer_of(reader) for reader, _ in opened] == [bytes(8)] * 20
            assert max(most) <= MOST
            assert (network.counts.request_bytes, network.counts.refused) == (0, {})
            for _, writer in opened:
                writer.close()

    network: Any = None
    asyncio.run(run())


def test_a_large_request_that_does_not_come_on_is_given_up_where_another_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished, "STALL_S", STALL_S)

    async def run() -> None:
        async with network_for(echo_frame, queued_max_request_bytes=MOST) as network:
            stalled = await half_of(network, LARGE)
            whole = await connect(network)
            whole[1].write(LARGE)
            assert await answer_of(whole[0]) == LARGE[4:]
            assert await is_closed(stalled[0])
            assert network.counts.refused == {"unfinished": 1}
            for _, writer in (stalled, whole):
                writer.close()

    asyncio.run(run())


def test_small_requests_are_answered_while_large_ones_hold_all_they_may() -> None:
    async def run() -> None:
        async with network_for(echo_frame, queued_max_request_bytes=MOST) as network:
            held = await half_of(network, add_length(bytes(MOST - (MOST >> 3))))
            waiting = [await half_of(network, LARGE) for _ in range(5)]
            small = await connect(network)
            for _ in range(3):
                small[1].write(SMALL)
                assert await answer_of(small[0]) == SMALL[4:]
            assert network.counts.request_bytes <= MOST
            for _, writer in (held, *waiting, small):
                writer.close()

    asyncio.run(run())


def test_a_smaller_request_does_not_wait_for_larger_ones() -> None:
    async def run() -> None:
        async with network_for(echo_frame, queued_max_request_bytes=MOST) as network:
            halves = [await half_of(network, LARGE) for _ in range(5)]
            small = add_length(bytes(100_000))
            reader, writer = await connect(network)
            writer.write(small)
            assert await answer_of(reader) == small[4:]
            assert network.counts.refused == {}
            for _, other in (*halves, (reader, writer)):
                other.close()

    asyncio.run(run())


def test_room_goes_first_to_the_client_that_has_the_least() -> None:
    async def run() -> None:
        gates: dict[bytes, asyncio.Future[None]] = {
            name: asyncio.get_running_loop().create_future() for name in (b"first", b"other")
        }
        order = []

        async def dispatch(connection: Any, frame: bytearray) -> Any:
            name = bytes(frame[:5])
            order.append(name)
            if name in gates:
                await gates[name]
            return [bytes(frame[:8])]

        async def asked(name: bytes, size: int, host: str = "127.0.0.1") -> Any:
            reader, writer = await connect(network, local_addr=(host, 0))
            writer.write(add_length(name + bytes(size)))
            return reader, writer

        async with network_for(dispatch, queued_max_request_bytes=MOST) as network:
            opened = [await asked(b"first", 400_000), await asked(b"other", 400_000)]
            await wait_until(lambda: len(order) == 2)
            before = network.counts.accepted
            opened += [await asked(b"third", 450_000), await asked(b"elsewhere", 450_000, "127.0.0.2")]
            await wait_until(lambda: network.counts.accepted == before + 2)
            await asyncio.sleep(0.1)
            assert len(order) == 2
            gates[b"first"].set_result(None)
            await wait_until(lambda: len(order) == 4)
            gates[b"other"].set_result(None)
            assert order[2:] == [b"elsew", b"third"]
            for reader, writer in opened:
                await answer_of(reader)
                writer.close()

    asyncio.run(run())


def test_who_sends_whole_requests_goes_before_those_who_never_do(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        async with network_for(echo_frame, queued_max_request_bytes=MOST) as network:
            halves = [await half_of(network, LARGE) for _ in range(6)]
            reader, writer = await connect(network)
            writer.write(SMALL)
            assert await answer_of(reader) == SMALL[4:]
            writer.write(LARGE)
            await wait_until(lambda: len(network.unfinished.waiting) == len(halves))
            monkeypatch.setattr(unfinished, "STALL_S", STALL_S)
            assert await answer_of(reader) == LARGE[4:]
            assert network.counts.refused == {"unfinished": 1}, "the others had their turn before"
            for _, other in (*halves, (reader, writer)):
                other.close()

    asyncio.run(run())


def test_a_large_request_goes_first_where_another_came_whole() -> None:
    order = []

    async def dispatch(connection: Any, frame: bytearray) -> Any:
        order.append(bytes(frame[:5]))
        if frame[:5] == b"holds":
            await gate
        return [bytes(frame[:8])]

    async def run() -> None:
        nonlocal gate
        gate = asyncio.get_running_loop().create_future()
        async with network_for(dispatch, queued_max_request_bytes=MOST) as network:
            opened = [await connect(network) for _ in range(3)]
            for (reader, writer), before in zip(opened[1:], (20, 400_000), strict=True):
                writer.write(add_length(bytes(before)))
                await answer_of(reader)
            order.clear()
            for (_, writer), name in zip(opened, (b"holds", b"other", b"large"), strict=True):
                before = network.counts.bytes_in
                writer.write(add_length(name + bytes(600_000)))
                await wait_until(lambda before=before: network.counts.bytes_in > before)
            await wait_until(lambda: order == [b"holds"])
            gate.set_result(None)
            await wait_until(lambda: len(order) == 3)
            assert order == [b"holds", b"large", b"other"]
            for reader, writer in opened:
                await answer_of(reader)
                writer.close()

    gate: Any = None
    asyncio.run(run())


def test_small_requests_that_are_never_whole_do_not_stop_the_others() -> None:
    async def run() -> None:
        async with network_for(echo_frame, queued_max_request_bytes=MOST) as network:
            half = add_length(bytes(60_000))
            halves = [await half_of(network, half) for _ in range(40)]
            reader, writer = await connect(network)
            writer.write(SMALL)
            assert await answer_of(reader) == SMALL[4:]
            assert network.counts.request_bytes <= MOST
            assert network.counts.refused["unfinished"] > 0
            halves[-1][1].write(half[len(half) // 2 :])  # the latest is the last to go
            assert await answer_of(halves[-1][0]) == half[4:]
            for _, other in (*halves, (reader, writer)):
                other.close()

    asyncio.run(run())


@pytest.mark.parametrize("most", [-1, 100_000])
def test_strangers_have_a_budget_of_their_own(most: int) -> None:
    async def dispatch(connection: Any, frame: bytearray) -> Any:
        connection.is_authenticated = connection.is_authenticated or frame == b"password"
        return [bytes(frame)]

    async def run() -> None:
        settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "queued_max_request_bytes": most}
        async with network_for(dispatch, **settings) as network:
            user = await connect(network, "SASL_PLAINTEXT")
            user[1].write(add_length(b"password"))
            await answer_of(user[0])
            half = add_length(bytes(524_288))
            strangers = [await half_of(network, half, listener="SASL_PLAINTEXT") for _ in range(80)]
            for reader, writer in (user, await connect(network, "SASL_PLAINTEXT")):
                for body in (b"password", b"12345678"):
                    writer.write(add_length(body))
                    assert await answer_of(reader) == body
                writer.close()
            assert network.counts.request_bytes <= UNAUTHENTICATED_BYTES
            assert await is_closed(strangers[0][0])  # the oldest goes
            assert set(network.counts.refused) == {"unfinished"}
            strangers[-1][1].write(half[len(half) // 2 :])
            assert await answer_of(strangers[-1][0]) == half[4:]
            for _, writer in strangers:
                writer.close()

    asyncio.run(run())


@pytest.mark.parametrize("is_split", [False, True])
def test_nothing_is_counted_of_requests_that_have_ended(is_split: bool) -> None:
    """Else the limit would move a little with each of them."""
    async def run() -> None:
        async with network_for(echo_frame, queued_max_request_bytes=MOST) as network:
            reader, writer = await connect(network)
            for _ in range(20):
                if is_split:
                    before = network.counts.bytes_in
                    writer.write(SMALL[:6])
                    await wait_until(lambda before=before: network.counts.bytes_in > before)
                    assert sum(network.unfinished._bytes) > 0
                    writer.write(SMALL[6:])
                else:
                    writer.write(SMALL)
                assert await answer_of(reader) == SMALL[4:]
            assert network.unfinished._bytes == [0, 0]
            writer.close()

    asyncio.run(run())


@pytest.mark.parametrize("loop_factory", both_loops())
@pytest.mark.parametrize("sent", [SMALL[:1], SMALL[:-1], SMALL, SMALL + SMALL, SMALL + SMALL[:-1]])
def test_reset_that_arrives_with_bytes_ends_the_connection(
    loop_factory: Any, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of both together, the loop may report the bytes only."""
    monkeypatch.setattr(listener, "_SWEEP_SECONDS", 0.05)

    async def run() -> None:
        async def nothing(connection: Any, frame: bytearray) -> None:
            return None

        async with network_for(nothing) as network:
            port = network.listeners["PLAINTEXT"].port
            for _ in range(3):
                with socket.create_connection(("127.0.0.1", port)) as sock:
                    sock.sendall(sent)
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await wait_until(lambda: network.counts.accepted == 3 and not network.channels)
            assert (network.counts.open, network.counts.request_bytes) == (0, 0)

    run_in(loop_factory, run())


@pytest.mark.parametrize("loop_factory", both_loops())
def test_reset_that_arrives_with_a_request_ends_its_wait(loop_factory: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "_SWEEP_SECONDS", 0.05)

    async def run() -> None:
        async def wait(connection: Any, frame: bytearray) -> None:
            connection.may_cancel = True
            await asyncio.get_running_loop().create_future()

        async with network_for(wait) as network:
            with socket.create_connection(("127.0.0.1", network.listeners["PLAINTEXT"].port)) as sock:
                sock.sendall(SMALL)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await wait_until(lambda: network.counts.accepted and not (network.channels or network.counts.working))

    run_in(loop_factory, run())
