"""A server and its sockets: order, limits, strangers, and its end."""

import asyncio
from pathlib import Path

from kafkalog.server.serving import serving
from kafkalog.server.settings.config import ServerConfig
from tests.server.net.networks import add_length
from tests.server.nodes import SMALL, request_bytes

SOFTWARE = {"client_software_name": "a-client", "client_software_version": "1.2"}


def config_of(**settings: object) -> ServerConfig:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    return ServerConfig({**SMALL, "listeners": "PLAINTEXT://127.0.0.1:0", **given})


def versions_request(correlation_id: int) -> bytes:
    return add_length(request_bytes("api_versions", 3, SOFTWARE, correlation_id=correlation_id))


async def answer_of(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))


def test_answers_come_in_the_order_of_requests(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving([str(tmp_path)], config_of()) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["PLAINTEXT"])
            writer.write(b"".join(versions_request(number) for number in range(2000)))
            for number in range(2000):
                assert (await answer_of(reader))[:4] == number.to_bytes(4, "big")
            writer.close()

    asyncio.run(run())


def test_a_request_may_come_in_any_pieces(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving([str(tmp_path)], config_of()) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["PLAINTEXT"])
            for byte in versions_request(5):
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.001)
            assert (await answer_of(reader))[:4] == (5).to_bytes(4, "big")
            writer.close()

    asyncio.run(run())


def test_strangers_are_closed_and_others_are_served(tmp_path: Path) -> None:
    strangers = [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
                 b"SSH-2.0-OpenSSH_9\r\n", b"\xff\xff\xff\xff", bytes(64),
                 add_length(b"\x03\xe7" + bytes(20))]  # fmt: skip

    async def run() -> None:
        async with serving([str(tmp_path)], config_of()) as server:
            port = server.ports["PLAINTEXT"]
            for stranger in strangers:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(stranger)
                try:
                    assert await reader.read() == b""
                except ConnectionResetError:
                    pass
                writer.close()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(versions_request(1))
            await answer_of(reader)
            writer.close()

    asyncio.run(run())


def test_a_stop_closes_what_is_idle_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving([str(tmp_path)], config_of()) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["PLAINTEXT"])
            writer.write(versions_request(1))
            await answer_of(reader)
        assert await reader.read() == b""
        writer.close()

    asyncio.run(run())


def test_limits_of_connections_change_while_it_runs(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving([str(tmp_path)], config_of()) as server:
            port = server.ports["PLAINTEXT"]
            await server.node.dynamic.change("", {"max.connections.per.ip": "1"})
            first, first_writer = await asyncio.open_connection("127.0.0.1", port)
            first_writer.write(versions_request(1))
            await answer_of(first)
            second, second_writer = await asyncio.open_connection("127.0.0.1", port)
            assert await asyncio.wait_for(second.read(), 60) == b""
            await server.node.dynamic.change("", {"max.connections.per.ip": None, "connections.max.idle.ms": "100"})
            assert await asyncio.wait_for(first.read(), 60) == b""
            for writer in (first_writer, second_writer):
                writer.close()

    asyncio.run(run())
