"""Damaged logs behind a server: a client that checks CRCs gets every sound record, or it stops at the damage."""

import asyncio
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import CorruptRecord
from kafkalog.testing import KafkaServer, kafka_server
from tests.damage import damages
from tests.damage.judge import Result, judge
from tests.damage.logs import CLEAN_FILE, PARTITION, RECOVERY_FILE, LogKind, Row, log_of
from tests.damage.oracle import NO_END, Oracle
from tests.damage.ways import Read

aiokafka = pytest.importorskip("aiokafka")

FAMILIES = ("v1 none", "v2 none", "v2 lz4")
IDLE_S = 1.0
"""A consumer that gets nothing for so long, and is not at the end, has stopped."""
END_S = 5.0
"""The server does not tell an end that it cannot read, and a consumer asks for it again and again."""
LONGEST_S = 6.0
"""A consumer that is not at the end by then never comes there."""


Topics = dict[str, tuple[LogKind, damages.Damage]]


def topics(places: Iterable[tuple[int, int]]) -> Topics:
    """A topic for each of some damaged logs, all closed well; `places` are the segments and batches to damage."""
    rng = random.Random(5)
    found = {}
    for family in FAMILIES:
        kind = log_of(family, True, "closed")
        for segment, batch in places:
            target = damages.Target(kind, segment, batch)
            flips = [damages.flip(target, byte, bit) for byte, bit in ((6, 0), (7, 3), (10, 2), (11, 4), (19, 1))]
            for damage in (*flips, *(make(target, rng) for make in damages.OTHERS)):
                found[f"topic{len(found)}"] = kind, damage
    return found


def write_topics(path: Path, damaged: Topics) -> None:
    """A data directory that was closed well, with a damaged partition of each topic."""
    path.mkdir()
    for topic, (kind, damage) in damaged.items():
        files = {name: data for name, data in kind.files.items() if name.startswith(PARTITION)}
        files[kind.segments[damage.segment].name] = damage.data
        (path / f"{topic}-0").mkdir()
        for name, data in files.items():
            (path / f"{topic}-0" / Path(name).name).write_bytes(data)
    ends = [f"{topic} 0 {kind.end}" for topic, (kind, _) in damaged.items()]
    (path / RECOVERY_FILE).write_text("\n".join(["0", str(len(ends)), *ends, ""]))
    (path / CLEAN_FILE).write_bytes(log_of("v2 none", True, "closed").files[CLEAN_FILE])


async def consumed(server: KafkaServer, topic: str) -> Result:
    """Read a partition with a consumer up to its end, an error, or a stop without one."""
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=server.bootstrap, enable_auto_commit=False, check_crcs=True, fetch_max_wait_ms=50,
        retry_backoff_ms=20, request_timeout_ms=60_000,
    )  # fmt: skip
    rows: list[Row] = []
    await consumer.start()
    try:
        where = aiokafka.TopicPartition(topic, 0)
        consumer.assign([where])
        consumer.seek(where, 0)
        async with asyncio.timeout(END_S):
            end = (await consumer.end_offsets([where]))[where]
        deadline = asyncio.get_running_loop().time() + LONGEST_S
        while await consumer.position(where) < end:
            if asyncio.get_running_loop().time() > deadline:
                return Result(rows, CorruptRecord("the consumer gets the same again"))
            got = await consumer.getmany(where, timeout_ms=int(IDLE_S * 1000))
            if not got:
                return Result(rows, CorruptRecord("the consumer has stopped"))
            rows += [Row(one.offset, -1, one.key, one.value) for one in got[where]]
    except Exception as error:
        return Result(rows, CorruptRecord(f"{type(error).__name__}: {error}"))
    finally:
        await consumer.stop()
    return Result(rows, None)


async def all_consumed(server: KafkaServer, names: Iterable[str]) -> list[Result]:
    """Read these topics with consumers, a few at a time."""
    turns = asyncio.Semaphore(12)

    async def one(topic: str) -> Result:
        async with turns:
            return await consumed(server, topic)

    return await asyncio.gather(*map(one, names))


def wrong_with(kind: LogKind, damage: damages.Damage, result: Result, has_warned: bool) -> str | None:
    """Why what a consumer got is wrong; None where it is right."""
    oracle = Oracle(kind, damage)
    known: dict[Any, Row] = {(row.offset, row.value): row for row in [*oracle.originals, *oracle.rows]}
    rows = [known.get((row.offset, row.value), row) for row in result.items]
    read = Read("consumer", "rows", 0, NO_END, lambda log: [])
    verdict, why = judge(read, Result(rows, result.error), oracle, has_warned)
    if verdict.is_failure:
        return f"{kind.name}; {damage.text}: {verdict.value}, {why}"
    missed = [row.offset for row in oracle.rows if rows and row.offset < rows[-1].offset and row not in rows]
    return f"{kind.name}; {damage.text}: jumped over {missed[:5]}" if missed else None


@pytest.mark.parametrize("places", [((0, 6), (1, 0)), ((2, 6), (2, 11))], ids=["earlier segments", "last segment"])
def test_consumer_of_damaged_logs_never_jumps(tmp_path: Path, places: tuple[tuple[int, int], ...]) -> None:
    damaged = topics(places)
    write_topics(tmp_path / "data", damaged)
    with kafka_server(directory=tmp_path / "data") as server:
        results = asyncio.run(all_consumed(server, damaged))
        cut = {line.partition(": cut at byte")[0] for line in server.log().splitlines() if ": cut at byte" in line}
    warned = [any(f"/{topic}-0/" in line for line in cut) for topic in damaged]
    bad = [
        wrong
        for one, result, has_warned in zip(damaged.values(), results, warned, strict=True)
        if (wrong := wrong_with(*one, result, has_warned))
    ]
    assert not bad, f"{len(bad)} of {len(damaged)} topics\n" + "\n".join(bad)
