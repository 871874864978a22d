"""`kafkalog consume`: the records of a topic as text."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, BinaryIO, TypedDict, Unpack

import click

from kafkalog.cli import common
from kafkalog.cli.consume_where import Filter, check_formats
from kafkalog.cli.decoder_options import ROW_DECODERS, DecoderGiven, schema_given, schema_options, serdes_option
from kafkalog.cli.progress import Meter

if TYPE_CHECKING:
    from kafkalog.cli.consume_group import Group
    from kafkalog.errors import CorruptRecord, KafkalogError
    from kafkalog.reading.chunks import Chunk
    from kafkalog.storage.damage import Skipped
    from kafkalog.storage.readonly.view import LogView
    from kafkalog.tools.consume.decoded import Serdes
    from kafkalog.tools.consume.templates import Pieces
    from kafkalog.tools.consume.text import Written

    class _Encodings(TypedDict):
        """Encodings in which keys and values are printed."""

        key_encoding: str
        value_encoding: str

    class _Given(DecoderGiven):
        """Values of the command's options."""

        dirs: tuple[str, ...]
        topic: Any  # a str: `command` refuses None
        partitions: tuple[int, ...]
        offsets: tuple[str, ...]
        from_beginning: bool
        count: int | None
        exit_at_end: bool
        follow: bool
        fmt: str | None
        as_json: bool
        delimiter: str
        key_delimiter: str | None
        nulls: bool
        unbuffered: bool
        key_encoding: str
        value_encoding: str
        where: str | None
        project: str | None
        group: str | None
        cursors: str | None
        isolation_level: str | None
        on_damage: str
        tiered: str | None
        settings: dict[str, str]

_ENCODINGS = click.Choice(["utf8", "base64", "hex"])


@click.command("consume")
@common.dir_option
@common.topic_option()
@common.partition_option(multiple=True)
@click.option(
    "-o",
    "offsets",
    multiple=True,
    metavar="OFFSET",
    help="Start: beginning (default), end, N, -N (N before the end) or s@TIME. Add e@TIME to set the end. "
    "TIME is ms since 1970 or ISO-8601, UTC if no zone is given.",
)
@click.option("--from-beginning", is_flag=True, help="Same as -o beginning.")
@click.option("-c", "count", type=click.IntRange(0, 2**63 - 1), metavar="N", help="Stop after N records.")
@click.option("-e", "exit_at_end", is_flag=True, help="Stop at the end (default).")
@click.option("--follow", is_flag=True, help="Wait for new records at the end.")
@click.option(
    "-f",
    "fmt",
    metavar="FORMAT",
    help=r"Format: %s value, %k key, %t topic, %p partition, %o offset, %T timestamp, %h headers, %S %K sizes; \n \t.",
)
@common.json_option("Print one JSON object for each record, as kcat does.")
@click.option("-D", "delimiter", default="\\n", show_default=True, metavar="DELIM", help="Text after each value.")
@click.option("-K", "key_delimiter", metavar="DELIM", help="Print keys, with DELIM between key and value.")
@click.option("-Z", "nulls", is_flag=True, help="Print NULL for null keys and values.")
@click.option("-u", "unbuffered", is_flag=True, help="Flush the output after every read.")
@click.option("--key-encoding", type=_ENCODINGS, default="utf8", show_default=True, help="Encoding of keys.")
@click.option("--value-encoding", type=_ENCODINGS, default="utf8", show_default=True, help="Encoding of values.")
@serdes_option(f"Decode keys and values: key=NAME, value=NAME, or NAME for both; NAME is {ROW_DECODERS}.")
@schema_options
@click.option(
    "--where",
    metavar="CONDITION",
    help="Print only records for which this is true, such as \"key like 'eu-%' and time >= '2026-11-20'\"; paths into "
    "keys and values (value.order.total > 100) need -s. See docs/where.md.",
)
@click.option(
    "--project",
    metavar="FIELDS",
    help="Print these fields as JSON, such as offset,key,value.order.total; paths need -s.",
)
@common.group_option(
    "Continue from the position stored under NAME, and store the new one; -o sets the start of a new NAME. "
    "-X auto.offset.reset=earliest|latest|none: where to start if the log no longer has it (none: an error).",
)
@common.cursors_option
@common.isolation_option
@common.on_damage_option
@common.tiered_option
@common.settings_option("Reader setting: isolation.level, and with -G auto.offset.reset")
@common.quiet_options
def command(**given: Unpack[_Given]) -> int:
    """Print the records of a topic's partitions, one partition after another, each in order.

    The command takes no lock and writes nothing to the directories; a broker may write to them at the same time.

    Records of Kafka's own topics, such as __consumer_offsets, are decoded; `-s bytes` prints bytes in hexadecimal.

    Example: kafkalog consume -d data -t orders -o -10 -J --where "header.trace is not null"

    Exit status: 0 all was printed, 1 damage, or a named item is missing (also with --on-damage skip), 2 wrong usage.
    """
    reset = given["settings"].pop("auto.offset.reset", None) if given["group"] is not None else None
    given["isolation_level"] = common.isolation_level(given["isolation_level"], given["settings"])
    dirs = common.need_dirs(given["dirs"])
    if given["topic"] is None:
        raise click.UsageError("no topic: give -t TOPIC (`kafkalog topics list` lists them)")
    if given["as_json"] and (given["fmt"] is not None or given["key_delimiter"] is not None):
        raise click.UsageError("-J has its own format: omit -f and -K")
    if given["follow"] and given["exit_at_end"]:
        raise click.UsageError("--follow waits at the end, -e stops there: give only one")
    check_formats(given)
    group = None
    if given["group"] is not None:
        from kafkalog.cli.consume_group import Group

        group = Group(given["group"], given["cursors"], reset, given["isolation_level"])
    consumer = _Consumer(dirs, given, group)
    consumer.run()
    return 1 if consumer.skipped or consumer.failed else 0


