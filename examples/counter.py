"""Counters whose state is what happened to them: an event-sourced program in one file.

    python counter.py data add apples 5        writes an event, prints the new value: "apples 5"
    python counter.py data add apples -2
    python counter.py data show                prints each counter: "apples 3"
    python counter.py data show --until 2026-11-20T12:00Z      as they stood then

Nothing is ever overwritten: each change is a record of the topic `counters` in DIR, on disk before it is confirmed, and
the values are the sum of all records. So that a start does not read them all, what they add up to is kept in
DIR.snapshot.json with the offset it holds for; without that file, or with an old one, the records are read again.
"""

import argparse
import json
import os
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import kafkalog


def apply(values: Counter[str], record: kafkalog.Record) -> None:
    """Apply an event: the only function that changes the counts."""
    values[(record.key or b"").decode()] += json.loads(record.value or b"{}").get("add", 0)


class Counters:
    """All counters of a directory; one process has them open at a time."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        directory = directory.resolve()
        self._snapshot = directory.with_name(directory.name + ".snapshot.json")
        self._log = kafkalog.open(directory / "counters-0", "a", sync=True, retention_ms=-1)
        self._next, self.values = self._load()
        for record in self._log.records(self._next):
            self._apply(record)

    def add(self, name: str, amount: int) -> int:
        """The counter's new value, when the change is on disk."""
        offset = self._log.append((name.encode(), json.dumps({"add": amount}).encode())).first_offset
        self._apply(self._log[offset])
        return self.values[name]

    def _apply(self, record: kafkalog.Record) -> None:
        apply(self.values, record)
        self._next = record.offset + 1

    def _load(self) -> tuple[int, Counter[str]]:
        """The offset to go on from and the values before it; the log's beginning where no snapshot fits the log."""
        try:
            kept = json.loads(self._snapshot.read_text())
            if kept["next"] <= self._log.end_offset:
                return kept["next"], Counter(kept["values"])
        except (FileNotFoundError, ValueError):  # none yet, or cut short by a crash
            pass
        return self._log.start_offset, Counter()

    def close(self) -> None:
        """Keeps a snapshot and closes the log."""
        written = self._snapshot.with_suffix(".tmp")
        written.write_text(json.dumps({"next": self._next, "values": self.values}))
        os.replace(written, self._snapshot)
        self._log.close()


def values_at(directory: Path, until: str | None) -> Counter[str]:
    """The values as they stood at a time; this takes no lock, so it works while another process counts."""
    values: Counter[str] = Counter()
    with kafkalog.open(directory / "counters-0") as log:
        for record in log.records(until=until):
            apply(values, record)
    return values


def main() -> None:
    parser = argparse.ArgumentParser(description="Event-sourced counters.")
    parser.add_argument("directory", type=Path, metavar="DIR")
    commands = parser.add_subparsers(dest="command", required=True)
    add = commands.add_parser("add", help="change a counter")
    add.add_argument("name")
    add.add_argument("amount", type=int)
    show = commands.add_parser("show", help="print all counters")
    show.add_argument("--until", metavar="TIME", help="as they stood then (ISO-8601, UTC where it names no zone)")
    arguments = parser.parse_args()
    if arguments.command == "add":
        with closing(Counters(arguments.directory)) as counters:
            print(arguments.name, counters.add(arguments.name, arguments.amount))
    else:
        for name, value in sorted(values_at(arguments.directory, arguments.until).items()):
            print(name, value)


if __name__ == "__main__":
    try:
        main()
    except (kafkalog.KafkalogError, OSError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
