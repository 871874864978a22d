"""Many topics made and deleted by one request each, at a node without sockets: wall seconds, with all its syncs.

Twice as many are made and deleted as well, beside those that are there: the time grows with what is asked for alone.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from asv_benchmarks.measure import Row
from kafkalog.server.node.node import Node
from kafkalog.server.running import raise_descriptor_limit
from tests.server.nodes import call, node_for

PARTITIONS = 4
TOPICS = 400
ROUNDS = 3
BAR_S = 1.5


def rows(directory: Path) -> list[Row]:
    """Return the seconds to create and to delete 1,600 partitions, and twice as many: the best of some rounds."""
    raise_descriptor_limit()
    rounds = [asyncio.run(_round(directory / f"round{number}")) for number in range(ROUNDS)]
    found = []
    for what in rounds[0]:
        times, value = what[1] // TOPICS, min(one[what] for one in rounds)
        found.append(Row(f"{what[0]} {what[1] * PARTITIONS:,} partitions", value, BAR_S * times, "s", True))
    return found


async def _round(directory: Path) -> dict[tuple[str, int], float]:
    directory.mkdir()
    found: dict[tuple[str, int], float] = {}
    async with node_for(directory) as node:
        names = {count: [f"of{count}-{number}" for number in range(count)] for count in (TOPICS, 2 * TOPICS)}
        for count, wanted in names.items():
            found["create", count] = await _seconds(node, "create_topics", 7, [_topic(name) for name in wanted])
        for count, wanted in names.items():
            gone = [{"name": name, "topic_id": None} for name in wanted]
            found["delete", count] = await _seconds(node, "delete_topics", 6, gone)
    return found


def _topic(name: str) -> dict[str, Any]:
    return {"name": name, "num_partitions": PARTITIONS, "replication_factor": -1, "assignments": [], "configs": []}


async def _seconds(node: Node, name: str, version: int, topics: list[dict[str, Any]]) -> float:
    began = time.perf_counter()
    answer = await call(node, name, version, {"topics": topics, "timeout": 60_000, "validate_only": False})
    took = time.perf_counter() - began
    refused = [one for one in answer[-1] if one.error_code]
    if refused:
        raise RuntimeError(f"{name} said {refused[0]}")
    return took
