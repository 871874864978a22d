"""A peer that lies costs its connection, and nothing more."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkalog.errors import KafkalogError, MalformedRequest
from kafkalog.server.client.errors import PeerError, PeerMisbehaved
from kafkalog.server.client.login import connect
from kafkalog.server.client.messages import read_answer
from kafkalog.server.client.settings import PeerSettings
from kafkalog.server.wire.versions import APIS, api_versions_body
from tests.server.client.peers import HOST, METADATA, error_of, liar, number_of, open_connection, peer
from tests.server.client.test_connection import ALL_TOPICS
from tests.server.looping import in_loop
from tests.server.net.networks import add_length

SOUND = bytes(5) + b"\1\0" + bytes(4) + b"\1" + bytes(3)  # what Metadata 13 says where nothing is, behind the id
LIES = {
    "another correlation id": lambda request: add_length(b"\0\0\x12\x34" + SOUND),
    "a negative correlation id": lambda request: add_length(b"\xff\xff\xff\xff" + SOUND),
    "nothing behind the id": lambda request: add_length(number_of(request)),
    "a header without end": lambda request: add_length(number_of(request) + b"\x01\x00\xff\xff\xff\xff\x0f"),
    "a body that ends early": lambda request: add_length(number_of(request) + b"\0\0\0"),
    "more elements than bytes": lambda request: add_length(
        number_of(request) + b"\0" + bytes(4) + b"\xff\xff\xff\xff\x07"
    ),
    "a name beyond the end": lambda request: add_length(number_of(request) + b"\0" + bytes(4) + b"\x02\0\0\0\0\x7f"),
    "bytes behind the end": lambda request: add_length(number_of(request) + bytes(200)),
    "a length below an id": lambda request: b"\0\0\0\x03abc",
    "a negative length": lambda request: b"\xff\xff\xff\xff",
    "a length above the limit": lambda request: b"\x7f\xff\xff\xff",
    "two answers to one question": lambda request: add_length(number_of(request) + SOUND) * 2,
}


@in_loop
async def test_what_is_sound_is_taken() -> None:
    """So that the lies are refused for what is wrong in them."""
    async with liar(lambda request: add_length(number_of(request) + SOUND)) as port:
        async with open_connection(port) as connection:
            assert (await connection.request(METADATA, ALL_TOPICS)).topics == ()


@pytest.mark.parametrize("lie", LIES.values(), ids=LIES.keys())
@in_loop
async def test_a_lie_is_told_and_ends_the_connection(lie: object) -> None:
    async with liar(lie) as port, open_connection(port) as connection:  # type: ignore[arg-type]
        asked = (connection.request(METADATA, ALL_TOPICS) for _ in range(3))
        answers = await asyncio.gather(*asked, return_exceptions=True)
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        assert len(errors) >= 2
        for error in errors:
            assert isinstance(error, PeerMisbehaved) and error.peer == f"{HOST}:{port}"
        assert not connection.is_open


@in_loop
async def test_an_answer_that_nobody_asked_for() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        writer.write(add_length(number_of(request) + api_versions_body(3, APIS)) + add_length(b"\0\0\0\x01more"))
        await reader.read()

    async with peer(serve) as port, open_connection(port) as connection:
        while connection.is_open:
            await asyncio.sleep(0.001)
        assert isinstance(await error_of(connection.request(METADATA, ALL_TOPICS)), PeerMisbehaved)


@in_loop
async def test_a_length_takes_no_memory_before_its_bytes_come() -> None:
    """100 MB are promised, and 2000 bytes come."""
    async with liar(lambda request: (100 << 20).to_bytes(4, "big") + bytes(2000)) as port:
        async with open_connection(port, request_ms=200) as connection:
            await error_of(connection.request(METADATA, ALL_TOPICS))
            assert connection._frames.held_bytes <= 1 << 20


@in_loop
async def test_a_peer_that_knows_old_versions_only() -> None:
    """KIP-511: the first answer is of version 0 and has its error."""
    def answer(request: bytes) -> bytes:
        if request[2:4] == b"\0\x03":
            return add_length(number_of(request) + b"\0\x23" + b"\0\0\0\x01\0\x12\0\0\0\x02")
        return add_length(number_of(request) + b"\0\0" + b"\0\0\0\x01\0\x03\0\0\0\x01")

    async with liar(answer, is_honest_first=False) as port, open_connection(port) as connection:
        assert connection.versions == {3: (0, 1)} and connection.version_of(METADATA) == 1


@in_loop
async def test_a_lie_while_we_connect() -> None:
    for lie in LIES.values():
        async with liar(lie, is_honest_first=False) as port:  # type: ignore[arg-type]
            error = await error_of(connect(HOST, port, PeerSettings(connect_ms=2_000)))
            assert isinstance(error, PeerError)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([1, 2, 3, 18, 23, 36]), st.integers(0, 20), st.binary(max_size=300))
def test_any_bytes_are_an_answer_or_malformed(api_key: int, step: int, data: bytes) -> None:
    """Whatever comes, reading it ends in values or in MalformedRequest."""
    api = APIS[api_key]
    version = api.oldest + step % (api.newest - api.oldest + 1)
    try:
        read_answer(api_key, version, bytearray(b"\0\0\0\0" + data))
    except KafkalogError as error:
        assert isinstance(error, MalformedRequest)
