"""Options and helpers that the commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from kafkalog.shown import one_message

if TYPE_CHECKING:
    from kafkalog.storage.damage import Skipped
    from kafkalog.tools.directories import PartitionPath
    from kafkalog.util.fileio import FileSystem

_ISOLATION = "isolation.level"
SETTLE_S = 0.05
"""A batch that is cut off gets so long to be whole: a writer may be about to finish it."""

Command = TypeVar("Command", bound=Callable[..., Any])


def dir_option(command: Command) -> Command:
    """-d/--dir, repeatable, defaulting to KAFKALOG_DIR (several joined by the path separator)."""
    return click.option(
        "-d",
        "--dir",
        "dirs",
        multiple=True,
        envvar="KAFKALOG_DIR",
        type=click.Path(),
        metavar="DIR",
        help="Data directory that holds <topic>-<partition> directories; repeats. [env: KAFKALOG_DIR]",
    )(command)


def on_damage_option(command: Command) -> Command:
    """--on-damage raise|skip."""
    return click.option(
        "--on-damage",
        type=click.Choice(["raise", "skip"]),
        default="raise",
        show_default=True,
        help="At bytes that are no sound batch: stop with an error, or leave them out, report them and go on.",
    )(command)


def report_skipped(skipped: Sequence[Skipped]) -> None:
    """Print what was left out on standard error, a line a piece."""
    for piece in skipped:
        has_offsets = piece.next_offset > piece.offset
        offsets = f"offsets {piece.offset} to {piece.next_offset - 1}" if has_offsets else "no offsets"
        size = plural(piece.size_bytes, "byte")
        place = f"{piece.path}, {size} from position {piece.position}, {offsets}"
        print(f"kafkalog: left out: {place}: {piece.reason}", file=sys.stderr)


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """The topics of the directories named so far that begin with `incomplete`; none where they cannot be read."""
    from kafkalog.errors import KafkalogError
    from kafkalog.tools.directories import partitions

    dirs = ctx.params.get("dirs") or os.environ.get("KAFKALOG_DIR", "").split(os.pathsep)
    try:
        found = {one.topic_partition.topic for one in partitions([one for one in dirs if one])}
    except KafkalogError:
        return []
    return sorted(topic for topic in found if topic.startswith(incomplete))


def topic_option(*, required: bool = False) -> Callable[[Command], Command]:
    """-t/--topic."""
    return click.option(
        "-t", "--topic", required=required, metavar="TOPIC", help="Topic name.", shell_complete=complete_topics
    )


def topics_option(command: Command) -> Command:
    """-t/--topic, repeatable, for commands that go over all topics."""
    return click.option(
        "-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; repeats. Default: all.",
        shell_complete=complete_topics,
    )(command)  # fmt: skip


def partition_option(*, multiple: bool = False) -> Callable[[Command], Command]:
    """-p/--partition, once or repeatable."""
    return click.option(
        "-p",
        "--partition",
        "partitions" if multiple else "partition",
        multiple=multiple,
        type=click.IntRange(0, 2**31 - 1),
        metavar="N",
        help="Partition number" + ("; repeats. Default: all." if multiple else "."),
    )


def settings_option(what: str, *more_names: str) -> Callable[[Command], Command]:
    """-X k=v, repeatable, as the dict `settings`; `what` it sets is the help text."""
    return click.option(
        "-X",
        *more_names,
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=lambda ctx, param, given: parse_settings(given),
        help=f"{what}; repeats.",
    )


def json_option(what: str) -> Callable[[Command], Command]:
    """-J/--json; `what` comes of it is the help text."""
    return click.option("-J", "--json", "as_json", is_flag=True, help=what)


def apply_option(command: Command) -> Command:
    """--dry-run (the default) and --apply, as `dry_run`."""
    return click.option(
        "--dry-run/--apply", "dry_run", default=True, help="Only tell what would be done (default), or do it."
    )(command)


def recovery_option(command: Command) -> Command:
    """--on-damage, for commands that open logs for writing."""
    return click.option(
        "--on-damage",
        type=click.Choice(["recover", "refuse"]),
        help="Where a log that was not closed well has damage before sound records: cut it there and keep what is "
        "behind (recover, the default), or do not open it (refuse).",
    )(command)


def group_option(what: str, *, required: bool = False) -> Callable[[Command], Command]:
    """-G/--group, the name of cursors; `what` it does is the help text."""
    return click.option("-G", "--group", required=required, metavar="NAME", help=what)


def cursors_option(command: Command) -> Command:
    """--cursors, where positions are kept."""
    return click.option(
        "--cursors",
        envvar="KAFKALOG_CURSORS",
        type=click.Path(),
        metavar="DIR",
        help="Where positions are kept; by default in the user's state directory. [env: KAFKALOG_CURSORS]",
    )(command)


def schemas_option(command: Command) -> Command:
    """--schemas, for decoders that read a registry's."""
    return click.option(
        "--schemas", type=click.Path(), metavar="DIR", help="Schemas of a registry, <id>.avsc and <id>.desc."
    )(command)


