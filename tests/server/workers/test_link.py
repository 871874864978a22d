"""Calls between the processes of a server whose other end is slow, stops, or has ended."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from kafkalog.errors import IllegalArgument, KafkalogError
from kafkalog.server.settings.config import ServerConfig
from kafkalog.server.workers import workers as module
from kafkalog.server.workers.link import Link, LinkLost, Message
from kafkalog.server.workers.owner import Owner
from kafkalog.server.workers.workers import Workers
from tests.server.looping import in_loop


class Slow:
    """Answers each call once it `may_answer`; `began` and `done` have the calls' names."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.done: list[str] = []
        self.may_answer = asyncio.Event()

    async def answer(self, name: str, message: Message) -> Message:
        self.began.append(name)
        await self.may_answer.wait()
        self.done.append(name)
        return Message({"closes": False, "mute_ms": 0, "code": 0}, b"done")


@asynccontextmanager
async def ends(slow: Slow) -> AsyncIterator[tuple[Link, Link]]:
    """Open both ends of a link: that of a worker, and that of a main process which is so slow."""
    worker, main = Link(slow.answer, list), Link(slow.answer, list)
    for link, sock in zip((worker, main), socket.socketpair(), strict=True):
        await link.open(sock)
    yield worker, main
    worker.close()
    main.close()


async def until(condition: Any) -> None:
    while not condition():
        await asyncio.sleep(0)


@in_loop
async def test_a_change_that_a_worker_passed_on_before_it_ended_is_made_whole() -> None:
    slow = Slow()
    async with ends(slow) as (worker, main):
        asking = asyncio.ensure_future(worker.call("relay"))
        await until(lambda: slow.began)
        worker.close()
        with pytest.raises(LinkLost):
            await asking
        await until(lambda: not main.is_open)
        main.close()
        slow.may_answer.set()
        await until(lambda: slow.done)


@in_loop
async def test_a_worker_that_stops_waits_for_no_client_and_for_its_changes() -> None:
    slow = Slow()
    async with ends(slow) as (worker, _):
        owner = Owner(worker, 1)
        owner._node = SimpleNamespace(monotonic_ms=int)  # type: ignore[assignment]
        client = SimpleNamespace(
            id=1, listener="", security_protocol="", peer_host="", peer_port=1, principal="", software_name="",
            software_version="", mute_until_ms=0,
        )  # fmt: skip
        relayed = asyncio.ensure_future(
            owner.relay(SimpleNamespace(connection=client), bytearray())  # type: ignore[arg-type]
        )
        stored = asyncio.ensure_future(worker.call("share_write"))
        await until(lambda: len(slow.began) == 2)
        owner.stop()
        assert await relayed is None
        slow.may_answer.set()
        assert (await stored).values["code"] == 0


@in_loop
async def test_a_call_whose_answer_is_cancelled_fails_and_does_not_wait_for_ever() -> None:
    slow = Slow()
    async with ends(slow) as (worker, main):
        asking = asyncio.ensure_future(worker.call("share_read"))
        await until(lambda: slow.began)
        [answering] = main._answering
        answering.cancel()
        with pytest.raises(KafkalogError, match="cancelled"):
            await asking


@in_loop
async def test_an_answer_that_cannot_be_written_is_an_error_of_its_caller(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(Slow):
        async def answer(self, name: str, message: Message) -> Message:
            return Message({"id": object()})

    async with ends(Wrong()) as (worker, _):
        with pytest.raises(KafkalogError):
            await worker.call("share_letters")
    assert "share_letters" in caplog.text


@pytest.mark.parametrize("error", [None, IllegalArgument("unknown")])
def test_a_worker_that_does_not_do_what_it_is_asked_is_logged(
    error: Exception | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def call(*_: object) -> None:
        if error is not None:
            raise error
        await asyncio.get_running_loop().create_future()

    async def run() -> None:
        workers = Workers(ServerConfig(), ["a", "b"], 2)
        monkeypatch.setattr(workers, "call", call)
        assert await workers.shares._ask(1, "share_left", {}, 0.01) is None
        assert await workers.collected("status") == []

    monkeypatch.setattr(module, "PUSH_SECONDS", 0.01)
    with caplog.at_level(logging.WARNING):
        asyncio.run(run())
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == 2 and "worker 1" in said[0] and "share_left" in said[0]


@in_loop
async def test_a_worker_that_does_not_run_is_logged_once_by_those_who_start_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def call(*_: object) -> None:
        raise LinkLost("it has ended")

    workers = Workers(ServerConfig(), ["a", "b"], 2)
    monkeypatch.setattr(workers, "call", call)
    assert await workers.ask(1, "share_left", {}, 1.0) is None
    assert caplog.records == []
