"""Share groups beside a broker of 4.4: Java's share consumer fetches and acknowledges the same records from both.

The two take turns, ROUNDS of each, and the best of each counts. The client and the server share the machine, so records
for each second are the client's as much as the server's; the server's own CPU for each record is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from asv_benchmarks.measure import Row
from asv_benchmarks.servers import Running, cpu_s, serving
from asv_benchmarks.serving import HEAP, SETTINGS, produce, tool
from tests.interop.broker import Broker
from tests.interop.share_calls import Talker

ROUNDS = 2
TOPIC, GROUP = "shared", "share-group"
RECORD_BYTES = 100
SHARE = {
    "share.coordinator.state.topic.num.partitions": "1", "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}  # fmt: skip
_RATE = 4
"""Column of records for each second in the last line of the tool."""


def rows(directory: Path, records: int) -> list[Row]:
    """Return records that are fetched and acknowledged for each second, and the server's CPU for each."""
    ours, theirs = [], []
    for turn in range(ROUNDS):
        theirs.append(_measure(_broker(directory / f"shared-broker{turn}"), records))
        own = serving(directory / f"shared-own{turn}", "localhost:0", SETTINGS | SHARE)
        ours.append(_measure(own, records))
    rate, their_rate = (max(one[0] for one in found) / 1e3 for found in (ours, theirs))
    cpu, their_cpu = (min(one[1] for one in found) for found in (ours, theirs))
    name = f"share fetch and acknowledge {RECORD_BYTES} B"
    return [
        Row(name, rate, their_rate, "k/s", False, {"broker": their_rate}),
        Row(f"{name}, CPU of the server", cpu, their_cpu, "us", True, {"broker": their_cpu}),
    ]


def _measure(server: AbstractContextManager[Running], records: int) -> tuple[float, float]:
    """Return records for each second, and CPU in us of each. A quarter more of them warm both up.

    The tool takes more than it is asked for, so the topic has twice as many.
    """
    with server as running:
        produce(running.bootstrap, TOPIC, RECORD_BYTES, "1", 2 * records)
        Talker(running.bootstrap).set_group(GROUP, share_auto_offset_reset="earliest")
        _consume(running.bootstrap, records // 4)
        began = cpu_s(running.process_id)
        rate = _consume(running.bootstrap, records)
        return rate, (cpu_s(running.process_id) - began) / records * 1e6


def _consume(bootstrap: str, count: int) -> float:
    output = tool(
        "ShareConsumerPerformance", "--topic", TOPIC, "--bootstrap-server", bootstrap, "--num-records", str(count),
        "--group", GROUP, "--timeout", "60000",
    )  # fmt: skip
    return float(output.strip().splitlines()[-1].split(",")[_RATE])


@contextmanager
def _broker(work: Path) -> Iterator[Running]:
    with Broker(None, work, work / "data", SETTINGS | SHARE, HEAP, version="4.4") as broker:
        yield Running(broker.process_id, broker.bootstrap, 0.0)
