"""`kafkalog keys`: build, list and drop key indexes, and get records by key."""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, cast

import click

from kafkalog.cli import common
from kafkalog.cli.sidecar_commands import Sidecars, add_commands

if TYPE_CHECKING:
    from kafkalog._core.batch.record import Record
    from kafkalog.errors import KafkalogError
    from kafkalog.log.log import Log


@click.group("keys", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Build, list and drop key indexes, and get records by key.

    A key index is a file that locates the records of each key in a closed segment; without it, a look-up searches the
    segment. A broker ignores the files beside its segments, and an index that no longer fits is never used. With
    --store the indexes lie in a separate directory, and the data directories are only read, even beside a running
    broker.
    See docs/keys.md.
    """


def _open(path: str, mode: str, store: str | None) -> Log:
    import kafkalog

    return kafkalog.open(path, cast('Literal["r", "a"]', mode), key_index=False if store is None else store)


_KEYS = Sidecars(
    "keys",
    "key indexes",
    "records",
    of_last="",
    dropped="look-ups search",
    opens=_open,
    build=lambda log, _, rebuild: log.build_key_index(rebuild=rebuild),
    list=lambda log, _: log.key_index(),
    drop=lambda log, _: log.drop_key_index(),
)
store_option = _KEYS.store_option
add_commands(command, _KEYS)


@command.command("get")
@common.dir_option
@common.topic_option(required=True)
@common.partition_option(multiple=True)
@store_option
@click.option("--history", is_flag=True, help="All records of each key, oldest first, instead of the last one.")
@common.isolation_option
@common.on_damage_option
@common.json_option("Print one JSON object for each record.")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
def get(
    dirs: tuple[str, ...],
    topic: str,
    partitions: tuple[int, ...],
    store: str | None,
    history: bool,
    isolation_level: str | None,
    on_damage: str,
    as_json: bool,
    keys: tuple[str, ...],
) -> int:
    """Print the last record of each KEY as PARTITION, offset, key and value, separated by tabs.

    All partitions of the topic are asked, or those given. A tombstone is printed as null. In JSON, bytes that are not
    UTF-8 are base64, as key_encoding, value_encoding or headers_encoding says.

    Example: kafkalog keys get -d data -t orders order-17

    Exit status: 0 all keys found, 1 a key without a record, or damage, 2 wrong usage.
    """
    from kafkalog.storage.damage import Skipped

    level = common.isolation_level(isolation_level)
    skipped: list[Skipped] | None = [] if on_damage == "skip" else None
    missing = set(keys)
    failed: list[KafkalogError] = []
    where = common.find_partitions(dirs, topic, partitions)
    for one, opened in common.each_opened(where, lambda one: _KEYS.open(one, store), failed):
        with opened as log:
            for key in keys:
                encoded = key.encode("utf-8", "surrogateescape")
                if history:
                    found = log.history(encoded, isolation=level, on_damage=on_damage, skipped=skipped)
                else:
                    last = log.get(encoded, isolation=level, on_damage=on_damage, skipped=skipped)
                    found = iter(() if last is None else (last,))
                for record in found:
                    missing.discard(key)
                    _print(one.topic_partition.partition, record, as_json)
    sys.stdout.flush()
    common.report_skipped(skipped or ())
    for key in sorted(missing):
        print(f"kafkalog: no record has the key {key!r}", file=sys.stderr)
    return 1 if missing or skipped or failed else 0


def _json_parts(name: str, parts: Sequence[bytes | None]) -> tuple[list[str | None], dict[str, str]]:
    """Return bytes as text, all in base64 if any are not UTF-8, and then the field `NAME_encoding`, as consume -J."""
    try:
        return [None if part is None else part.decode() for part in parts], {}
    except UnicodeDecodeError:
        encoded = [None if part is None else base64.b64encode(part).decode() for part in parts]
        return encoded, {f"{name}_encoding": "base64"}


def _print(partition: int, record: Record, as_json: bool) -> None:
    key, value = record.key or b"", record.value
    if as_json:
        row: dict[str, object] = {"partition": partition, "offset": record.offset, "timestamp": record.timestamp}
        for name, data in (("key", key), ("value", value)):
            (row[name],), encoding = _json_parts(name, [data])
            row |= encoding
        texts, encoding = _json_parts("headers", [data for _, data in record.headers])
        row["headers"] = [[name, text] for (name, _), text in zip(record.headers, texts, strict=True)]
        print(json.dumps(row | encoding))
        return
    out = sys.stdout.buffer
    sys.stdout.flush()
    out.write(b"%d\t%d\t%s\t%s\n" % (partition, record.offset, key, b"null" if value is None else value))
