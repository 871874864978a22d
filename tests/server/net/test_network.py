"""Limits, back-pressure, and clients that are slow, lie, or go away."""

import asyncio
import inspect
import threading
import tracemalloc
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog.server.net.frames import FrameReader
from kafkalog.server.requests.context import CLOSE
from kafkalog.server.running import raise_descriptor_limit
from kafkalog.server.settings.config import ServerConfig
from tests.server.net.networks import add_length, answer_of, connect, echo_frame, is_closed, monotonic_ms, network_for

ASKED = add_length(b"12345678")


def test_a_request_that_waits_keeps_the_order_and_holds_up_nobody_else() -> None:
    async def run() -> None:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def dispatch(connection: Any, frame: bytearray) -> Any:
            if frame == b"waits...":
                await gate
                await asyncio.sleep(0)
            return [bytes(frame)]

        async with network_for(dispatch) as network:
            reader, writer = await connect(network)
            writer.write(add_length(b"waits...") + ASKED)
            other, other_writer = await connect(network)
            for _ in range(3):
                other_writer.write(ASKED)
                assert await answer_of(other) == b"12345678"
            assert network.counts.working == 1
            gate.set_result(None)
            assert [await answer_of(reader), await answer_of(reader)] == [b"waits...", b"12345678"]
            assert network.counts.working == 0
            writer.close()
            other_writer.close()

    asyncio.run(run())


