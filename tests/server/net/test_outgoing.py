"""Ranges of files on their way to a socket: sendfile, what stands in for it, and clients that do not read."""

import asyncio
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kafkalog.server.net import outgoing
from kafkalog.storage.file_slice import FileSlice
from kafkalog.storage.lazy_file import LazyFile
from kafkalog.util.fileio import OS
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

CONTENT = os.urandom(1 << 20) * 5
ASKED = add_length(b"12345678")


def pieces(path: Path) -> list[Any]:
    file = LazyFile(str(path), OS, "r")
    ranges = [FileSlice(file, 10, 3_000_000), b"between", FileSlice(file, 0, 7), FileSlice(file, 5, 0)]
    return [b"head", *ranges, b"", b"tail", FileSlice(file, 1, 1), b""]


EXPECTED = b"head" + CONTENT[10:3_000_010] + b"between" + CONTENT[:7] + b"tail" + CONTENT[1:2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    made = tmp_path / "file"
    made.write_bytes(CONTENT)
    return made


async def fetch_all(path: Path, **settings: Any) -> bytes:
    async def dispatch(connection: Any, frame: bytearray) -> Any:
        return pieces(path)

    async with network_for(dispatch, **settings) as network:
        reader, writer = await connect(network)
        for _ in range(2):
            writer.write(ASKED)
            data = await answer_of(reader)
        writer.close()
        assert network.counts.bytes_out == 2 * (len(data) + 4)
        return data


@pytest.mark.parametrize("loop", both_loops())
def test_a_range_goes_by_sendfile(path: Path, monkeypatch: pytest.MonkeyPatch, loop: Any) -> None:
    monkeypatch.setattr(FileSlice, "read", lambda self: pytest.fail("it was read"))
    assert run_in(loop, fetch_all(path)) == EXPECTED


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
@pytest.mark.parametrize("after", [0, 2])
def test_a_plain_copy_where_sendfile_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch, code: int, after: int
) -> None:
    real, calls = os.sendfile, []

    def sendfile(*args: Any) -> int:
        calls.append(args)
        if len(calls) > after:
            raise OSError(code, os.strerror(code))
        return real(*args)

    monkeypatch.setattr(os, "sendfile", sendfile)
    assert asyncio.run(fetch_all(path)) == EXPECTED
    assert len(calls) == after + 1


def test_a_range_that_is_not_in_memory_is_read_by_a_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = []
    real = outgoing.warm
    monkeypatch.setattr("kafkalog.server.net.connection.warm", lambda piece: read.append(piece.size) or real(piece))
    monkeypatch.setattr(outgoing, "_is_warm", lambda *args: False)
    assert asyncio.run(fetch_all(path)) == EXPECTED
    assert sum(read) >= 3_000_000


@pytest.mark.parametrize("loop", both_loops())
def test_a_client_that_never_reads_holds_up_nobody_and_no_memory(path: Path, loop: Any) -> None:
    async def run() -> None:
        async def dispatch(connection: Any, frame: bytearray) -> Any:
            return pieces(path) * 40 if frame == b"much...." else [bytes(frame)]

        async with network_for(dispatch) as network:
            lazy = await connect(network)
            lazy[1].write(add_length(b"much....") + ASKED * 10_000)
            reader, writer = await connect(network)
            for _ in range(50):
                writer.write(ASKED)
                assert await answer_of(reader) == b"12345678"
            channel = min(network.channels.items())[1]
            held = [piece for piece in channel._out._pieces if isinstance(piece, memoryview)]
            assert channel.is_busy
            assert sum(len(piece) for piece in held) < 10_000
            assert network.counts.request_bytes < 1 << 17
            for one in (lazy[1], writer):
                one.close()

    run_in(loop, run())


def test_a_file_that_was_cut_closes_the_connection(path: Path) -> None:
    async def run() -> None:
        async def dispatch(connection: Any, frame: bytearray) -> Any:
            answer = pieces(path)
            os.truncate(path, 1_000_000)
            return answer

        async with network_for(dispatch) as network:
            reader, writer = await connect(network)
            writer.write(ASKED)
            data = await asyncio.wait_for(reader.read(), 60)
            assert data == (len(EXPECTED).to_bytes(4, "big") + EXPECTED)[: len(data)]
            assert len(data) < len(EXPECTED)
            assert await is_closed(reader)
            writer.close()

    asyncio.run(run())


@pytest.mark.parametrize("code, is_reported", [(errno.ENOBUFS, True), (errno.EMSGSIZE, True), (errno.EPIPE, False),
                                               (errno.ECONNRESET, False), (errno.EHOSTUNREACH, False)])  # fmt: skip
def test_an_unexpected_error_of_a_send_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, code: int, is_reported: bool
) -> None:
    def send(*args: Any) -> bool:
        raise OSError(code, os.strerror(code))

    async def run() -> None:
        async with network_for(echo_frame) as network:
            reader, writer = await connect(network)
            writer.write(ASKED)
            assert await is_closed(reader)
            writer.close()

    monkeypatch.setattr(outgoing.Outgoing, "send", send)
    asyncio.run(run())
    lines = [one.getMessage() for one in caplog.records if one.levelname == "ERROR"]
    assert len(lines) == is_reported
    assert all("cannot send a response to" in one and os.strerror(code) in one for one in lines)
