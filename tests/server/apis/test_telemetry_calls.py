"""GetTelemetrySubscriptions and PushTelemetry (KIP-714), with and without a receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from kafkalog.records.compression import compress
from kafkalog.records.format import CompressionType
from kafkalog.server.node.node import Node
from kafkalog.server.requests import telemetry
from kafkalog.server.requests.telemetry import PushedMetrics, Telemetry
from kafkalog.server.settings.kinds import CLIENT_METRICS
from tests.server.nodes import Closed, call, connection_for, node_for

ONE = UUID(int=5 << 70 | 3)
SUBSCRIPTION = {"metrics": "org.", "interval.ms": "60000", "match": "client_id=te.t"}


def with_receiver(path: Path, receiver: Any, use: Callable[[Node], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Run `use` on a node whose clients are asked for metrics, if it has a receiver."""

    def prepare(node: Node) -> None:
        if receiver is not None:
            node.telemetry = Telemetry(node, receiver)

    async def run() -> None:
        async with node_for(path, prepare=prepare, **settings) as node:
            await node.dynamic.change_kept(CLIENT_METRICS, "m", SUBSCRIPTION)
            await use(node)

    asyncio.run(run())


async def ask(node: Node, one: UUID | None, **more: Any) -> Any:
    return await call(node, "get_telemetry_subscriptions", 0, {"client_instance_id": one}, **more)


async def push(node: Node, one: UUID, number: int, data: bytes, codec: int = 0, *, is_last: bool = False) -> int:
    tree = {
        "client_instance_id": one, "subscription_id": number, "terminating": is_last, "compression_type": codec,
        "metrics": data,
    }  # fmt: skip
    return int((await call(node, "push_telemetry", 0, tree)).error_code)


async def keys(node: Node) -> set[int]:
    return {one.api_key for one in (await call(node, "api_versions", 3, {
        "client_software_name": "a", "client_software_version": "1",
    })).api_keys}  # fmt: skip


def test_without_a_receiver_neither_call_is_offered(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        assert not await keys(node) & {71, 72}
        with pytest.raises(Closed):
            await ask(node, None)
        with pytest.raises(Closed):
            await push(node, ONE, 0, b"x")

    with_receiver(tmp_path, None, use)


@pytest.mark.parametrize("codec", list(CompressionType))
def test_the_receiver_gets_what_a_client_pushes(tmp_path: Path, codec: CompressionType) -> None:
    received: list[PushedMetrics] = []

    async def use(node: Node) -> None:
        assert await keys(node) >= {71, 72}
        asked = await ask(node, ONE)
        assert (asked.error_code, asked.client_instance_id, asked.push_interval) == (0, ONE, 60_000)
        assert (asked.requested_metrics, asked.telemetry_max_bytes) == (("org.",), 100)
        assert asked.accepted_compression_types == (4, 3, 1, 2) and asked.delta_temporality
        assert await push(node, ONE, asked.subscription_id, bytes(compress(codec, b"the metrics")), codec) == 0
        assert await push(node, ONE, asked.subscription_id, b"the last", is_last=True) == 0

    with_receiver(tmp_path, received.append, use, telemetry_max_bytes=100)
    assert [one.metrics for one in received] == [b"the metrics", b"the last"]
    assert [one.is_terminating for one in received] == [False, True]
    first = received[0]
    assert (first.client_instance_id, first.client_id, first.push_interval_ms) == (ONE, "test", 60_000)


def test_a_client_without_an_id_gets_one_and_only_those_that_match_are_asked(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        first, second = await ask(node, None), await ask(node, None, client_id="another")
        assert first.client_instance_id and first.client_instance_id != second.client_instance_id
        assert (first.requested_metrics, second.requested_metrics) == (("org.",), ())
        assert second.push_interval == 300_000

    with_receiver(tmp_path, print, use)


def test_what_is_refused(tmp_path: Path) -> None:
    """In the order of a broker: too early, the subscription, the codec, the size; what does not decompress last."""
    received: list[PushedMetrics] = []

    async def use(node: Node) -> None:
        number = (await ask(node, ONE)).subscription_id
        assert (await ask(node, ONE)).error_code == 89
        assert await push(node, ONE, number + 1, b"x", 9) == 117
        assert (await ask(node, ONE)).error_code == 0, "at once after an unknown subscription"
        assert await push(node, ONE, number, b"x") == 89
        assert (await ask(node, ONE)).error_code == 89
        for last, (code, after, data, codec) in enumerate((
            (76, 0, bytes(101), 9), (118, 89, bytes(101), CompressionType.NONE),
            (87, 89, bytes(compress(CompressionType.ZSTD, bytes(101))), CompressionType.ZSTD),
            (87, 89, b"damaged", CompressionType.ZSTD), (0, 89, b"", CompressionType.NONE),
        )):  # fmt: skip
            other = UUID(int=100 + last)
            assert await push(node, other, (await ask(node, other)).subscription_id, data, codec) == code
            assert (await ask(node, other)).error_code == after
        assert await push(node, ONE, number, b"last", is_last=True) == 0
        assert await push(node, ONE, number, b"x", is_last=True) == 42
        assert await push(node, UUID(int=1), 0, b"x") == 42

    with_receiver(tmp_path, received.append, use, telemetry_max_bytes=100)
    assert [one.metrics for one in received] == [b"last"]


def test_a_receiver_that_fails_ends_the_pushes_of_the_client(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(pushed: PushedMetrics) -> None:
        raise RuntimeError("the receiver's own fault")

    async def use(node: Node) -> None:
        assert await push(node, ONE, (await ask(node, ONE)).subscription_id, b"x") == 87

    with_receiver(tmp_path, fail, use)
    assert "the receiver's own fault" in caplog.text


def test_a_client_instance_is_forgotten_with_its_connection_or_when_too_many_came_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "MOST_INSTANCES", 2)

    async def use(node: Node) -> None:
        assert (await ask(node, ONE)).error_code == 0
        node.disconnected(connection_for().id)
        assert (await ask(node, ONE)).error_code == 0
        for number in range(50, 52):
            assert (await ask(node, UUID(int=number))).error_code == 0
        assert (await ask(node, UUID(int=51))).error_code == 89
        assert (await ask(node, ONE)).error_code == 0

    with_receiver(tmp_path, print, use)


def test_a_change_of_subscriptions_counts_at_once(tmp_path: Path) -> None:
    async def use(node: Node) -> None:
        before = await ask(node, ONE)
        await node.dynamic.change_kept(CLIENT_METRICS, "all", {"metrics": "*"})
        assert await push(node, ONE, before.subscription_id, b"x") == 117
        after = await ask(node, ONE)
        assert (after.error_code, after.requested_metrics, after.push_interval) == (0, ("*",), 60_000)

    with_receiver(tmp_path, print, use)
