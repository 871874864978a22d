"""What did a topic say at noon yesterday? The last record before a moment and the first ones from it on.

    python said_at.py data orders                               noon yesterday, by this machine's clock
    python said_at.py data orders 2026-11-20T12:00 -n 3
    python said_at.py data orders 2026-11-20T12:00Z --key alice     what had last been said of a key

It prints, for each partition, lines of partition, offset, time, key and value; the one from before the moment is marked
with "before". The time index leads to the place, so a log of any size is answered at once; only `--key` reads back from
there. No lock is taken: a broker may be writing.
"""

import argparse
import signal
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from pathlib import Path

import kafkalog

STEP = 1000
"""Records that are read at a time on the way back."""


def noon_yesterday() -> datetime:
    """Noon of yesterday, in this machine's time zone."""
    yesterday = datetime.now().astimezone() - timedelta(days=1)
    return yesterday.replace(hour=12, minute=0, second=0, microsecond=0)


def moment(text: str) -> datetime:
    """ISO-8601 text; without a zone it is meant as this machine's clock shows it."""
    return datetime.fromisoformat(text).astimezone()


def backwards(log: kafkalog.Log, stop: int) -> Iterator[kafkalog.Record]:
    """The records before an offset, newest first."""
    while stop > log.start_offset:
        start = max(log.start_offset, stop - STEP)
        yield from reversed(list(log[start:stop]))
        stop = start


def shown(log: kafkalog.Log, record: kafkalog.Record, mark: str = "") -> str:
    """A record as a line of text."""
    key, value = ("-" if data is None else data.decode(errors="replace") for data in (record.key, record.value))
    at = "-" if record.datetime is None else record.datetime.astimezone().isoformat(timespec="milliseconds")
    return f"{mark:<7}{log.name} {record.offset} {at} {key} {value}"


def said_at(log: kafkalog.Log, at: datetime, count: int, key: bytes | None) -> Iterator[str]:
    """Yield the lines of a partition around a moment."""
    found = log.offset_for_time(at)
    first = log.end_offset if found is None else found.offset
    before = (record for record in backwards(log, first) if key is None or record.key == key)
    for record in islice(before, 1):
        yield shown(log, record, "before")
    after = (record for record in log.records(first) if key is None or record.key == key)
    for record in islice(after, count):
        yield shown(log, record)


def main() -> None:
    parser = argparse.ArgumentParser(description="What a topic said at a moment.")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("topic")
    parser.add_argument("at", type=moment, nargs="?", default=noon_yesterday(), metavar="TIME")
    parser.add_argument("-n", type=int, default=5, metavar="N", help="records from then on (5)")
    parser.add_argument("--key", help="only records of this key")
    arguments = parser.parse_args()
    key = None if arguments.key is None else arguments.key.encode()
    with kafkalog.open_dirs(arguments.directory) as dirs:
        for log in dirs.logs(arguments.topic):
            for line in said_at(log, arguments.at, arguments.n, key):
                print(line)


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # as other filters: the end, where `head` has seen enough
    try:
        main()
    except kafkalog.KafkalogError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
