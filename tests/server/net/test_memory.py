"""Memory that clients take by what they do not read, or do not finish, and by logins."""

import asyncio
import socket
from typing import Any

from kafkalog.server.security.sasl import Session
from tests.server.net.networks import add_length, answer_of, connect, network_for

ASKED = add_length(b"12345678")


async def one_that_never_reads(network: Any, answer: bytes) -> Any:
    """A connection that asked, and whose answer was written as far as the system takes it."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", network.listeners["PLAINTEXT"].port))
    await loop.sock_sendall(sock, add_length(answer) * 3)
    return sock


def test_clients_that_never_read_get_one_answer_each_and_are_not_read() -> None:
    async def run() -> None:
        asked = []

        async def dispatch(connection: Any, frame: bytearray) -> Any:
            asked.append(connection.id)
            return [bytes(1 << 20) if frame == b"large..." else bytes(frame)]

        async with network_for(dispatch, socket_send_buffer_bytes=4096) as network:
            socks = [await one_that_never_reads(network, b"large...") for _ in range(5)]
            while len(asked) < 5:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.1)
            assert len(asked) == len(set(asked)) == 5
            # what was written of an answer is kept, too, until the last of it is
            assert 5 << 20 <= network.counts.response_bytes < 5 * ((1 << 20) + 100)
            loop, left = asyncio.get_running_loop(), 3 * (4 + (1 << 20))
            while left:
                left -= len(await loop.sock_recv(socks[0], min(left, 1 << 16)))
            assert network.counts.response_bytes < 4 * ((1 << 20) + 100)
            for sock in socks:
                sock.close()
            while network.channels:
                await asyncio.sleep(0.01)
            assert network.counts.response_bytes == 0

    asyncio.run(run())


def test_answers_that_nobody_takes_are_given_up_where_they_are_too_many_the_oldest_first() -> None:
    async def run() -> None:
        async def dispatch(connection: Any, frame: bytearray) -> Any:
            return [bytes(1 << 20) if frame == b"large..." else bytes(frame)]

        settings = {"socket_send_buffer_bytes": 4096, "kafkalog_queued_max_response_bytes": 5 << 19}
        async with network_for(dispatch, **settings) as network:
            socks = []
            for number in range(1, 5):
                socks.append(await one_that_never_reads(network, b"large..."))
                while network.counts.response_bytes < number << 20:
                    await asyncio.sleep(0.01)
            reader, writer = await connect(network)
            writer.write(ASKED)
            assert await answer_of(reader) == b"12345678"  # no other request waits for them
            assert len(network.channels) == 5
            while network.counts.response_bytes > 5 << 19:
                await asyncio.sleep(0.01)
            assert sorted(network.channels) == [3, 4, 5]
            assert network.counts.refused == {"unread": 2}
            writer.write(ASKED)
            assert await answer_of(reader) == b"12345678"
            writer.close()
            for sock in socks:
                sock.close()

    asyncio.run(run())


def test_a_login_that_would_expire_is_forgotten_with_its_connection() -> None:
    async def run() -> None:
        session = Session()

        async def dispatch(connection: Any, frame: bytearray) -> Any:
            session.expiry = asyncio.get_running_loop().call_later(3600, print)
            connection.sasl = session
            return [bytes(frame)]

        async with network_for(dispatch) as network:
            reader, writer = await connect(network)
            writer.write(ASKED)
            await answer_of(reader)
            expiry = session.expiry
            assert expiry is not None
            writer.close()
            while network.channels:
                await asyncio.sleep(0.01)
            assert expiry.cancelled()

    asyncio.run(run())
