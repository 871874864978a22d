"""Options and helpers that the commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, TypedDict, TypeVar, cast

import click

from kafkalog.util.text import one_message

if TYPE_CHECKING:
    from kafkalog.log.log import Log
    from kafkalog.storage.damage import Skipped
    from kafkalog.tools.directories import PartitionPath
    from kafkalog.util.fileio import FileSystem

    class Verbosity(TypedDict):
        """Values of `verbosity_flags`."""

        quiet: bool
        verbose: int

_ISOLATION = "isolation.level"
SETTLE_S = 0.05
"""Wait in seconds before an incomplete batch counts as damage: a writer may be about to finish it."""

_DIRS = "kafkalog.cli.dirs"
Command = TypeVar("Command", bound=Callable[..., object])


def with_options(options: Sequence[Callable[[Command], Command]], command: Command) -> Command:
    """Add options to a command, in the order of its help."""
    for option in reversed(options):
        command = option(command)
    return command


def dir_option(command: Command) -> Command:
    """Add -d/--dir, repeatable, default KAFKALOG_DIR (several joined by the path separator)."""
    return click.option(
        "-d",
        "--dir",
        "dirs",
        multiple=True,
        envvar="KAFKALOG_DIR",
        type=click.Path(),
        metavar="DIR",
        help="Data directory with <topic>-<partition> directories; repeatable. [env: KAFKALOG_DIR]",
    )(command)


def tiered_option(command: Command) -> Command:
    """Add --tiered."""
    return click.option(
        "--tiered",
        metavar="STORE",
        help="Read tiered topics whole: URL of the store with their segments, or a file that describes it. See "
        "docs/tiered.md.",
    )(command)


def paths_argument(metavar: str = "(DIR | PARTITION)...") -> Callable[[Command], Command]:
    """Add the argument of paths, and -d/--dir for those that are data directories; KAFKALOG_DIR if there is neither."""

    def add(command: Command) -> Command:
        command = click.option(
            "-d", "--dir", "dirs", multiple=True, type=click.Path(), metavar="DIR", expose_value=False, is_eager=True,
            callback=_store_dirs, help="Data directory, same as the argument; repeatable. [env: KAFKALOG_DIR]",
        )(command)  # fmt: skip
        return click.argument("paths", nargs=-1, type=click.Path(), metavar=metavar, callback=_all_paths)(command)

    return add


def _store_dirs(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
    ctx.meta[_DIRS] = value


def _all_paths(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    found = (*value, *ctx.meta.get(_DIRS, ()))
    if not found:
        found = tuple(one for one in os.environ.get("KAFKALOG_DIR", "").split(os.pathsep) if one)
    if not found and not ctx.resilient_parsing:
        raise click.MissingParameter("give DIR, -d DIR, or set KAFKALOG_DIR", ctx=ctx, param=param)
    return found


def on_damage_option(command: Command) -> Command:
    """Add --on-damage raise|skip."""
    return click.option(
        "--on-damage",
        type=click.Choice(["raise", "skip"]),
        default="raise",
        show_default=True,
        help="At bytes that are not a valid batch: stop with an error, or skip them, report them and continue.",
    )(command)


def report_skipped(skipped: Sequence[Skipped]) -> None:
    """Print the skipped ranges on standard error, one per line."""
    for piece in skipped:
        has_offsets = piece.next_offset > piece.offset
        offsets = f"offsets {piece.offset} to {piece.next_offset - 1}" if has_offsets else "no offsets"
        size = plural(piece.size_bytes, "byte")
        place = f"{piece.path}, {size} from position {piece.position}, {offsets}"
        print(f"kafkalog: skipped: {place}: {piece.reason}", file=sys.stderr)


def complete_topics(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return topics of the given directories that start with `incomplete`; none if they cannot be read."""
    from kafkalog.errors import KafkalogError
    from kafkalog.tools.directories import partitions

    dirs = ctx.params.get("dirs") or os.environ.get("KAFKALOG_DIR", "").split(os.pathsep)
    try:
        found = {one.topic_partition.topic for one in partitions([one for one in dirs if one])}
    except KafkalogError:
        return []
    return sorted(topic for topic in found if topic.startswith(incomplete))


