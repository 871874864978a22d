"""A topic for queries: several segments and partitions, times that fall and repeat, compressed batches among plain."""

from pathlib import Path

import kafkalog

T = 1_700_000_000_000
PARTITIONS, ROWS = 3, 2400


def make_topics(directory: Path) -> Path:
    """Create `orders` and a topic whose name SQL has to quote."""
    with kafkalog.open_dirs(directory, "a") as dirs:
        dirs.create_topic("orders", PARTITIONS, {"segment.bytes": 1 << 14, "index.interval.bytes": 512})
        for partition in range(PARTITIONS):
            for start in range(0, ROWS, 20):
                dirs["orders", partition].append(
                    [(b"k%d" % (n % 7), b"%d " % n * 12, time_of(partition, n)) for n in range(start, start + 20)],
                    compression="lz4" if start % 60 == 0 else None,
                )
        dirs.create_topic("web-clicks.v2", 1)
        dirs["web-clicks.v2", 0].append(b"click")
    return directory


def time_of(partition: int, n: int) -> int:
    """A record a second, of which every 50th is a hundred seconds late."""
    return T + 1000 * (n + partition - (100 if n % 50 == 49 else 0))


def bytes_read(dirs: kafkalog.LogDirs, topic: str = "orders") -> int:
    """Bytes of log files that readers of these directories have read so far."""
    return sum(log._source.metrics.reads.total for log in dirs.logs(topic))
