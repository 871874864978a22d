"""Slow parts of an append run in a thread while the event loop serves others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkalog._core.batch.scan import scan
from kafkalog.types import TopicPartition
from kafkalog.util.fileio import FileSystem
from tests.builder import R, batch
from tests.gates import PATIENCE_S, SyncGate
from tests.server.replica.partitions import T0, error_codes, make_batch, replicas_in

SAFE = TopicPartition("safe", 0)


class Syncing(FileSystem):
    """Knows which threads waited for the disk."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def fsync(self, fd: int) -> None:  # type: ignore[override]
        self.threads.add(threading.get_ident())

    def fdatasync(self, fd: int) -> None:  # type: ignore[override]
        self.threads.add(threading.get_ident())


def test_others_are_served_while_an_append_waits_for_its_flush(tmp_path: Path) -> None:
    """LOG-50: `flush.messages` flushes before the answer."""
    gate = SyncGate()

    async def main() -> None:
        async with replicas_in(tmp_path, fs=gate) as replicas:
            replicas.add_topic("safe", 1, flush_messages="1")
            gate.shut()
            try:
                writer = asyncio.create_task(replicas.produce(SAFE))
                await asyncio.to_thread(gate.wait_inside)
                assert error_codes(await replicas.produce(T0)) == [0]
                assert not writer.done()
            finally:
                gate.open_gate()
            assert error_codes(await writer) == [0]

    asyncio.run(main())


@pytest.mark.parametrize("settings", [{"flush_messages": "2"}, {"segment_bytes": "1048576"}])
def test_no_append_syncs_a_file_on_the_loop(tmp_path: Path, settings: dict[str, str]) -> None:
    """Nor one that begins a segment."""
    syncing = Syncing()

    async def main() -> None:
        async with replicas_in(tmp_path, fs=syncing) as replicas:
            replicas.add_topic("safe", 1, **settings)
            syncing.threads.clear()
            assert error_codes(await replicas.produce(SAFE)) == [0]  # with the first one an epoch begins
            assert syncing.threads, "the file of epochs is synced"
            for _ in range(4):
                data = batch([R(bytes(400_000), timestamp=5_000)])
                assert error_codes(await replicas.produce(SAFE, data=data)) == [0]
            assert threading.get_ident() not in syncing.threads

    asyncio.run(main())


def test_others_are_served_while_an_append_waits_for_the_lock_of_its_log(tmp_path: Path) -> None:
    """A clean, a roll or a truncation renames files under it."""

    async def main() -> None:
        async with replicas_in(tmp_path) as replicas:
            replicas.add_topic("safe", 1)
            assert error_codes(await replicas.produce(SAFE)) == [0]
            is_held, may_end, ends = threading.Event(), threading.Event(), []

            def hold() -> None:
                with replicas.find(SAFE).log.fields.lock:
                    is_held.set()
                    ends.append(may_end.wait(PATIENCE_S))

            holder = asyncio.create_task(asyncio.to_thread(hold))
            await asyncio.to_thread(is_held.wait)
            data = make_batch()
            assert replicas.append_at_once(SAFE, data, scan(data), 1) is None
            writer = asyncio.create_task(replicas.produce(SAFE))
            assert error_codes(await replicas.produce(T0)) == [0]
            assert not writer.done()
            may_end.set()
            await holder
            assert ends == [True], "the loop waited for the lock"
            assert error_codes(await writer) == [0]

    asyncio.run(main())


@pytest.mark.parametrize(("codec", "in_pool"), [("gzip", True), ("producer", False), ("uncompressed", False)])
def test_what_has_to_be_packed_is_packed_by_a_thread(tmp_path: Path, codec: str, in_pool: bool) -> None:
    async def main() -> None:
        async with replicas_in(tmp_path) as replicas:
            replicas.add_topic("safe", 1, compression_type=codec)
            assert error_codes(await replicas.produce(SAFE)) == [0]
            handed: list[object] = []
            run: Callable[..., object] = replicas._run

            def noted(*args: object) -> object:
                handed.append(args)
                return run(*args)

            replicas._run = noted  # type: ignore[assignment]
            assert error_codes(await replicas.produce(SAFE, data=batch([R(bytes(500_000), timestamp=5_000)]))) == [0]
            assert error_codes(await replicas.produce(SAFE, data=make_batch())) == [0]
            assert len(handed) == in_pool

    asyncio.run(main())