def topic_option(*, required: bool = False) -> Callable[[Command], Command]:
    """Add -t/--topic."""
    return click.option(
        "-t", "--topic", required=required, metavar="TOPIC", help="Topic name.", shell_complete=complete_topics
    )


def topics_option(command: Command) -> Command:
    """Add -t/--topic, repeatable, for commands that go over all topics."""
    return click.option(
        "-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; repeatable. Default: all.",
        shell_complete=complete_topics,
    )(command)  # fmt: skip


def partition_option(*, multiple: bool = False) -> Callable[[Command], Command]:
    """Add -p/--partition, once or repeatable."""
    return click.option(
        "-p",
        "--partition",
        "partitions" if multiple else "partition",
        multiple=multiple,
        type=click.IntRange(0, 2**31 - 1),
        metavar="N",
        help="Partition number" + ("; repeatable. Default: all." if multiple else "."),
    )


def settings_option(what: str, *more_names: str) -> Callable[[Command], Command]:
    """Add -X k=v, repeatable, as the dict `settings`; `what` is the help text."""
    return click.option(
        "-X",
        *more_names,
        "settings",
        multiple=True,
        metavar="NAME=VALUE",
        callback=lambda ctx, param, given: parse_settings(given),
        help=f"{what}; repeatable.",
    )


def json_option(what: str) -> Callable[[Command], Command]:
    """Add -J/--json; `what` is the help text."""
    return click.option("-J", "--json", "as_json", is_flag=True, help=what)


def apply_option(command: Command) -> Command:
    """Add --dry-run (the default) and --apply, as `dry_run`."""
    return click.option(
        "--dry-run/--apply", "dry_run", default=True, help="Only show the changes (default), or make them."
    )(command)


def recovery_option(command: Command) -> Command:
    """Add --on-damage recover|refuse, for commands that open logs for writing."""
    return click.option(
        "--on-damage",
        type=click.Choice(["recover", "refuse"]),
        help="If a log was not closed cleanly and has damage before valid records: cut it there and keep the records "
        "after it (recover, the default), or do not open it (refuse).",
    )(command)


def group_option(what: str, *, required: bool = False) -> Callable[[Command], Command]:
    """Add -G/--group, the name of cursors; `what` is the help text."""
    return click.option("-G", "--group", required=required, metavar="NAME", help=what)


def cursors_option(command: Command) -> Command:
    """Add --cursors, the directory of stored positions."""
    return click.option(
        "--cursors",
        envvar="KAFKALOG_CURSORS",
        type=click.Path(),
        metavar="DIR",
        help="Directory of stored positions. Default: in the user's state directory. [env: KAFKALOG_CURSORS]",
    )(command)


def isolation_option(command: Command) -> Command:
    """Add --isolation-level, with the consumer's names."""
    return click.option(
        "--isolation-level",
        metavar="LEVEL",
        help="read_uncommitted (default): up to the end; read_committed: up to the last stable offset, without "
        "records of aborted transactions; high_watermark: up to the one in the data directory's checkpoint.",
    )(command)


@contextmanager
def usage_of(flag: str) -> Iterator[None]:
    """Convert an IllegalArgument about the value of `flag` to a usage error that names the flag."""
    from kafkalog.errors import IllegalArgument

    try:
        yield
    except IllegalArgument as error:
        raise click.BadParameter(str(error), param_hint=flag) from None


def isolation_level(option: str | None, settings: dict[str, str] | None = None) -> str | None:
    """Return the level of --isolation-level or `-X isolation.level`; a usage error for another setting or level."""
    from kafkalog.reading.source import isolation_of
    from kafkalog.util.keywords import closest_match

    level, flag = option, "--isolation-level"
    for name, value in (settings or {}).items():
        if name != _ISOLATION:
            is_similar = closest_match(name, (_ISOLATION,)) is not None
            suggestion = f": did you mean {_ISOLATION}?" if is_similar else f"; the only one is {_ISOLATION}"
            raise click.BadParameter(f"{name!r} is not a reader setting{suggestion}", param_hint="-X")
        if option is not None and option != value:
            raise click.BadParameter(f"{value!r} contradicts --isolation-level {option}", param_hint="-X " + name)
        level, flag = value, f"-X {_ISOLATION}"
    with usage_of(flag):
        isolation_of(level)
    return level


