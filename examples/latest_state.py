"""The latest state of all keys of a compacted topic, as a dictionary that follows the log.

    python latest_state.py data states                    prints each key and its last value
    python latest_state.py data states user-7 user-9      prints these keys only
    python latest_state.py data states --follow           goes on with each change until Ctrl-C
    python latest_state.py data states --index indexes    keeps key indexes in that directory, for faster starts

A key whose last record is a tombstone is not printed. The directory is only read, so its broker may be running.
"""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path

import kafkalog


def text(data: bytes | None) -> str:
    return "-" if data is None else data.decode("utf-8", "backslashreplace")


def show(record: kafkalog.Record) -> None:
    print(f"{text(record.key)} {text(record.value)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("topic")
    parser.add_argument("keys", nargs="*", metavar="KEY")
    parser.add_argument("--index", type=Path, metavar="DIR", help="directory of key indexes, built if missing")
    parser.add_argument("--follow", action="store_true")
    args = parser.parse_args()
    numbers = [int(path.name.rpartition("-")[2]) for path in args.directory.glob(f"{args.topic}-[0-9]*")]
    if not numbers:
        print(f"{args.directory} has no topic {args.topic}", file=sys.stderr)
        return 1
    with ExitStack() as stack:
        logs = []
        for number in sorted(numbers):
            path = args.directory / f"{args.topic}-{number}"
            log = kafkalog.open(path, key_index=args.index) if args.index else kafkalog.open(path)
            logs.append(stack.enter_context(log))
            if args.index:
                log.build_key_index()
        ends = [log.end_offset for log in logs]
        for log in logs:
            latest = log.latest()
            for key in [key.encode() for key in args.keys] or latest:
                if (record := latest.get(key)) is not None:
                    show(record)
        while args.follow:
            for at, log in enumerate(logs):
                for record in log.tail(0.2 / len(logs), ends[at]):
                    ends[at] = record.offset + 1
                    if not args.keys or text(record.key) in args.keys:
                        show(record)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
