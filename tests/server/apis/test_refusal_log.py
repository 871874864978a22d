"""Unsupported and refused requests are logged once per client software and call. Bytes after the end
of a request are ignored, as brokers of 4.3.1 and 4.4.0 ignore them."""

import asyncio
import logging
from pathlib import Path

import pytest

from kafkalog.server.apis.dispatch import dispatch
from kafkalog.server.node.node import Node
from kafkalog.server.requests.context import CLOSE, Connection
from kafkalog.server.requests.refusal_log import RefusalLog
from kafkalog.server.serving import serving
from kafkalog.server.settings.config import ServerConfig
from tests.server.nodes import KEYS, call, connection_for, joined, node_for, request_bytes, run_node

LOGGER = "kafkalog.server.requests.refusal_log"
ACLS = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [one.getMessage() for one in caplog.records if one.name == LOGGER]


async def client(node: Node, software: str, version: str = "1.2") -> Connection:
    connection = connection_for()
    named = {"client_software_name": software, "client_software_version": version}
    assert (await call(node, "api_versions", 3, named, connection=connection)).error_code == 0
    return connection


def frame_of(api_key: int, version: int) -> bytearray:
    frame = request_bytes("metadata", 1, {"topics": None}, client_id="app\n7")
    frame[:4] = api_key.to_bytes(2, "big") + version.to_bytes(2, "big")
    return frame


def test_what_is_not_served_is_told_once_for_each_software_and_call(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(node: Node) -> None:
        ours, other = await client(node, "librdkafka"), await client(node, "sarama")
        for connection in (ours, ours, other):
            for key, version in ((88, 0), (KEYS["metadata"], 99), (12345, 1)):
                assert await dispatch(node, connection, frame_of(key, version)) is CLOSE
        assert await dispatch(node, connection_for(), frame_of(88, 0)) is CLOSE

    with caplog.at_level(logging.INFO, LOGGER):
        run_node(tmp_path, use)
    start = "closed the connection of {} with client id 'app\\n7' at 127.0.0.1:0: {} is not served"
    named = ("streams_group_heartbeat (88) version 0", "metadata version 99", "call 12345 version 1")
    assert lines(caplog) == [
        *(start.format(who, what) for who in ("librdkafka 1.2", "sarama 1.2") for what in named),
        start.format("a client of unknown software", named[0]),
    ]
    assert {one.levelno for one in caplog.records if one.name == LOGGER} == {logging.WARNING}


def test_a_call_that_is_refused_as_a_whole_is_told_once_for_each_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def use(node: Node) -> None:
        connection = await client(node, "kgo")
        tree = {"topics": [], "timeout": 1, "validate_only": False}
        node.is_read_only = True
        for _ in range(2):
            await call(node, "create_topics", 5, tree, connection=connection)
        node.is_read_only = False
        await call(node, "create_topics", 5, tree, connection=connection)

    with caplog.at_level(logging.INFO, LOGGER):
        run_node(tmp_path, use)
    line = "refused create_topics of kgo 1.2 with client id 'test' at 127.0.0.1:0: error 44, this server is read-only"
    assert lines(caplog) == [line]


def test_a_request_that_is_none_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def use() -> None:
        settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.cleaner.dedupe.buffer.size": 4 << 20}
        async with serving([str(tmp_path)], ServerConfig(settings)) as server:
            for sent in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x0b" + b"\0\x03\0\x01\0\0\0\x07\0\x09a"):
                reader, writer = await asyncio.open_connection("127.0.0.1", server.ports["PLAINTEXT"])
                writer.write(sent)
                assert await reader.read() == b""
                writer.close()

    asyncio.run(use())
    too_long, malformed = lines(caplog)
    assert "a client of unknown software at 127.0.0.1:" in too_long and "1195725856" in too_long
    assert "no request of Kafka's: a client id of 9 bytes goes beyond the message" in malformed


def test_the_lines_do_not_grow_without_end(caplog: pytest.LogCaptureFixture) -> None:
    log, connection = RefusalLog(), connection_for()
    for number in range(1500):
        connection.software_version = str(number)
        log.closed(connection, "fetch", "malformed", "a reason")
    assert len(lines(caplog)) == 1001 and "no more will be" in lines(caplog)[-2]


@pytest.mark.parametrize("extra", [b"\0", b"\0\1\2\3junk"])
def test_bytes_behind_the_end_of_a_request_are_ignored(tmp_path: Path, extra: bytes) -> None:
    """A Go client ends DescribeAcls with tagged fields twice; brokers of 4.3.1 and 4.4.0 answer as without them."""

    async def run() -> None:
        async with node_for(tmp_path) as node:
            for name, version, tree in (
                ("describe_acls", 3, ACLS), ("describe_acls", 1, ACLS), ("metadata", 1, {"topics": []}),
                ("api_versions", 3, {"client_software_name": "a", "client_software_version": "1"}),
                ("list_groups", 4, {"states_filter": []}),
            ):  # fmt: skip
                frame = request_bytes(name, version, tree)
                answers = [await dispatch(node, connection_for(), bytearray(one)) for one in (frame, frame + extra)]
                plain, longer = (joined(one) if isinstance(one, list) else one for one in answers)
                assert longer == plain is not CLOSE

    asyncio.run(run())
