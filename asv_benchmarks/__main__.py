"""`python -m asv_benchmarks`: the table of speeds, with ratios against peers run in the same call.

LINES sets the number of lines (default 10,000,000), KAFKA=0 leaves the embedded Kafka out; name groups to run only
those: commands, compress, append, scan, lookup, read, crc, verify, recover, open, arrow, codecs, durability, clean,
serve, share, workers, topics, replicate, strangers, cluster, snapshots, typed, filter, keys, query, tables, backup,
redact. VERIFY_MB sets the size of the log that is verified or cleaned (default 1000), SERVE_RECORDS the number of
records of 1 KiB sent to the server, and of those that a share group takes (default 400,000), REPLICATE_S and
REPLICATE_MB_S how long and how fast a replica set is written to (default 20 s, 100 MB/s: 6 GB of disk), CONNECTIONS how
many a server of two processes holds (default 10,000), KEYS the number of keys that are looked up (default 10,000,000),
QUERY_RECORDS that of the records of which queries read a range of time (default 3,000,000; 90,000,000 are 10 GB),
BACKUP_MB the size of the log that is backed up, REDACT_MB that of the log that is redacted (default 1000).
"""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from asv_benchmarks import (
    cleaning,
    cluster,
    codecs,
    columns,
    commands,
    compressing,
    durability,
    engine,
    filtering,
    keeping,
    keyed,
    opening,
    querying,
    recovering,
    replicating,
    serving,
    several,
    sharing,
    snapshots,
    strangers,
    tables,
    topics,
    typed,
    verifying,
)
from asv_benchmarks.measure import Row, show
from asv_benchmarks.peers import kafka_embedded

GROUPS = (
    "commands", "compress", "append", "scan", "lookup", "read", "crc", "verify", "recover", "open", "arrow", "codecs",
    "durability", "clean", "serve", "share", "workers", "topics", "replicate", "strangers", "cluster", "snapshots",
    "typed", "filter", "keys", "query", "tables", "backup", "redact",
)  # fmt: skip
# rows of the embedded Kafka that stand beside rows of ours: their name -> (our rows, theirs times this gives our unit)
KAFKA_ROWS = {
    "append/1": (("append of ready batches of 1",), 1e-6),
    "append/100": (("append of ready batches of 100",), 1e-6),
    "append/1000": (("append of ready batches of 1000",), 1e-6),
    "scan_crc_iterate/1000": (("scan a file to columns with CRC",), 1e-6),
    "random_read/100": (("random read by offset, batches of 100",), 1e-3),
    "offset_for_time/100": (("lookup by time, batches of 100",), 1e-3),
    "recover/1": (("verify, batches of 1 record", "recovery, batches of 1 record"), 1e-9),
    "recover/100": (("verify, batches of 100 records", "recovery, batches of 100 records"), 1e-9),
    "offset_index_lookup/warm": (("index lookup, warm",), 1.0),
    "offset_index_lookup/random": (("index lookup, random",), 1.0),
}


def main(wanted: list[str]) -> None:
    unknown = set(wanted) - set(GROUPS)
    if unknown:
        sys.exit(f"unknown group {', '.join(sorted(unknown))}: known are {', '.join(GROUPS)}")
    groups = wanted or list(GROUPS)
    missing = "left out (KAFKA=0)" if os.environ.get("KAFKA") == "0" else kafka_embedded.available()
    with tempfile.TemporaryDirectory(prefix="kafkalog-bench-") as work:
        rows = _measure(groups, Path(work), missing is None)
        if missing is None:
            _beside_kafka(rows, groups)
    if missing is not None:
        print(f"Kafka embedded: {missing}")
    show(rows)


def _measure(groups: list[str], work: Path, reference: bool) -> list[Row]:
    def number(name: str, usual: float) -> float:
        return float(os.environ.get(name, usual))

    lines, megabytes = int(number("LINES", 10_000_000)), int(number("VERIFY_MB", 1000))
    measured: dict[str, Callable[[Path], list[Row]]] = {
        "commands": lambda at: commands.rows(at, lines, reference),
        "compress": lambda at: compressing.rows(at, lines),
        "codecs": lambda at: codecs.rows(at, lines, reference),
        "verify": lambda at: verifying.rows(at, megabytes),
        "recover": lambda at: recovering.rows(at, megabytes),
        "clean": lambda at: cleaning.rows(at, megabytes, reference),
        "serve": lambda at: serving.rows(at, int(number("SERVE_RECORDS", 400_000))) if reference else [],
        "share": lambda at: sharing.rows(at, int(number("SERVE_RECORDS", 400_000))) if reference else [],
        "workers": lambda at: several.rows(at, int(number("CONNECTIONS", 10_000))),
        "replicate": lambda at: replicating.rows(at, number("REPLICATE_S", 20), number("REPLICATE_MB_S", 100)),
        "query": querying.rows, "tables": tables.rows,
        "backup": lambda at: keeping.backup_rows(at, int(number("BACKUP_MB", 1000))),
        "redact": lambda at: keeping.redact_rows(at, int(number("REDACT_MB", 1000))),
        "strangers": strangers.rows, "cluster": cluster.rows, "snapshots": snapshots.rows, "topics": topics.rows,
        "open": opening.rows, "arrow": columns.rows,
        "typed": typed.rows, "filter": filtering.rows, "keys": keyed.rows, "durability": durability.rows,
        "append": engine.append_rows, "scan": engine.scan_rows, "lookup": engine.lookup_rows, "read": engine.read_rows,
        "crc": lambda at: engine.crc_rows(),
    }  # fmt: skip
    rows: list[Row] = []
    for group in groups:
        directory = work / group
        directory.mkdir()
        rows += measured[group](directory)
    return rows


def _beside_kafka(rows: list[Row], groups: list[str]) -> None:
    asked = [
        g
        for g, ours in (("append", "append"), ("read", "read scan"), ("index", "lookup"), ("recover", "verify recover"))
        if set(ours.split()) & set(groups)
    ]
    by_work = {row.work: row for row in rows}
    for result in kafka_embedded.measure(asked) if asked else ():
        works, scale = KAFKA_ROWS.get(result["name"], ((), 1.0))
        for work in works:
            if work in by_work:
                by_work[work].peers["Kafka"] = float(result["cpu"]) * scale


if __name__ == "__main__":
    main(sys.argv[1:])