def parse_time(text: str, flag: str) -> int:
    """Return ms since 1970 of a TIME (digits, or ISO-8601); a usage error that names `flag` for anything else."""
    from kafkalog.util.times import text_ms

    with usage_of(flag):
        return text_ms(text)


def quiet_options(command: Command) -> Command:
    """Add `verbosity_flags`, and log warnings by default, everything with -vv, only errors with -q."""

    @wraps(command)
    def logging_command(*arguments: object, quiet: bool, verbose: int, **given: object) -> object:
        import logging

        level = logging.ERROR if quiet else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbose, 2)]
        logging.basicConfig(stream=sys.stderr, level=level, format="kafkalog: %(message)s")
        return command(*arguments, quiet=quiet, verbose=verbose, **given)

    return verbosity_flags(cast("Command", logging_command))


def verbosity_flags(command: Command) -> Command:
    """Add -q and -v: `quiet` drops notes and progress, `verbose` adds detail."""
    command = click.option("-v", "verbose", count=True, help="Print more on stderr.")(command)
    return click.option("-q", "quiet", is_flag=True, help="Print no notes and no progress on stderr.")(command)


def parse_settings(given: Sequence[str]) -> dict[str, str]:
    """Return `name=value` arguments as a dict; raise click.BadParameter for one without `=` or given twice."""
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
    """Return the data directories; a usage error if none is given."""
    if not dirs:
        raise click.UsageError("no data directory: give -d DIR, or set KAFKALOG_DIR")
    return [os.fspath(one) for one in dirs]


def locate_dirs(dirs: Sequence[str], tiered: str | None = None) -> tuple[FileSystem, list[str]]:
    """Return the file system of data directories, local or of URLs (docs/remote.md), and their paths."""
    if tiered is not None:
        from kafkalog.tiered.open import located

        return located(dirs, tiered)
    if any("://" in one for one in dirs):
        from kafkalog.storage.remote import locate_directories

        return locate_directories(dirs)
    from kafkalog.util.fileio import OS

    return OS, list(dirs)


def find_partitions(
    dirs: Sequence[str], topic: str | None, numbers: Sequence[int], fs: FileSystem | None = None
) -> list[PartitionPath]:
    """Return the partitions selected by -d, -t and -p, by default all; a usage error for -p alone."""
    from kafkalog.tools.directories import find, partitions
    from kafkalog.util.fileio import OS

    where, fs = need_dirs(dirs), fs or OS
    if topic is not None:
        return find(where, topic, numbers, fs=fs)
    if numbers:
        raise click.UsageError("-p needs a topic: give -t TOPIC")
    return partitions(where, fs=fs)


def view_log(path: str, fs: FileSystem) -> Log:
    """Open a partition of a file system, such as one with tiered segments, for reading."""
    from kafkalog.log.log import Log
    from kafkalog.storage.readonly.view import LogView

    return Log(LogView(path, fs=fs), None)


def note(text: str, *, quiet: bool = False) -> None:
    """Print a line on stderr, unless `quiet`."""
    if not quiet:
        print(one_message(text), file=sys.stderr, flush=True)


def show_server_log(quiet: bool, verbose: int) -> None:
    """Log a server's progress with times: only warnings with -q, everything with -v."""
    import logging

    level = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def settings_text(settings: Mapping[str, str]) -> str:
    """Return settings as `a=1,b=2`, sorted by name."""
    return ",".join(f"{name}={value}" for name, value in sorted(settings.items()))


def plural(count: int, noun: str) -> str:
    """Return `1 partition`, `2 partitions`."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
