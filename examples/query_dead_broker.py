"""SQL over the topics of a stopped broker: DuckDB reads its data directory.

    python query_dead_broker.py /var/lib/kafka "SELECT partition, count(*), max(timestamp) FROM orders GROUP BY ALL"
    python query_dead_broker.py /var/lib/kafka                  lists the topics with their partitions and offsets

Each topic is a view of its name, with the columns key, value, topic, partition, offset, timestamp, timestampType and
headers. Records of aborted transactions are left out, as for a consumer. Only the columns named in `--columns` are
decoded. It prints the rows as DuckDB shows them; nothing in the directory is changed, and no lock is taken.
"""

import argparse
import sys
from pathlib import Path

import duckdb

import kafkalog

MOST_ROWS = 1000
"""Of a longer result the first and last rows are shown."""


def register(sql: duckdb.DuckDBPyConnection, dirs: kafkalog.LogDirs, columns: list[str] | None) -> None:
    """Makes each topic a view in DuckDB; nothing is read before a query does."""
    for topic in dirs.topics:
        logs = dirs.logs(topic)
        for log in logs:
            sql.register(log.name, log.scan(columns, isolation="read_committed"))
        parts = " UNION ALL ".join(f'FROM "{log.name}"' for log in logs)
        sql.execute(f'CREATE VIEW "{topic}" AS {parts}')


def main() -> None:
    parser = argparse.ArgumentParser(description="SQL over the topics of a data directory.")
    parser.add_argument("directory", type=Path, metavar="DIR")
    parser.add_argument("query", nargs="?", metavar="SQL")
    parser.add_argument("--columns", type=lambda text: text.split(","), metavar="NAME,...", help="decode only these")
    arguments = parser.parse_args()
    with kafkalog.open_dirs(arguments.directory) as dirs, duckdb.connect() as sql:
        if arguments.query is None:
            for topic in dirs.topics:
                logs = dirs.logs(topic)
                offsets = sum(log.end_offset - log.start_offset for log in logs)
                print(f"{topic}: {len(logs)} partition{'s' * (len(logs) != 1)}, {offsets} offsets")
            return
        register(sql, dirs, arguments.columns)
        sql.sql(arguments.query).show(max_rows=MOST_ROWS)


if __name__ == "__main__":
    try:
        main()
    except (kafkalog.KafkalogError, duckdb.Error) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
