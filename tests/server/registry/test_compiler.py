"""Protobuf schemas as text need a compiler: a slow one holds up no other request, a talkative one fills no memory."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("kio", reason="the extra `server` is not installed")
pytest.importorskip("google.protobuf", reason="the extra `schemas` is not installed")

from kafkalog.errors import IllegalArgument
from kafkalog.server.node.node import Node
from kafkalog.server.registry import listener
from kafkalog.server.registry.content import Content
from kafkalog.server.registry.errors import RestError
from kafkalog.server.registry.listener import Registry
from kafkalog.server.registry.requests import Plan, Request, request_of
from kafkalog.values import protobuf_schemas
from tests.server.apis.test_topic_calls import with_node

TEXT = b"message A {}"
AVRO = b'{"schema": "\\"int\\""}'
LIMIT_S = 60


def compiler(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(protobuf_schemas, "_protoc", lambda: [sys.executable, "-c", program])


def test_a_slow_compiler_holds_up_no_other_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    compiler(monkeypatch, f"open({str(fifo)!r}).read(); import sys; sys.exit('x.proto:1: late')")

    async def use(node: Node) -> None:
        registry = Registry(lambda: node)
        slow = asyncio.create_task(registry.answer(
            request_of("POST", "/subjects/p/versions", b'{"schemaType": "PROTOBUF", "schema": "message A {}"}')
        ))  # fmt: skip
        writer = await asyncio.to_thread(fifo.open, "wb")  # once the compiler reads
        try:
            made = await asyncio.wait_for(registry.answer(request_of("POST", "/subjects/a/versions", AVRO)), LIMIT_S)
            found = await asyncio.wait_for(registry.answer(request_of("GET", "/subjects")), LIMIT_S)
        finally:
            writer.close()
        assert made.answer == {"id": 1} and found.answer == ["a"]
        with pytest.raises(RestError, match="late") as caught:
            await slow
        assert caught.value.code == 42201

    with_node(tmp_path / "data", use)


def test_changes_at_once_get_ids_of_their_own(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        registry = Registry(lambda: node)
        requests = [
            request_of("POST", "/subjects/a/versions", b'{"schema": "{\\"type\\":\\"fixed\\",\\"name\\":\\"F\\",'
                       b'\\"size\\":%d}"}' % size)
            for size in range(1, 9)
        ]  # fmt: skip
        await registry.answer(request_of("PUT", "/config", b'{"compatibility": "NONE"}'))
        made = await asyncio.gather(*map(registry.answer, requests))
        assert sorted(one.answer["id"] for one in made) == list(range(1, 9))
        assert (await registry.answer(request_of("GET", "/subjects/a/versions"))).answer == list(range(1, 9))

    with_node(tmp_path / "data", use)


def test_a_slow_change_is_answered_though_others_never_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, decided = listener.decide, []

    async def use(node: Node) -> None:
        registry = Registry(lambda: node)
        loop = asyncio.get_running_loop()
        levels = itertools.cycle([b"NONE", b"FULL"])

        def slow(content: Content, request: Request) -> Plan:
            plan = real(content, request)
            if request.parts[0] == "subjects" and len(decided) < 20:
                decided.append(request)
                other = request_of("PUT", "/config", b'{"compatibility": "%s"}' % next(levels))
                changing = asyncio.run_coroutine_threadsafe(registry.answer(other), loop)
                with contextlib.suppress(TimeoutError):  # if it has to wait
                    changing.result(2)
            return plan

        monkeypatch.setattr(listener, "decide", slow)
        made = await registry.answer(request_of("POST", "/subjects/a/versions", AVRO))
        assert made.answer == {"id": 1} and len(decided) < 10

    with_node(tmp_path / "data", use)


def test_a_compiler_that_does_not_stop_talking(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(monkeypatch, "import sys\nwhile True: sys.stderr.write('x.proto:1: bad\\n' * 1000)")
    with pytest.raises(IllegalArgument, match="no Protobuf: x.proto:1: bad") as caught:
        protobuf_schemas.descriptor_files(TEXT)
    assert len(str(caught.value)) < 2 * protobuf_schemas.PROTOC_OUTPUT_BYTES


def test_a_compiler_that_does_not_end(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(monkeypatch, "import signal; signal.pause()")
    monkeypatch.setattr(protobuf_schemas, "PROTOC_TIMEOUT_S", 0.2)
    with pytest.raises(IllegalArgument, match=r"longer than 0\.2 s"):
        protobuf_schemas.descriptor_files(TEXT)
