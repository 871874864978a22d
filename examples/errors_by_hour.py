"""When did the errors come? A count of the records that match a condition, by hour and by a field of their values.

    python errors_by_hour.py data events
    python errors_by_hour.py data events "value.level == 'error'" --by value.service
    python errors_by_hour.py data events "value.status >= 500" --by value.path --since 2026-11-20
    python errors_by_hour.py data events "key like 'eu-%'" --value string

The condition is that of docs/where.md, and paths lead into JSON or what else --value names. It is evaluated on columns:
a value is decoded only if the rest of the condition is true, and only the fields that are needed are kept. No lock is
taken: a broker may be writing.
"""

import argparse
import signal
import sys
from collections import Counter

import kafkalog

Counts = Counter[tuple[str, str]]


def counts(dirs: kafkalog.LogDirs, topic: str, where: str, by: str | None, value: str, since: str | None) -> Counts:
    """The number of matching records by hour and by the field's value."""
    found: Counts = Counter()
    project = {"time": "time", **({} if by is None else {"by": by})}
    for log in dirs.logs(topic):
        scan = log.scan(where=where, project=project, value=value, since=since, on_undecodable="null")
        for batch in scan:
            columns = batch.to_pydict()
            hours = [time.strftime("%Y-%m-%d %H:00") for time in columns["time"]]
            found.update(zip(hours, map(str, columns.get("by", [""] * len(hours))), strict=True))
        if scan.undecodable:
            print(f"{log.name}: {scan.undecodable} values are no {value}", file=sys.stderr)
    return found


def main() -> int | str:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("data", help="data directory")
    options.add_argument("topic")
    options.add_argument("where", nargs="?", default="value.level == 'error'", help="condition (default: %(default)s)")
    options.add_argument("--by", metavar="FIELD", help="also count by this field, such as value.service")
    options.add_argument("--value", default="json", help="decoder of the values (default: json)")
    options.add_argument("--since", metavar="TIME", help="begin at this time")
    given = options.parse_args()
    try:
        with kafkalog.open_dirs(given.data) as dirs:
            found = counts(dirs, given.topic, given.where, given.by, given.value, given.since)
    except kafkalog.KafkalogError as error:
        return f"errors_by_hour: {error}"
    for (hour, field), count in sorted(found.items()):
        print(f"{hour} {count:>8} {field}".rstrip())
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    sys.exit(main())
