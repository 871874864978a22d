"""A data directory with topics of all kinds, the same as a backup, a cluster and a tiered store, and plain readings."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import kafkalog
from kafkalog.backup import create_backup
from kafkalog.manager.topics import TopicStore
from kafkalog.records.format import CompressionType
from kafkalog.server.groups.stored import commit_all, committed_offsets
from kafkalog.testing import KafkaServer, kafka_server
from tests.plain_reader import Read
from tests.redact.model import Batch, Made, read_all, write
from tests.transactional import made

KEEP = {"retention.ms": "-1", "segment.bytes": "1048576"}
EVENTS = [
    ("plain", 0, 2), ("data", 1, 3), ("data", 2, 2), ("commit", 1, 0), ("roll", 0, 0), ("data", 1, 2), ("abort", 2, 0),
    ("plain", 0, 1), ("abort", 1, 0), ("data", 3, 4), ("commit", 3, 0), ("data", 4, 2), ("plain", 0, 2),
]  # fmt: skip
"""Transactions that were committed and aborted, one across segments, and one that is open at the end."""
TRANSACTIONS = made(EVENTS)
GROUPS = {
    "readers": {"plain": {0: 7, 1: 12}, "compacted": {0: 9}, "transactions": {0: 9}, "trimmed": {0: 13}, "old": {0: 5}},
    "at-ends": {"plain": {0: 0, 1: 20}, "transactions": {0: TRANSACTIONS.stable}},
}
TIERED_ID = "oAtiIQ95REujbuzNd_lkLQ"
SERVER = {"log.cleaner.enable": "false"}


class Expected(NamedTuple):
    """A partition of the source: what a follower would copy of it, and the committed records from its start on."""

    start: int
    stop: int
    batches: list[Batch]
    records: list[Read]


def fill(data: Path) -> None:
    """Topics: plain (all codecs), compacted (gaps), transactions, trimmed (its start inside a batch), old formats."""
    with kafkalog.open_dirs(data, "a", log_cleaner_enable=False) as dirs:
        dirs.create_topic("plain", 2, KEEP)
        dirs.create_topic("trimmed", 1, KEEP)
        dirs.create_topic("__consumer_offsets", 1, {**KEEP, "cleanup.policy": "compact"})
        for number in range(2):
            for n, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd")):
                rows = [
                    (b"k%d" % m if m % 3 else None, b"value %d " % m * 9 if m % 5 else None, 1_700_000_000_000 + m,
                     [("h", b"%d" % m), ("null", None)])
                    for m in range(n * 4, n * 4 + 4)
                ]  # fmt: skip
                dirs["plain", number].append(rows, compression=codec)
                if number:
                    dirs["trimmed", 0].append(rows)
        dirs["trimmed", 0].flush()
        dirs["trimmed", 0].delete_before(10)
    gaps = [
        Made(2, CompressionType.NONE, [(b"a", b"1", ()), (b"b", b"2", (("h", b"x"),))], [3, 0]),
        Made(2, CompressionType.ZSTD, [(b"c", b"3", ()), (b"d", b"4", ())], [0, 4]),
        Made(2, CompressionType.GZIP, [(b"e", None, ()), (b"f", b"6", ())], [9, 2], stamped=True),
    ]
    write(data / "compacted-0", [gaps[:1], gaps[1:]])
    legacy = [
        Made(magic, codec, [(b"k", b"%d" % n, ()) for n in range(3)], [0, 0, 0])
        for magic, codec in ((0, CompressionType.NONE), (0, CompressionType.GZIP), (1, CompressionType.SNAPPY),
                             (1, CompressionType.NONE), (2, CompressionType.LZ4))
    ]  # fmt: skip
    write(data / "old-0", [legacy])
    (data / "transactions-0").mkdir()
    TRANSACTIONS.write(data / "transactions-0")
    for path in (data / "transactions-0").glob("*.log"):
        set_epochs(path)
    store = TopicStore(str(data))
    store.ensure("compacted", partitions=1, settings={**KEEP, "cleanup.policy": "compact"})
    for name in ("old", "transactions"):
        store.ensure(name, partitions=1, settings=KEEP)
    commit_all(str(data), GROUPS)


def set_epochs(path: Path) -> None:
    """Give all v2 batches of a segment a leader epoch, as a broker does; no checksum covers it."""
    content, at = bytearray(path.read_bytes()), 0
    while at < len(content):
        content[at + 12 : at + 16] = (3).to_bytes(4, "big")
        at += 12 + int.from_bytes(content[at + 8 : at + 12], "big")
    path.write_bytes(content)


def expected_of(data: Path) -> dict[str, Expected]:
    """Return the directory's content, from its segment files alone."""
    found = {}
    for name in ("plain-0", "plain-1", "compacted-0", "old-0"):
        batches = read_all(data / name)
        records = [record for batch in batches for record in batch.records]
        found[name] = Expected(0, records[-1].offset + 1, batches, records)
    batches = read_all(data / "trimmed-0")
    records = [record for batch in batches for record in batch.records if record.offset >= 10]
    found["trimmed-0"] = Expected(10, 20, [one for one in batches if one.records[-1].offset >= 10], records)
    batches = [one for one in read_all(data / "transactions-0") if one.fixed[0] < TRANSACTIONS.stable]
    visible = set(TRANSACTIONS.committed())
    records = [one for batch in batches for one in batch.records if one.offset in visible]
    found["transactions-0"] = Expected(0, TRANSACTIONS.stable, batches, records)
    return found


@contextmanager
def source_of(kind: str, data: Path, at: Path) -> Iterator[str]:
    """The directory as a source of some kind."""
    if kind == "directory":
        yield str(data)
    elif kind == "backup":
        create_backup(data, at / "backups", committed=committed_offsets)
        yield str(at / "backups")
    elif kind == "tiered":
        for partition in sorted(data.glob("*-[0-9]")):
            name = f"{partition.name}-{TIERED_ID}"
            (at / "tiered" / name).mkdir(parents=True)
            for file in partition.iterdir():
                if file.name[:20].isdecimal() and file.suffix in (".log", ".index", ".timeindex", ".txnindex"):
                    shutil.copy(file, at / "tiered" / name / f"{file.stem}-{TIERED_ID}{file.suffix}")
        yield str(at / "tiered")
    else:
        shutil.copytree(data, at / "served")
        with kafka_server(directory=at / "served", settings=SERVER) as server:
            yield f"kafka://{server.bootstrap}"


@contextmanager
def cluster_on(directory: Path) -> Iterator[KafkaServer]:
    """An empty cluster, whose files are in `directory`."""
    with kafka_server(directory=directory, settings={**SERVER, "auto.create.topics.enable": "false"}) as server:
        yield server


def records_in(partition: Path) -> list[Read]:
    """The records of a partition, from its segment files alone."""
    return [record for batch in read_all(partition) for record in batch.records]


def places(records: list[Read]) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(one.offset, one.key, one.value) for one in records]