def isolation_option(command: Command) -> Command:
    """--isolation-level, by the consumer's names."""
    return click.option(
        "--isolation-level",
        metavar="LEVEL",
        help="read_uncommitted (the default): up to the end; read_committed: up to the last stable offset, without "
        "records of aborted transactions; high_watermark: up to the one in the data directory's checkpoint.",
    )(command)


@contextmanager
def usage_of(flag: str) -> Iterator[None]:
    """Makes an IllegalArgument about the value of `flag` wrong usage that names the flag."""
    from kafkalog.errors import IllegalArgument

    try:
        yield
    except IllegalArgument as error:
        raise click.BadParameter(str(error), param_hint=flag) from None


def isolation_level(option: str | None, settings: dict[str, str] | None = None) -> str | None:
    """The level from --isolation-level or `-X isolation.level`; a usage error for another setting or another level."""
    from kafkalog.engine import isolation_of
    from kafkalog.keywords import near

    level, flag = option, "--isolation-level"
    for name, value in (settings or {}).items():
        if name != _ISOLATION:
            meant = f": did you mean {_ISOLATION}?" if near(name, (_ISOLATION,)) else f"; known is {_ISOLATION}"
            raise click.BadParameter(f"{name!r} is no setting of a reader here{meant}", param_hint="-X")
        if option is not None and option != value:
            raise click.BadParameter(f"{value!r} contradicts --isolation-level {option}", param_hint="-X " + name)
        level, flag = value, f"-X {_ISOLATION}"
    with usage_of(flag):
        isolation_of(level)
    return level


def parse_time(text: str, flag: str) -> int:
    """Ms since 1970 of a TIME: digits, or ISO-8601; a usage error that names `flag` for anything else."""
    from kafkalog.times import text_ms

    with usage_of(flag):
        return text_ms(text)


def quiet_options(command: Command) -> Command:
    """-q and -v: `quiet` drops notes and progress, `verbose` adds detail."""
    command = click.option("-v", "verbose", count=True, help="Say more on stderr.")(command)
    return click.option("-q", "quiet", is_flag=True, help="No notes and no progress on stderr.")(command)


def parse_settings(given: Sequence[str]) -> dict[str, str]:
    """`name=value` arguments as a dict; click.BadParameter for one without `=` or given twice."""
    settings: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise click.BadParameter(f"{text!r} is not NAME=VALUE")
        if name.strip() in settings:
            raise click.BadParameter(f"{name.strip()} is given twice")
        settings[name.strip()] = value
    return settings


def need_dirs(dirs: Sequence[str]) -> list[str]:
    """The data directories; a usage error where none is named."""
    if not dirs:
        raise click.UsageError("no data directory: give -d DIR, or set KAFKALOG_DIR")
    return [os.fspath(one) for one in dirs]


def where_they_lie(dirs: Sequence[str]) -> tuple[FileSystem, list[str]]:
    """The file system of data directories, and their paths in it: the machine's, or that of URLs (docs/remote.md)."""
    if any("://" in one for one in dirs):
        from kafkalog.remote import locate_directories

        return locate_directories(dirs)
    from kafkalog.util.fileio import OS

    return OS, list(dirs)


def find_partitions(dirs: Sequence[str], topic: str | None, numbers: Sequence[int]) -> list[PartitionPath]:
    """What -d, -t and -p name: partitions of a topic, or all of all topics; a usage error for -p alone."""
    from kafkalog.tools.directories import find, partitions

    where = need_dirs(dirs)
    if topic is not None:
        return find(where, topic, numbers)
    if numbers:
        raise click.UsageError("-p is of a topic: give -t TOPIC")
    return partitions(where)


def note(text: str, *, quiet: bool = False) -> None:
    """A line on stderr, unless `quiet`."""
    if not quiet:
        print(one_message(text), file=sys.stderr, flush=True)


def set_verbosity(quiet: bool, verbose: int) -> None:
    """Lets warnings through by default, everything with -vv, nothing below errors with -q."""
    import logging

    level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
    logging.basicConfig(stream=sys.stderr, level=level, format="kafkalog: %(message)s")


def settings_text(settings: Mapping[str, str]) -> str:
    """`a=1,b=2`, by name."""
    return ",".join(f"{name}={value}" for name, value in sorted(settings.items()))


def plural(count: int, noun: str) -> str:
    """`1 partition`, `2 partitions`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
