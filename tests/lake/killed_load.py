"""The process whose loads of a table are killed: it forks one for each kill, as tests/lake/killed.py does for syncs.

    python -m tests.lake.killed_load DATA LAKE iceberg|delta

The n-th load kills itself at the n-th call or return of a step, until one comes to its end. Each is preceded by
another commit to the table. It prints the number of loads that were killed, and the rows of the table.
"""

import os
import signal
import sys
from pathlib import Path

import deltalake
import pyiceberg.catalog.sql
import pyiceberg.io.pyarrow

from kafkalog.lake.table_load import load_table
from tests.kills import die_at, forked
from tests.lake.loads import COLUMNS, SCHEMA, rows
from tests.lake.tables import Lake

STEPS = {
    "kafkalog/lake/load_state": {"write_state"}, "kafkalog/landing/rows": {"stage_rows"},
    "kafkalog/landing/ledger": {"write_ledger"}, "kafkalog/landing/commit": {"append", "_sweep"},
}  # fmt: skip


def main(data: Path, lake: Lake) -> None:
    def load() -> None:
        for _ in load_table(lake.target, data, "back", columns=COLUMNS, partitions=2, batch_bytes=1):
            pass

    def append() -> None:
        if turn == 0:
            lake.create(SCHEMA)
        lake.append(rows(10 * turn, 10))

    assert deltalake.__version__ and pyiceberg.catalog.sql and pyiceberg.io.pyarrow
    turn = 0
    while True:
        assert os.waitpid(forked(append), 0)[1] == 0

        def at_step() -> None:
            sys.setprofile(die_at(turn, STEPS))  # noqa: B023
            load()

        status = os.waitpid(forked(at_step), 0)[1]
        turn += 1
        assert status in (0, signal.SIGKILL), status
        if status == 0:
            break
    print(turn - 1, 10 * turn)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Lake(Path(sys.argv[2]), sys.argv[3]))
