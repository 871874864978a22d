"""The topics that are read: rows of 100 bytes under keys of 8, written by kafkalog and handed over to a real broker."""

import contextlib
import random
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import kafkalog
from tests.interop.broker import Broker

VALUE_BYTES = 100
PER_BATCH = 130  # what fits the 16 KiB that producers send by default
FIRST_MS = 1_700_000_000_000
CODECS = ("gzip", "snappy", "lz4", "zstd")
# no records may change while they are read; the writer creates the topic
QUIET = {
    "auto.create.topics.enable": "true",
    "log.cleaner.enable": "false",
    "log.initial.task.delay.ms": "3600000",
    "num.io.threads": "4",
}
HEAP = ("-Xms1g", "-Xmx1g")
WORDS = ("click", "view", "buy", "sell", "open", "close", "login", "logout", "north", "south", "east", "west")


@dataclass(frozen=True)
class Topic:
    """A topic of `rows` records over `partitions` partitions."""

    name: str
    partitions: int
    rows: int
    codec: str = "none"


def topics(rows: int) -> list[Topic]:
    """Return a topic of one partition, and one of two."""
    return [Topic(f"rows{partitions}", partitions, rows) for partitions in (1, 2)]


def compressed(rows: int) -> list[Topic]:
    """Return a topic of one partition for each codec."""
    return [Topic(f"rows-{codec}", 1, rows, codec) for codec in CODECS]


def write(data: Path, topic: Topic) -> None:
    """Write a topic into a data directory."""
    records = _records(200 * PER_BATCH)
    for number in range(topic.partitions):
        with kafkalog.open(data / f"{topic.name}-{number}", "a", retention_ms=-1) as log:
            left = topic.rows // topic.partitions
            while left > 0:
                for start in range(0, len(records), PER_BATCH):
                    count = min(PER_BATCH, left)
                    if count > 0:
                        log.append(records[start : start + count], compression=topic.codec)
                    left -= count


def _records(count: int) -> list[tuple[bytes, bytes, int]]:
    """Return keys, values that compress to about a third as text does, and times."""
    rng = random.Random(7)
    rows = []
    for i in range(count):
        text = f'{{"id":{rng.randrange(10**9)},"do":"{rng.choice(WORDS)}","at":"{rng.choice(WORDS)}","user":'
        text += f'{rng.randrange(10**6)},"price":{rng.random():.4f},"note":"{rng.choice(WORDS)}"}}'
        rows.append((b"%08d" % i, text.encode().ljust(VALUE_BYTES)[:VALUE_BYTES], FIRST_MS + i))
    return rows


@contextlib.contextmanager
def served(work: Path, data: Path) -> Iterator[Broker]:
    """Yield a broker that has taken the directory over."""
    broker = Broker(None, work, data, QUIET, HEAP)
    broker.format()
    handover = [sys.executable, "-m", "kafkalog.cli.main", "handover", "-q", "-d", str(data), "--apply"]
    subprocess.run(handover, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    with broker:
        yield broker
