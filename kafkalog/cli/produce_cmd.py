"""`kafkalog produce`: append text, files and JSON lines to a topic."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from kafkalog.cli import common
from kafkalog.cli.progress import Meter, RecoveryMeter

if TYPE_CHECKING:
    from kafkalog.log.open_writable import OnDamage
    from kafkalog.log.writable import WritableLog
    from kafkalog.records.packing import Compression
    from kafkalog.tools.produce.json_lines import JsonProducer
    from kafkalog.tools.produce.text import Producer

    class _Given(TypedDict):
        """Values of the command's options."""

        dirs: tuple[str, ...]
        topic: str
        partition: int | None
        settings: dict[str, str]
        lines: bool
        key_delimiter: str | None
        delimiter: str
        key: str | None
        headers: tuple[str, ...]
        compression: Compression | None
        nulls: bool
        as_json: bool
        sync: bool
        on_damage: OnDamage | None
        files: tuple[str, ...]

PRODUCER_SETTINGS = {"batch.size": 16_384, "linger.ms": 5}


@click.command("produce")
@common.dir_option
@common.topic_option(required=True)
@common.partition_option()
@common.settings_option("Setting with Kafka's name, such as segment.bytes=104857600")
@click.option("-l", "lines", is_flag=True, help="Read every line of the FILEs as a record (always the case for stdin).")
@click.option("-K", "key_delimiter", metavar="DELIM", help="Split a record at its first DELIM into key and value.")
@click.option("-D", "delimiter", metavar="DELIM", default="\\n", show_default=True, help="Delimiter after each record.")
@click.option("-k", "key", metavar="KEY", help="One key for all records.")
@click.option("-H", "headers", multiple=True, metavar="NAME=VALUE", help="Header for all records; repeatable.")
@click.option(
    "-z",
    "compression",
    metavar="CODEC[:LEVEL]",
    callback=lambda ctx, param, given: _compression(given),
    help="Compression: gzip, snappy, lz4, zstd, or zstd:9 with a level; a topic's compression.type overrides it.",
)
@click.option("-Z", "nulls", is_flag=True, help="Write empty keys and values as null.")
@common.json_option("Read lines as JSON objects, as `consume -J` prints them.")
@click.option("--sync", is_flag=True, help="Sync every write to disk before the next one begins.")
@common.recovery_option
@common.quiet_options
@click.argument("files", nargs=-1, type=click.Path(), metavar="[FILE]...")
def command(**given: Unpack[_Given]) -> None:
    r"""Append records from FILEs, or from stdin if none is given, to a topic.

    Stdin is split into records at each newline (-D sets another delimiter, such as '\0' or ';'). A FILE is one record,
    or is split in the same way with -l. A missing topic is created, with one partition and the -X settings; use
    `kafkalog topics create` for more partitions. Records are written to partition -p if given. Otherwise a record with
    a key is assigned by the key's murmur2 hash, as by Kafka's clients; records without a key fill a batch of one
    partition, then of the next. Batches are compressed on all cores.

    -X takes topic settings (stored when the topic is created), batch.size and linger.ms.

    Example: kafkalog produce -d data -t orders -l -K : -z zstd orders.txt
    """
    _produce(_Request(**given))


class _Request:
    """The parsed command line of one `produce`."""

    def __init__(self, **given: Unpack[_Given]) -> None:
        self.dirs: list[str] = common.need_dirs(given["dirs"])
        self.topic: str = given["topic"]
        self.partition: int | None = given["partition"]
        self.compression: Compression | None = given["compression"]
        self.lines: bool = given["lines"]
        self.as_json: bool = given["as_json"]
        self.sync: bool = given["sync"]
        self.on_damage: OnDamage = given["on_damage"] or "recover"
        self.files: Sequence[str] = given["files"] or ("-",)
        self.settings: dict[str, str] = dict(given["settings"])
        self.batch_bytes = self._number("batch.size")
        self.linger_ms = self._number("linger.ms")
        self.delimiter = _delimiter(given["delimiter"], "-D")
        key_delimiter = given["key_delimiter"]
        self.key_delimiter = None if key_delimiter is None else _delimiter(key_delimiter, "-K")
        self.key: bytes | None = None if given["key"] is None else os.fsencode(given["key"])
        self.null: bytes | None = b"" if given["nulls"] else None
        self.headers = [_header(text) for text in given["headers"]]
        if self.as_json and (self.key_delimiter or self.key or self.headers or self.null is not None):
            raise click.UsageError("-J takes keys, headers and nulls from the lines: omit -K, -k, -H and -Z")

    def _number(self, name: str) -> int:
        text = self.settings.pop(name, None)
        if text is None:
            return PRODUCER_SETTINGS[name]
        if not text.isascii() or not text.isdigit() or len(text) > 10:
            raise click.BadParameter(f"{name}={text!r} is not a number", param_hint="-X")
        return int(text)


def _compression(text: str | None) -> Compression | None:
    from kafkalog.errors import KafkalogError
    from kafkalog.records.packing import parse_compression

    if text is None:
        return None
    try:
        return parse_compression(text)
    except KafkalogError as error:
        raise click.BadParameter(str(error)) from None