def test_tasks_are_made_of_coroutines_alone() -> None:
    # since Python 3.12 an event loop takes no generator for one
    async def run() -> None:
        made = []

        def of_coroutines(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
            made.append(inspect.iscoroutine(work))
            return asyncio.Task(work, loop=loop, **more)

        async def dispatch(connection: Any, frame: bytearray) -> Any:
            await asyncio.sleep(0)
            return [bytes(frame)]

        async with network_for(dispatch) as network:
            reader, writer = await connect(network)
            asyncio.get_running_loop().set_task_factory(of_coroutines)
            writer.write(ASKED)
            assert await answer_of(reader) == b"12345678"
            asyncio.get_running_loop().set_task_factory(None)
            writer.close()
        assert made and all(made)

    asyncio.run(run())


@pytest.mark.parametrize("may_cancel", [True, False])
def test_a_client_that_goes_away_ends_a_request_that_may_be_ended(may_cancel: bool) -> None:
    async def run() -> None:
        ended = []
        started, goes_on = asyncio.Event(), asyncio.Event()

        async def dispatch(connection: Any, frame: bytearray) -> Any:
            connection.may_cancel = may_cancel
            started.set()
            try:
                await goes_on.wait()
                ended.append("done")
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise
            return [b"x"]

        async with network_for(dispatch) as network:
            _, writer = await connect(network)
            writer.write(ASKED)
            await started.wait()
            writer.close()
            if not may_cancel:
                await asyncio.sleep(0.1)
                goes_on.set()
            while not ended or network.channels:
                await asyncio.sleep(0.01)
            assert ended == ["cancelled" if may_cancel else "done"]
            assert (network.counts.working, network.counts.request_bytes) == (0, 0)

    asyncio.run(run())


def test_a_client_that_goes_away_with_more_on_its_way_is_gone_all_the_same() -> None:
    async def run() -> None:
        async def dispatch(connection: Any, frame: bytearray) -> Any:
            connection.may_cancel = True
            await asyncio.sleep(60)
            return [bytes(frame)]

        async with network_for(dispatch, connections_max_idle_ms=5000) as network:
            _, writer = await connect(network)
            writer.write(ASKED)
            while not network.counts.working:
                await asyncio.sleep(0.01)
            writer.write(b"\0")
            await asyncio.sleep(0.1)
            assert network.counts.working == 1
            writer.close()
            async with asyncio.timeout(60):
                while network.channels or network.counts.working:
                    await asyncio.sleep(0.01)

    asyncio.run(run())


@pytest.mark.parametrize("lie", [-1, 0, 7, 101, 2**31 - 1, -(2**31)])
def test_a_length_that_no_request_has_closes_the_connection(lie: int) -> None:
    async def run() -> None:
        async with network_for(echo_frame, socket_request_max_bytes=100) as network:
            reader, writer = await connect(network)
            writer.write(lie.to_bytes(4, "big", signed=True) + bytes(20))
            assert await is_closed(reader)
            assert network.counts.refused == {"bad_frame": 1}
            writer.close()

    asyncio.run(run())


def test_a_request_without_memory_for_it_closes_its_connection_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop would call its reader again and again, and write a traceback each time."""

    def fail(_: object) -> None:
        raise MemoryError

    async def run() -> None:
        async with network_for(echo_frame) as network:
            reader, writer = await connect(network)
            monkeypatch.setattr(FrameReader, "room", fail)
            writer.write((1 << 20).to_bytes(4, "big") + bytes(1 << 20))
            assert await is_closed(reader)
            assert network.counts.refused == {"no_memory": 1}
            writer.close()
            monkeypatch.undo()
            reader, writer = await connect(network)
            writer.write(ASKED)
            assert await reader.readexactly(len(ASKED)) == ASKED
            writer.close()

    asyncio.run(run())


def test_a_length_that_is_not_kept_takes_no_memory() -> None:
    async def run() -> None:
        async with network_for(echo_frame) as network:
            opened = []
            tracemalloc.start()
            for _ in range(30):
                opened.append(await connect(network))
                opened[-1][1].write((100 << 20).to_bytes(4, "big") + bytes(100))
            while network.counts.bytes_in < 30 * 104:
                await asyncio.sleep(0.01)
            assert network.counts.request_bytes < 30 * 8192
            assert tracemalloc.get_traced_memory()[1] < 8 << 20
            tracemalloc.stop()
            for _, writer in opened:
                writer.close()
            while network.channels:
                await asyncio.sleep(0.01)
            assert network.counts.request_bytes == 0

    asyncio.run(run())


def test_who_is_not_authenticated_sends_no_more_than_that_takes() -> None:
    async def run() -> None:
        async def dispatch(connection: Any, frame: bytearray) -> Any:
            connection.sasl = SimpleNamespace(is_bare=frame == b"bare....", end=lambda: None)
            connection.is_authenticated = frame == b"password"
            return [bytes(frame[:8])]

        settings = {"listeners": "SASL_PLAINTEXT://127.0.0.1:0", "sasl_server_max_receive_size": 100}
        async with network_for(dispatch, **settings) as network:
            for first, size, is_taken in (
                (b"nothing.", 100, True), (b"nothing.", 101, False), (b"nothing.", 7, False), (b"bare....", 0, True),
                (b"password", 5000, True),
            ):  # fmt: skip
                reader, writer = await connect(network, "SASL_PLAINTEXT")
                writer.write(add_length(first))
                assert await answer_of(reader) == first
                writer.write(add_length(bytes(size)))
                if is_taken:
                    assert await answer_of(reader) == bytes(min(size, 8))
                else:
                    assert await is_closed(reader)
                writer.close()

    asyncio.run(run())


def test_a_large_request_comes_whole() -> None:
    async def run() -> None:
        async with network_for(echo_frame) as network:
            reader, writer = await connect(network)
            body = bytes(range(256)) * 20_000
            writer.write(add_length(body))
            assert await answer_of(reader) == body
            writer.write(ASKED)
            assert await answer_of(reader) == b"12345678"
            writer.close()

    asyncio.run(run())


def test_more_connections_of_one_address_than_it_may_have_are_closed() -> None:
    async def run() -> None:
        async with network_for(echo_frame, max_connections_per_ip=2) as network:
            first, second, third = [await connect(network) for _ in range(3)]
            assert await is_closed(third[0])
            first[1].close()
            while len(network.channels) > 1:
                await asyncio.sleep(0.01)
            fourth = await connect(network)
            fourth[1].write(ASKED)
            assert await answer_of(fourth[0]) == b"12345678"
            for _, writer in (second, third, fourth):
                writer.close()

    asyncio.run(run())


def test_an_address_may_have_a_limit_of_its_own() -> None:
    async def run() -> None:
        overrides = {"max.connections.per.ip.overrides": "127.0.0.1:1,10.0.0.1:9"}
        async with network_for(echo_frame, **overrides) as network:
            first, second = [await connect(network) for _ in range(2)]
            assert await is_closed(second[0])
            for _, writer in (first, second):
                writer.close()

    asyncio.run(run())


@pytest.mark.parametrize("name", ["max.connections", "listener.name.plaintext.max.connections"])
def test_more_connections_than_there_may_be_wait_to_be_taken(name: str) -> None:
    async def run() -> None:
        async with network_for(echo_frame, **{name: 1}) as network:
            first, second = [await connect(network) for _ in range(2)]
            second[1].write(ASKED)
            first[1].write(ASKED)
            assert await answer_of(first[0]) == b"12345678"
            await asyncio.sleep(0.05)
            assert network.counts.accepted == 1
            first[1].close()
            assert await answer_of(second[0]) == b"12345678"
            second[1].close()

    asyncio.run(run())


def test_a_socket_is_watched_for_writing_only_while_an_answer_waits() -> None:
    """Else the loop would turn without end."""
    async def run() -> None:
        async def large(connection: Any, frame: bytearray) -> Any:
            return [bytes(8 << 20)]

        async with network_for(large) as network:
            reader, writer = await connect(network)
            writer.write(ASKED)
            while not network.channels:
                await asyncio.sleep(0.01)
            [channel] = network.channels.values()
            while not channel._is_writing:
                await asyncio.sleep(0.01)
            assert len(await answer_of(reader)) == 8 << 20
            while channel.is_busy:
                await asyncio.sleep(0.01)
            assert not network.loop.remove_writer(channel._sock.fileno())
            writer.close()

    asyncio.run(run())


def test_connections_of_all_listeners_count_together() -> None:
    async def run() -> None:
        settings: dict[str, Any] = {
            "listeners": "PLAINTEXT://127.0.0.1:0,INSIDE://127.0.0.1:0", "max_connections": 2,
            "listener_security_protocol_map": "PLAINTEXT:PLAINTEXT,INSIDE:PLAINTEXT",
        }  # fmt: skip
        async with network_for(echo_frame, **settings) as network:
            taken = [await connect(network, name) for name in ("PLAINTEXT", "INSIDE")]
            for reader, writer in taken:
                writer.write(ASKED)
                assert await answer_of(reader) == b"12345678"
            third = await connect(network, "INSIDE")
            third[1].write(ASKED)
            await asyncio.sleep(0.05)
            assert network.counts.accepted == 2
            taken[1][1].close()
            assert await answer_of(third[0]) == b"12345678"
            for _, writer in (taken[0], third):
                writer.close()

    asyncio.run(run())


def test_a_connection_on_which_nothing_happens_is_closed_and_one_that_waits_is_not() -> None:
    async def run() -> None:
        goes_on = asyncio.Event()

        async def dispatch(connection: Any, frame: bytearray) -> Any:
            await goes_on.wait()
            return [bytes(frame)]

        async with network_for(dispatch) as network:
            waits = await connect(network)
            waits[1].write(ASKED)
            while not network.counts.working:
                await asyncio.sleep(0.01)
            network.apply_config(ServerConfig({"connections.max.idle.ms": 150}))
            idle = await connect(network)
            assert await is_closed(idle[0])
            goes_on.set()
            assert network.counts.refused == {"idle": 1}
            assert await answer_of(waits[0]) == b"12345678"
            for _, writer in (idle, waits):
                writer.close()

    asyncio.run(run())


def test_no_socket_is_read_while_too_many_calls_wait_for_a_thread() -> None:
    async def run() -> None:
        gate = threading.Event()

        async def dispatch(connection: Any, frame: bytearray) -> Any:
            if frame == b"blocks..":
                await network.run(gate.wait)
            return [bytes(frame)]

        async with network_for(dispatch, num_io_threads=1, queued_max_requests=1) as network:
            blocked = [await connect(network) for _ in range(2)]
            for _, writer in blocked:
                writer.write(add_length(b"blocks.."))
            while network.pool.waiting < 1:
                await asyncio.sleep(0.01)
            reader, writer = await connect(network)
            writer.write(ASKED)
            before = network.counts.bytes_in
            await asyncio.sleep(0.1)
            assert network.counts.bytes_in == before
            gate.set()
            assert await answer_of(reader) == b"12345678"
            for one, _ in blocked:
                assert await answer_of(one) == b"blocks.."
            assert network.pool.counts.waits_ms.count == 2
            for _, one in [*blocked, (reader, writer)]:
                one.close()

    asyncio.run(run())


def test_no_new_request_is_read_while_those_in_memory_have_too_many_bytes() -> None:
    async def run() -> None:
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def dispatch(connection: Any, frame: bytearray) -> Any:
            if len(frame) > 1000:
                await gate
            return [bytes(frame[:8])]

        async with network_for(dispatch, queued_max_request_bytes=1000) as network:
            large, small = await connect(network), await connect(network)
            large[1].write(add_length(bytes(5000)))
            while not network.counts.working:
                await asyncio.sleep(0.01)
            small[1].write(ASKED)
            await asyncio.sleep(0.1)
            assert network.counts.request_bytes == 5000
            gate.set_result(None)
            assert await answer_of(large[0]) == bytes(8)
            assert await answer_of(small[0]) == b"12345678"
            for _, writer in (large, small):
                writer.close()

    asyncio.run(run())


@pytest.mark.parametrize("asked", [b"close...", b"fails...", b"large..."])
def test_what_came_after_a_request_that_ends_its_connection_counts_no_more(asked: bytes) -> None:
    async def run() -> None:
        async def dispatch(connection: Any, frame: bytearray) -> Any:
            if frame == b"fails...":
                raise ValueError
            return {b"close...": CLOSE, b"large...": [bytes(64 << 20)]}.get(bytes(frame), [bytes(frame)])

        async with network_for(dispatch, queued_max_request_bytes=50_000) as network:
            for _ in range(3):
                _, writer = await connect(network)
                writer.write(add_length(asked) + bytes(40_000))
                while not network.counts.bytes_in:
                    await asyncio.sleep(0.01)
                writer.transport.abort()
                while network.channels:
                    await asyncio.sleep(0.01)
                assert network.counts.request_bytes == 0
                network.counts.bytes_in = 0

    asyncio.run(run())


def test_a_muted_connection_is_answered_and_not_read_for_a_while() -> None:
    async def run() -> None:
        async def dispatch(connection: Any, frame: bytearray) -> Any:
            connection.mute_until_ms = monotonic_ms() + (3_600_000 if frame == b"for long" else 200)
            return [bytes(frame)]

        async with network_for(dispatch) as network:
            reader, writer = await connect(network)
            loop = asyncio.get_running_loop()
            began = loop.time()
            writer.write(ASKED * 2 + add_length(b"for long") + ASKED)
            assert [await answer_of(reader), await answer_of(reader)] == [b"12345678"] * 2
            assert loop.time() - began > 0.19
            assert await answer_of(reader) == b"for long"  # at once
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(reader.read(1), 0.1)
            (channel,) = network.channels.values()
            channel.close()
            assert channel._unmute is not None and channel._unmute.cancelled()
            writer.close()

    asyncio.run(run())


def test_a_thousand_connections_are_held_and_served() -> None:
    if raise_descriptor_limit(4096) < 2300:
        pytest.skip("needs 2,300 open files")

    async def run() -> None:
        async with network_for(echo_frame) as network:
            opened = [await connect(network) for _ in range(1000)]
            for _, writer in opened:
                writer.write(ASKED)
            for reader, _ in opened:
                assert await answer_of(reader) == b"12345678"
            assert (network.counts.open, network.counts.request_bytes, network.counts.working) == (1000, 0, 0)
            for _, writer in opened:
                writer.close()

    asyncio.run(run())


def test_close_and_no_answer() -> None:
    async def run() -> None:
        async def dispatch(connection: Any, frame: bytearray) -> Any:
            return {b"nothing.": None, b"close...": CLOSE}.get(bytes(frame), [bytes(frame)])

        async with network_for(dispatch) as network:
            reader, writer = await connect(network)
            writer.write(add_length(b"nothing.") + ASKED + add_length(b"close...") + ASKED)
            assert await answer_of(reader) == b"12345678"
            assert await is_closed(reader)
            writer.close()

    asyncio.run(run())


def test_what_is_being_worked_on_is_answered_before_the_end() -> None:
    async def run() -> None:
        started = asyncio.Event()

        async def dispatch(connection: Any, frame: bytearray) -> Any:
            started.set()
            while not network.listeners["PLAINTEXT"]._is_closed:  # the end has begun
                await asyncio.sleep(0)
            return [bytes(frame)]

        async with network_for(dispatch) as network:
            reader, writer = await connect(network)
            writer.write(ASKED * 2)
            await started.wait()
        assert await answer_of(reader) == b"12345678"
        assert await is_closed(reader)
        writer.close()

    asyncio.run(run())
