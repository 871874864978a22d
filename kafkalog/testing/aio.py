"""The cluster for tests with asyncio: each call runs in a thread, so that the test's own loop goes on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from kafkalog.testing.cluster import KafkaCluster, kafka_cluster
from kafkalog.util.shielded import shielded

if TYPE_CHECKING:
    import os

    from kafkalog.testing.faults import Fault, Unmatched
    from kafkalog.testing.nodes import CutOff
    from kafkalog.testing.recorder import Recorder

P = ParamSpec("P")
T = TypeVar("T")


async def _in_thread(function: Callable[P, T], /, *args: P.args, **given: P.kwargs) -> T:
    import asyncio

    return await asyncio.to_thread(function, *args, **given)


class AsyncCluster:
    """A `KafkaCluster` with the same calls as coroutines; `cluster` is the one that they call.

    Attributes are not coroutines: `bootstrap` and `registry_url`, and those of returned objects, such as `matched`,
    `fired` and `requests`.

    >>> import asyncio
    >>> async def test() -> tuple[int, int, int]:
    ...     async with async_kafka_cluster(nodes=1, topics="orders", registry=True, unmatched="ignore") as cluster:
    ...         fault, seen = await cluster.fault("Produce", error="REQUEST_TIMED_OUT"), await cluster.record()
    ...         assert cluster.bootstrap and cluster.registry_url.startswith("http://127.0.0.1:")
    ...         count = await cluster.call("record_count", "orders")
    ...         await cluster.end(seen)
    ...         await cluster.end(fault)
    ...         return count, fault.matched, await cluster.leader()
    >>> asyncio.run(test())
    (0, 0, 1)
    """

    def __init__(self, cluster: KafkaCluster) -> None:
        self.cluster = cluster

    @property
    def bootstrap(self) -> str:
        """Addresses of all nodes."""
        return self.cluster.bootstrap

    @property
    def registry_url(self) -> str:
        """Addresses of all nodes' schema registries. IllegalState without `registry=True`."""
        return self.cluster.registry_url

    async def leader(self) -> int:
        """Return the node that leads."""
        return await _in_thread(self.cluster._leader)

    async def fault(self, api: str | Iterable[str], **given: Any) -> Fault:
        """Change the answers to calls of an API, as `KafkaCluster.fault`; `await end(fault)` ends it."""
        return await _in_thread(self.cluster.fault, api, **given)

    async def end(self, one: Fault | Recorder | CutOff) -> None:
        """End a fault or a recorder, or heal a node that was cut off."""
        end: Callable[[], None] | None = None
        for name in ("remove", "close", "heal"):
            end = end or getattr(one, name, None)
        assert end is not None
        await _in_thread(end)

    async def record(self, **given: Any) -> Recorder:
        """Record requests, as `KafkaCluster.record`."""
        return await _in_thread(self.cluster.record, **given)

    async def call(self, name: str, *args: Any, **given: Any) -> Any:
        """Return the result of the method of this name of the cluster, such as "kill", "advance" or "wait_for"."""
        return await _in_thread(getattr(self.cluster, name), *args, **given)


@asynccontextmanager
async def async_kafka_cluster(
    nodes: int = 3,
    *,
    topics: Mapping[str, int] | Iterable[str] = (),
    settings: Mapping[str, object] | None = None,
    directory: str | os.PathLike[str] | None = None,
    unmatched: Unmatched = "warn",
    seed: object = 0,
    registry: bool = False,
    telemetry: bool = False,
) -> AsyncIterator[AsyncCluster]:
    """Run a cluster for the duration of an `async with` block. Arguments and errors are those of `kafka_cluster`.

    A start that is cancelled ends once the cluster is up, and stopped again.

    >>> import asyncio
    >>> async def test() -> int:
    ...     async with async_kafka_cluster(nodes=1, topics="orders") as cluster:
    ...         return await cluster.call("record_count", "orders")
    >>> asyncio.run(test())
    0
    """
    import asyncio

    block = kafka_cluster(
        nodes, topics=topics, settings=settings, directory=directory, unmatched=unmatched, seed=seed, registry=registry,
        telemetry=telemetry,
    )  # fmt: skip
    starting = asyncio.ensure_future(_in_thread(block.__enter__))
    try:
        cluster = await shielded(starting)
    except asyncio.CancelledError:
        with suppress(Exception):  # the thread goes on: what it starts ends with the block
            await starting
            await _in_thread(block.__exit__, None, None, None)
        raise
    try:
        yield AsyncCluster(cluster)
    except BaseException as error:
        leave = partial(block.__exit__, type(error), error, error.__traceback__)
        if not await _in_thread(leave):
            raise
    else:
        await _in_thread(block.__exit__, None, None, None)
