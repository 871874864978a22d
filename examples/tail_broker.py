"""Follows a topic while a broker, or any other process, writes it: like `tail -f`, over all of its partitions.

    python tail_broker.py /var/lib/kafka orders                     what comes from now on, until Ctrl-C
    python tail_broker.py /var/lib/kafka orders --from-beginning --idle 5     all there is; ends after 5 s of silence

It prints a line for each record, "orders-0 41 key value", as soon as the broker has written it; records of one
partition come in their order. The broker does not notice: no lock is taken, nothing is written, no consumer joins. With
`--committed` records of open and aborted transactions are held back, as for a consumer that reads committed.
"""

import argparse
import asyncio
import signal
import sys
from pathlib import Path

import kafkalog
from kafkalog import aio


def text(data: bytes | None) -> str:
    """A key or value as text."""
    return "-" if data is None else data.decode(errors="backslashreplace")


async def follow(log: kafkalog.Log, start: int | None, idle: float | None, isolation: str) -> None:
    """Prints the records of one partition as they come."""
    async for record in aio.wrap(log).tail(idle, start, isolation=isolation):
        print(log.name, record.offset, text(record.key), text(record.value), flush=True)


async def follow_all(directory: Path, topic: str, whole: bool, idle: float | None, isolation: str) -> None:
    """Follows all partitions side by side."""
    with kafkalog.open_dirs(directory) as dirs:
        logs = dirs.logs(topic)
        async with asyncio.TaskGroup() as tasks:
            for log in logs:
                tasks.create_task(follow(log, log.start_offset if whole else None, idle, isolation))


def main() -> None:
    parser = argparse.ArgumentParser(description="Follow a topic.")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("topic")
    parser.add_argument("--from-beginning", action="store_true", help="what is there first")
    parser.add_argument("--idle", type=float, metavar="SECONDS", help="end after so long without a record")
    parser.add_argument("--committed", action="store_true", help="only records of committed transactions")
    arguments = parser.parse_args()
    isolation = "read_committed" if arguments.committed else "read_uncommitted"
    asyncio.run(
        follow_all(arguments.directory, arguments.topic, arguments.from_beginning, arguments.idle, isolation)
    )


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as other filters: the end, where `head` has seen enough
    try:
        main()
    except kafkalog.KafkalogError as error:
        sys.exit(str(error))
    except ExceptionGroup as group:  # of the tasks: one that fails ends the others
        sys.exit("\n".join(map(str, group.exceptions)))
    except KeyboardInterrupt:
        sys.exit(130)