def _delimiter(text: str, flag: str) -> bytes:
    from kafkalog.tools.escapes import unescape

    raw = unescape(text)
    if not raw:
        raise click.BadParameter("the delimiter is empty", param_hint=flag)
    return raw


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not name:
        raise click.BadParameter(f"{text!r} has no name before =", param_hint="-H")
    if any("\udc80" <= char <= "\udcff" for char in name):
        raise click.BadParameter(f"{text!r} has a name that is not UTF-8", param_hint="-H")
    return name, os.fsencode(value) if equals else None


def _produce(request: _Request) -> None:
    from kafkalog.errors import KafkalogError
    from kafkalog.manager.log_dir import LogDir
    from kafkalog.storage.names import validate_topic
    from kafkalog.tools.produce.input import STDIN_NAME, Inputs
    from kafkalog.tools.produce.text import Producer

    validate_topic(request.topic)
    with ExitStack() as stack:
        inputs = stack.enter_context(Inputs(request.files))
        paths = _partition_paths(request)
        # locked for the whole run: the clean-shutdown marker is written once, after all logs are closed
        for directory in dict.fromkeys(map(os.path.dirname, paths)):
            stack.callback(LogDir.acquire(directory).release)
        logs = _open_logs(request, paths, stack)
        start_offsets = [log.log.log_end_offset for log in logs]
        is_interactive = "-" in request.files and os.isatty(0)
        meter = stack.enter_context(Meter("produce", inputs.total, quiet=is_interactive))
        producer = _producer(request, logs, meter)
        stack.callback(producer.close)
        try:
            for fd, name in inputs:
                if request.lines or name == STDIN_NAME or not isinstance(producer, Producer):
                    producer.read_lines(fd, name)
                else:
                    producer.read_whole(fd, name, request.key)
            producer.flush()
            for log in logs:
                log.close()
        except BaseException:
            # after invalid input or Ctrl-C, complete records read so far are written; after a failed write, none
            with suppress(KafkalogError):
                producer.flush()
            _report(request, logs, start_offsets)
            raise
    _report(request, logs, start_offsets)


def _partition_paths(request: _Request) -> list[str]:
    """Return the paths of the partitions to write to: all of the topic, or the one of -p.

    Each is where it lies. A new topic goes into the first data directory, which is created if missing.
    """
    from kafkalog.dirs.create import check_name_is_free, make_data_directory
    from kafkalog.errors import UnknownTopicOrPartition
    from kafkalog.tools.catalog import partition_count, topic_entry
    from kafkalog.tools.directories import partitions

    existing = [one for one in request.dirs if os.path.isdir(one)]
    found = {one.topic_partition.partition: one.path for one in partitions(existing, topic=request.topic)}
    holding = (one for one in existing if partitions([one], topic=request.topic) or topic_entry([one], request.topic))
    directory = next(holding, None) or make_data_directory(request.dirs[0])
    hint = "`kafkalog topics alter --partitions N` adds more"
    try:
        count = partition_count(existing or [directory], request.topic)
    except UnknownTopicOrPartition:
        hint = "`kafkalog topics create --partitions N` creates it with more"
        check_name_is_free(existing, request.topic, directory)
        count = 1
    if request.partition is not None and request.partition >= count:
        raise UnknownTopicOrPartition(
            f"topic {request.topic} has no partition {request.partition}",
            path=directory,
            hint=f"it has {count}; {hint}",
        )
    numbers = range(count) if request.partition is None else [request.partition]
    return [found.get(number) or os.path.join(directory, f"{request.topic}-{number}") for number in numbers]


def _open_logs(request: _Request, paths: Sequence[str], stack: ExitStack) -> list[WritableLog]:
    from kafkalog.log.open_writable import open_for_append

    logs = []
    for path in paths:
        with RecoveryMeter(os.path.basename(path)) as meter:
            log = open_for_append(
                path, request.settings, sync=request.sync, on_damage=request.on_damage, progress=meter.tell
            )
        stack.callback(log.close)
        logs.append(log)
    return logs


def _producer(request: _Request, logs: Sequence[WritableLog], meter: Meter) -> Producer | JsonProducer:
    from kafkalog.records.packing import choose, most_plain_bytes

    config = logs[0].log.config
    limit = min(config.max_message_bytes, config.segment_size)
    compression = choose(config, request.compression)
    batch_bytes = max(61, min(request.batch_bytes, most_plain_bytes(compression, limit)))
    progress = meter.add if meter.shown else None
    if request.as_json:
        from kafkalog.tools.produce.json_lines import JsonProducer

        return JsonProducer(
            logs,
            batch_bytes=batch_bytes,
            milliseconds=logs[0].milliseconds,
            compression=compression,
            fixed=request.partition is not None,
            max_record_bytes=limit,
            progress=progress,
        )
    from kafkalog.tools.produce.text import Encoding, Producer

    encoding = Encoding(
        batch_bytes, request.delimiter, request.key_delimiter, request.null, request.key, request.headers
    )
    return Producer(
        logs,
        encoding,
        milliseconds=logs[0].milliseconds,
        compression=compression,
        linger_ms=request.linger_ms,
        max_record_bytes=limit,
        progress=progress,
    )


def _report(request: _Request, logs: Sequence[WritableLog], start_offsets: Sequence[int]) -> None:
    for log, start in zip(logs, start_offsets, strict=True):
        count = log.log.log_end_offset - start
        if count or len(logs) == 1:
            offsets = f", offsets {start} to {start + count - 1}" if count > 1 else f", offset {start}" if count else ""
            text = f"{log.topic_partition}: {common.plural(count, 'record')}{offsets}"
            common.note(text)
