"""Copies a topic to another data directory with everything as it was: offsets, gaps, times, keys, codecs, markers.

    python copy_topic.py /var/lib/kafka backup orders

The batches are copied as they lie, so a consumer's committed offsets still fit. A broker may be writing to the source:
what is there when a partition's turn comes is copied. Run it again and it goes on where the copy ends, also after it
was killed; a copy that is of another topic is noticed by its last batch and left alone. What the source deletes later
stays in the copy. The topic's settings are kept beside it, but they take effect only once `kafkalog retain`,
`kafkalog.open_dirs` or a broker runs there: then records beyond `retention.ms` go.

It prints a line for each partition: "orders-0: offsets 468 to 1000, 532 copied now".
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import kafkalog


def check_same(source: kafkalog.Log, copy: kafkalog.Log) -> None:
    """Ends the program unless the copy ends with a batch that the source has, too."""
    if copy.end_offset > source.end_offset:
        sys.exit(f"{copy.path} ends at {copy.end_offset}, behind the end {source.end_offset} of its source")
    if copy.end_offset <= source.start_offset:
        return
    last = next(copy.batches(copy.end_offset - 1), None)
    same = next(source.batches(copy.end_offset - 1), None)
    if last is not None and (same is None or last.header.crc != same.header.crc):
        sys.exit(f"{copy.path} ends with a batch that {source.path} does not have: it is no copy of it")


def copy_partition(source: kafkalog.Log, copy: kafkalog.Log) -> int:
    """Copy the new records; return the number of copied offsets."""
    is_new = copy.start_offset == copy.end_offset
    log_start = source.start_offset
    start = max(copy.end_offset, log_start)
    if is_new and copy.end_offset < log_start:  # the first batch may begin below the log start
        first = next(source.batches(log_start), None)
        copy.truncate_fully_and_start_at(log_start if first is None else first.base_offset)
    for batch in source.batches(start):
        copy.replicate(bytes(batch))
        if is_new:
            copy.delete_before(min(log_start, copy.end_offset))
            is_new = False
    return copy.end_offset - start


def copy_topic(source: Path, target: Path, topic: str) -> None:
    """Copies all partitions of a topic."""
    with kafkalog.open_dirs(source) as dirs:
        settings: dict[str, Any] = dict(dirs.topics[topic].settings) if topic in dirs.topics else {}
        for log in dirs.logs(topic):
            with kafkalog.open(target / log.name, "a", **settings) as copy:
                check_same(log, copy)
                copied = copy_partition(log, copy)
                print(f"{log.name}: offsets {copy.start_offset} to {copy.end_offset}, {copied} copied now", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="Copy a topic with its offsets.")
    parser.add_argument("source", type=Path, metavar="FROM", help="a data directory")
    parser.add_argument("target", type=Path, metavar="TO", help="another data directory, made where it is missing")
    parser.add_argument("topic")
    arguments = parser.parse_args()
    copy_topic(arguments.source, arguments.target, arguments.topic)


if __name__ == "__main__":
    try:
        main()
    except kafkalog.KafkalogError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