class _Consumer:
    """One run of the command: its options, output, and records left to print."""

    def __init__(self, dirs: list[str], given: _Given, group: Group | None) -> None:
        from kafkalog.reading.source import isolation_of
        from kafkalog.tools.offsets import parse_bounds
        from kafkalog.util.times import text_ms

        self.dirs = dirs
        self.given = given
        self.left: int = -1 if given["count"] is None else given["count"]
        offset_words = given["offsets"] + (("beginning",) if given["from_beginning"] else ())
        self.bounds = parse_bounds(offset_words, text_ms)
        self.out: BinaryIO = sys.stdout.buffer
        self.isolation = isolation_of(given["isolation_level"])
        self.serdes = self._serdes()
        self.group = group
        self.filter: Filter | None = None
        if given["where"] is not None or given["project"] is not None:
            self.filter = Filter(given["where"], given["project"], given)
        self.skipped: list[Skipped] | None = [] if given["on_damage"] == "skip" else None
        self.failed: list[KafkalogError] = []
        """Errors of partitions that could not be opened."""

    def _serdes(self) -> Serdes | None:
        given = self.given
        encodings = given["key_encoding"], given["value_encoding"]
        schema, message = schema_given(given["schema"]), given["message"]
        is_plain = not given["serdes"] and schema is None and message is None
        if is_plain and (encodings != ("utf8", "utf8") or not given["topic"].startswith("__")):
            return None
        from kafkalog.tools.consume.decoded import Serdes, parse_serdes

        if not is_plain:
            return parse_serdes(given["serdes"], given["schemas"], schema, message)
        from kafkalog.tools.dump.record_readers import internal_reader

        reader = internal_reader(given["topic"])
        return None if reader is None else Serdes(reader=reader)

    def run(self) -> None:
        """Print the records, partition by partition; with --follow wait for more."""
        from kafkalog.reading.source import end_of
        from kafkalog.storage.readonly.view import LogView
        from kafkalog.tools.directories import find

        fs, dirs = common.locate_dirs(self.dirs, self.given["tiered"])
        found = find(dirs, self.given["topic"], self.given["partitions"], fs=fs)
        with ExitStack() as stack:
            opened = list(
                common.each_opened(found, lambda one: stack.enter_context(LogView(one.path, fs=fs)), self.failed)
            )
            views = [view for _, view in opened]
            if self.group is None:
                starts = [self.bounds.first_offset(view, end_of(view, self.isolation)) for view in views]
            else:
                starts = self.group.open(views, self.bounds, stack)
            templates = [self._template(one.topic_partition.partition) for one, _ in opened]
            total = sum(view.size for view in views)
            meter = stack.enter_context(
                Meter("consume", total, quiet=self.given["follow"] or sys.stdout.isatty())
            )
            for number, view in enumerate(views):
                starts[number] = self._write(view, starts[number], templates[number], meter)
                if common.verbosity():
                    common.note(f"reached the end of {view.name} at offset {starts[number]}", always=True)
            self.out.flush()
            if self.given["follow"]:
                self._follow(views, starts, templates, meter)
            else:
                self._check_ends(views, starts)
            common.report_skipped(self.skipped or ())
            if self.filter is not None and self.filter.undecodable:
                text = f"note: {common.plural(self.filter.undecodable, 'key or value')} did not decode"
                common.note(text)

    def _check_ends(self, views: list[LogView], starts: list[int]) -> None:
        """Raise, or note, damage and problems that ended a partition before the end of its file.

        An incomplete batch counts as damage only after a short wait: a writer may be about to finish it. A problem that
        costs no record, such as an index that a backup left out, is a note, and so is an open transaction.
        """
        from kafkalog.reading.chunks import check_tail
        from kafkalog.reading.source import end_of

        for view, start in zip(views, starts, strict=True):
            end = end_of(view, self.isolation)
            if self.left == 0 or start < end or self._past_end_time(view):
                continue
            if end < view.log_end_offset:
                level = self.given["isolation_level"]
                text = f"note: {view.name} ends at offset {view.log_end_offset}, {level} reads up to {end}"
                common.note(text)
            if view.damage is not None:
                time.sleep(common.SETTLE_S)
                view.refresh()
            if view.damage is not None:
                self._report_damage(view, view.damage)
            else:
                check_tail(view, view.log_end_offset, self.skipped)
            for problem in view.problems:
                common.note(f"note: {problem}")

    def _report_damage(self, view: LogView, damage: CorruptRecord) -> None:
        from kafkalog.storage.damage import Skipped, note_skipped

        if self.skipped is None:
            raise damage
        position, offset = damage.position or 0, view.log_end_offset
        size_bytes = max(0, view.active_segment.stat().st_size - position)
        note_skipped(self.skipped, Skipped(damage.path or "", position, size_bytes, offset, offset, damage.message))

    def _template(self, partition: int) -> Pieces:
        from kafkalog.tools.consume import templates
        from kafkalog.tools.escapes import unescape

        given = self.given
        encodings: _Encodings = {"key_encoding": given["key_encoding"], "value_encoding": given["value_encoding"]}
        if given["as_json"]:
            return templates.json_lines(topic=given["topic"], partition=partition, **encodings)
        null = b"NULL" if given["nulls"] else b""
        if given["fmt"] is not None:
            return templates.formatted(given["fmt"], topic=given["topic"], partition=partition, null=null, **encodings)
        key_delimiter = given["key_delimiter"]
        return templates.delimited(
            delimiter=unescape(given["delimiter"]),
            key_delimiter=None if key_delimiter is None else unescape(key_delimiter),
            null=null,
            **encodings,
        )

    def _write(self, view: LogView, start: int, template: Pieces, meter: Meter) -> int:
        """Print from `start` to the view's current end (or the end time); return the offset to continue from."""
        from kafkalog.reading.source import end_of

        end = end_of(view, self.isolation)
        until = self.bounds.stop_offset(view)
        stop = end if until is None else min(end, until)
        while start < stop and self.left != 0:
            part = stop if self.group is None else min(stop, start + self.group.step)
            start = self._write_part(view, start, part, template, meter)
            if self.group is not None:
                self.out.flush()
                self.group.written(view, start)
        return start

    def _write_part(self, view: LogView, start: int, stop: int, template: Pieces, meter: Meter) -> int:
        from kafkalog.reading.chunks import batch_chunks, visible_chunks
        from kafkalog.tools.consume.text import write_records

        if self.filter is not None:
            written = self._write_matching(self.filter, view, start, stop, template, meter)
            return stop if self.left != 0 else written.next_offset
        try:
            chunks = self._metered(batch_chunks(view, start, stop, skipped=self.skipped), meter)
            chunks = visible_chunks(view, chunks, self.isolation == "committed", stop, self.skipped)
            limits = {"first_offset": start, "end_offset": stop, "max_records": self.left}
            if self.serdes is None:
                written = write_records(chunks, self.out, template, **limits)
            else:
                from kafkalog.tools.consume.decoded import write_decoded

                written = write_decoded(chunks, self.out, template, self.serdes, **limits)
        except BaseException:
            self.out.flush()  # the records before the damage
            raise
        if self.left > 0:
            self.left -= written.records
        return stop if self.left != 0 else written.next_offset

    def _write_matching(
        self, filter: Filter, view: LogView, start: int, stop: int, template: Pieces, meter: Meter
    ) -> Written:
        """Print the records with offsets in [start, stop) that match; count them."""
        try:
            written = filter.write(
                view, self.out, template, self.serdes, first_offset=start, end_offset=stop, max_records=self.left,
                isolation=self.given["isolation_level"], skipped=self.skipped, tell=lambda size, _: meter.add(size),
            )  # fmt: skip
        finally:
            self.out.flush()  # the records before the damage
        if self.left > 0:
            self.left -= written.records
        return written

    def _metered(self, chunks: Iterator[Chunk], meter: Meter) -> Iterator[Chunk]:
        for chunk in chunks:
            yield chunk
            meter.add(len(chunk.data))
            if self.given["unbuffered"]:
                self.out.flush()

    def _follow(self, views: list[LogView], starts: list[int], templates: list[Pieces], meter: Meter) -> None:
        """Print new records as they arrive, until -c is reached or each partition has passed the end time."""
        from kafkalog.reading.tail import Place, Waiting

        waiting = Waiting(None)
        places = [Place(view, start) for view, start in zip(views, starts, strict=True)]
        while self.left != 0 and not all(self._past_end_time(view) for view in views):
            has_news = False
            for number, view in enumerate(views):
                view.refresh()
                places[number].check()
                next_offset = self._write(view, starts[number], templates[number], meter)
                if next_offset != starts[number]:
                    has_news = True
                    starts[number] = next_offset
                    places[number].move(next_offset)
            if has_news:
                self.out.flush()
                waiting.restart()
            else:
                if self.group is not None:
                    self.group.idle()
                waiting.wait()

    def _past_end_time(self, view: LogView) -> bool:
        return self.bounds.until_ms is not None and self.bounds.stop_offset(view) is not None
