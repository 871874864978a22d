"""`kafkalog transactions`: open transactions, and who holds them."""

from __future__ import annotations

import json

import click

from kafkalog.cli import common


@click.command("transactions")
@common.dir_option
@common.topic_option()
@common.partition_option(multiple=True)
@common.json_option("Print one JSON object for each open transaction.")
@common.quiet_options
def command(
    dirs: tuple[str, ...],
    topic: str | None,
    partitions: tuple[int, ...],
    as_json: bool,
) -> int:
    """List open transactions: their producers, start offsets and transactional ids.

    An open transaction holds back the log cleaner and readers with isolation level read_committed. Its transactional
    id and state come from __transaction_state in the same directories. The command takes no lock and writes nothing.

    Example: kafkalog transactions -d data -t orders

    Exit status: 0 listed (even if none is open), 1 damage, or a named item is missing, 2 wrong usage.
    """
    from kafkalog.tools.directories import partitions as all_partitions
    from kafkalog.tools.open_transactions import STATE_TOPIC, open_transactions, transactions_table
    from kafkalog.util.fileio import OS

    found = common.find_partitions(dirs, topic, partitions)
    states = [one for one in all_partitions(common.need_dirs(dirs)) if one.topic_partition.topic == STATE_TOPIC]
    open_ones, problems = open_transactions(found, states, OS)
    if as_json:
        for one in open_ones:
            print(json.dumps(one.as_json()))
    elif open_ones:
        print(transactions_table(open_ones).text())
    else:
        common.note("no transaction is open")
    for problem in problems:
        common.note(f"kafkalog: {problem}", always=True)
    return 1 if problems else 0
