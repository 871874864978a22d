"""`python -m asv_benchmarks.spark`: each bar of Spark as a row, with ratios against peers run in the same call.

ROWS sets the number of rows (default 5,000,000), ROUNDS how often each is measured (3); name groups to run only
those: one, two (topics of so many partitions), compressed, narrow, sink, streams, tables, verify, memory. The group
tables needs a Spark of its own, 575 MB (python -m tests.interop.lakehouse fetches it): it runs only by its name.
"""

import os
import sys
import tempfile
from pathlib import Path

from asv_benchmarks.measure import Row, show
from asv_benchmarks.spark import checking, contest, memory, reading, streaming, tables, topics, writing
from asv_benchmarks.spark.queries import Sources
from asv_benchmarks.spark.session import session

GROUPS = ("one", "two", "compressed", "narrow", "sink", "streams", "verify", "memory")
BY_NAME = ("tables",)


def main(wanted: list[str]) -> None:
    unknown = set(wanted) - {*GROUPS, *BY_NAME}
    if unknown:
        sys.exit(f"unknown group {', '.join(sorted(unknown))}: known are {', '.join((*GROUPS, *BY_NAME))}")
    contest.ROUNDS = int(os.environ.get("ROUNDS", str(contest.ROUNDS)))
    rows = int(os.environ.get("ROWS", "5000000"))
    with tempfile.TemporaryDirectory(prefix="kafkalog-spark-") as work:
        show(_measure(wanted or list(GROUPS), Path(work), rows))


def _measure(groups: list[str], work: Path, rows: int) -> list[Row]:
    data, scratch = work / "data", work / "spark"
    data.mkdir()
    scratch.mkdir()
    plain = topics.topics(rows)
    packed = topics.compressed(rows) if "compressed" in groups else []
    sized = memory.topics(rows) if "memory" in groups else ()
    for topic in (*plain, *packed, *sized):
        topics.write(data, topic)
    bars: list[Row] = []
    if "tables" in groups:
        with topics.served(work, data) as broker:
            bars += tables.table_bars(data, broker.bootstrap, plain[1], work)
        groups = [one for one in groups if one != "tables"]
        if not groups:
            return bars
    with topics.served(work, data) as broker, session(scratch) as spark:
        sources = Sources(spark, data, broker.bootstrap)
        if "memory" in groups:  # before others have used the workers
            bars += memory.memory_bars(sources, *memory.topics(rows))
        for group, topic in zip(("one", "two"), plain, strict=True):
            if group in groups:
                bars += reading.plain_bars(sources, topic, scratch)
        if "compressed" in groups:
            bars += reading.compressed_bars(sources, packed)
        if "narrow" in groups:
            bars += reading.narrow_bars(sources, plain[0])
        if "sink" in groups:
            bars += writing.sink_bars(sources, plain[1], work)
        if "streams" in groups:
            bars += streaming.stream_bars(spark, scratch)
    if "verify" in groups:  # its own sessions, when the broker is gone
        bars += checking.verify_bars(data, scratch)
    return bars


if __name__ == "__main__":
    main(sys.argv[1:])
