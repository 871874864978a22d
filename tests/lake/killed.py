"""The process whose syncs are killed: it forks one for each kill, so that none has to start an interpreter.

    python -m tests.lake.killed DATA TARGET steps|moments upsert|append|tasks [KILLS]

With "steps" the n-th sync kills itself at the n-th call or return of a step of a commit, until one comes to its end;
with "moments" syncs are killed at random moments, until `KILLS` were (12). Each sync is preceded by new records.
"tasks" are those of the Spark job, run by its driver. It prints the number of syncs that were killed.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path

import deltalake
import pyarrow.parquet  # noqa: F401
import pyiceberg.catalog.sql
import pyiceberg.io.pyarrow

import kafkalog
import kafkalog.lake.delta
import kafkalog.lake.iceberg
from kafkalog.lake.sync import sync_topic
from tests.kills import die_at, forked
from tests.spark.killed_sync import sync_here

PARTITIONS, RECORDS, KEYS = 2, 60, 25
STEPS = {
    "kafkalog/lake": {"create", "new_file", "_finish", "commit", "rewrite_files"},
    "pyiceberg/catalog/sql": {"commit_table", "create_namespace"},
    "pyiceberg/table": {"_commit", "_manifests"},
    "pyiceberg/catalog/__init__": {"_write_metadata", "_update_and_stage_table"},
    "deltalake/table": {"create_write_transaction", "create"},
}  # fmt: skip


def append(data: Path, number: int) -> None:
    """More records, of which those of a third of the keys are tombstones in every fourth turn."""
    with kafkalog.open_dirs(data, "a") as dirs:
        if "orders" not in dirs.topics:
            dirs.create_topic("orders", PARTITIONS, {"retention.ms": -1})
        for log in dirs.logs("orders"):
            first = log.end_offset
            log.append([
                (b"k%d" % (n % KEYS), None if number % 4 == 3 and n % KEYS < KEYS // 3 else b"%d" % n)
                for n in range(first, first + RECORDS)
            ])  # fmt: skip


def main(data: Path, target: str, how: str, kind: str, kills: int = 12) -> None:
    def sync() -> None:
        if kind == "tasks":
            sync_here(data, target, target_file_bytes=1 << 10)
        else:
            sync_topic(data, "orders", target, upsert=kind == "upsert", target_file_bytes=1 << 10)

    assert deltalake.__version__ and pyiceberg.catalog.sql and pyiceberg.io.pyarrow
    killed = turn = 0
    moments, longest_s = random.Random(7), 0.15
    while how == "steps" or killed < kills:
        assert os.waitpid(forked(lambda: append(data, turn)), 0)[1] == 0  # noqa: B023

        def at_step() -> None:
            sys.setprofile(die_at(turn, STEPS))  # noqa: B023
            sync()

        child = forked(at_step if how == "steps" else sync)
        if how == "moments":
            time.sleep(moments.uniform(0, longest_s))
            os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
        turn += 1
        killed += status == signal.SIGKILL
        longest_s *= 1.1 if status else 0.6  # a sync takes longer on a busy machine, and of a larger table
        assert status in (0, signal.SIGKILL), status
        if how == "steps" and status == 0:
            break
    assert os.waitpid(forked(sync), 0)[1] == 0
    print(killed)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:5], *map(int, sys.argv[5:]))
