"""`python -m asv_benchmarks`: the table of speeds, with ratios against peers run in the same call.

LINES sets the number of lines (default 10,000,000), KAFKA=0 leaves the embedded Kafka out; name groups to run only
those: commands, compress, append, scan, lookup, read, crc, verify, recover, open, arrow, codecs, durability, clean,
serve, topics, replicate, strangers. VERIFY_MB sets the size of the log that is verified or cleaned (default 1000),
SERVE_RECORDS the number of records of 1 KiB sent to the server (default 400,000), REPLICATE_S and REPLICATE_MB_S how
long and how fast a replica set is written to (default 20 s, 100 MB/s: 6 GB of disk).
"""

import os
import sys
import tempfile
from pathlib import Path

from asv_benchmarks import (
    cleaning,
    codecs,
    columns,
    commands,
    compressing,
    durability,
    engine,
    opening,
    recovering,
    replicating,
    serving,
    strangers,
    topics,
    verifying,
)
from asv_benchmarks.measure import Row, show
from asv_benchmarks.peers import kafka_embedded

GROUPS = (
    "commands", "compress", "append", "scan", "lookup", "read", "crc", "verify", "recover", "open", "arrow", "codecs",
    "durability", "clean", "serve", "topics", "replicate", "strangers",
)  # fmt: skip
REPLICATE = (("REPLICATE_S", "20"), ("REPLICATE_MB_S", "100"))
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
    missed = [row.work for row in rows if not row.reached]
    print(f"{len(rows) - len(missed)} of {len(rows)} bars reached" + (f"; not: {', '.join(missed)}" if missed else ""))


def _measure(groups: list[str], work: Path, reference: bool) -> list[Row]:
    rows: list[Row] = []
    for group in groups:
        directory = work / group
        directory.mkdir()
        if group == "commands":
            rows += commands.rows(directory, int(os.environ.get("LINES", "10000000")), reference)
        elif group == "compress":
            rows += compressing.rows(directory, int(os.environ.get("LINES", "10000000")))
        elif group == "codecs":
            rows += codecs.rows(directory, int(os.environ.get("LINES", "10000000")), reference)
        elif group == "verify":
            rows += verifying.rows(directory, int(os.environ.get("VERIFY_MB", "1000")))
        elif group == "recover":
            rows += recovering.rows(directory, int(os.environ.get("VERIFY_MB", "1000")))
        elif group == "clean":
            rows += cleaning.rows(directory, int(os.environ.get("VERIFY_MB", "1000")), reference)
        elif group == "serve":
            rows += serving.rows(directory, int(os.environ.get("SERVE_RECORDS", "400000"))) if reference else []
        elif group == "replicate":
            seconds, mb_s = (float(os.environ.get(name, usual)) for name, usual in REPLICATE)
            rows += replicating.rows(directory, seconds, mb_s)
        elif group == "strangers":
            rows += strangers.rows(directory)
        elif group == "topics":
            rows += topics.rows(directory)
        elif group == "open":
            rows += opening.rows(directory)
        elif group == "arrow":
            rows += columns.rows(directory)
        elif group == "durability":
            rows += durability.rows(directory)
        elif group == "crc":
            rows += engine.crc_rows()
        else:
            rows += getattr(engine, f"{group}_rows")(directory)
    return rows


def _beside_kafka(rows: list[Row], groups: list[str]) -> None:
    asked = [
        g
        for g, ours in (("append", "append"), ("read", "read scan"), ("index", "lookup"), ("recover", "verify recover"))
        if set(ours.split()) & set(groups)
    ]
    by_work = {row.work: row for row in rows}
    for told in kafka_embedded.measure(asked) if asked else ():
        works, scale = KAFKA_ROWS.get(told["name"], ((), 1.0))
        for work in works:
            if work in by_work:
                by_work[work].peers["Kafka"] = float(told["cpu"]) * scale


if __name__ == "__main__":
    main(sys.argv[1:])
