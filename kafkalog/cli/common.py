"""Options and helpers that the commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import click

from kafkalog.util.text import one_message
from kafkalog.util.text import plural as plural

if TYPE_CHECKING:
    from kafkalog.errors import KafkalogError
    from kafkalog.log.log import Log
    from kafkalog.storage.damage import Skipped
    from kafkalog.tools.directories import PartitionPath
    from kafkalog.util.fileio import FileSystem

_ISOLATION = "isolation.level"
INTERVAL = "index.interval.bytes"
SETTLE_S = 0.05
"""Wait in seconds before an incomplete batch counts as damage: a writer may be about to finish it."""

_DIRS = "kafkalog.cli.dirs"
_QUIET, _VERBOSITY = "kafkalog.cli.quiet", "kafkalog.cli.verbosity"
Command = TypeVar("Command", bound=Callable[..., object])
T = TypeVar("T")


def options(*given: Callable[..., Any]) -> Callable[[Command], Command]:
    """Return a decorator that adds options to a command, in the order of its help."""

    def add(command: Command) -> Command:
        for option in reversed(given):
            command = option(command)
        return command

    return add


dir_option = click.option(
    "-d", "--dir", "dirs", multiple=True, envvar="KAFKALOG_DIR", type=click.Path(), metavar="DIR",
    help="Data directory with <topic>-<partition> directories; repeatable. [env: KAFKALOG_DIR]",
)  # fmt: skip


tiered_option = click.option(
    "--tiered", metavar="STORE",
    help="Read tiered topics whole: URL of the store with their segments, or a file that describes it. See "
    "docs/tiered.md.",
)  # fmt: skip


def paths_argument(metavar: str = "(DIR | PARTITION)...") -> Callable[[Command], Command]:
    """Add the argument of paths, and -d/--dir for those that are data directories; KAFKALOG_DIR if there is neither."""
    return options(
        click.argument("paths", nargs=-1, type=click.Path(), metavar=metavar, callback=_all_paths),
        click.option(
            "-d", "--dir", "dirs", multiple=True, type=click.Path(), metavar="DIR", expose_value=False, is_eager=True,
            callback=store_as(_DIRS), help="Data directory, same as the argument; repeatable. [env: KAFKALOG_DIR]",
        ),
    )  # fmt: skip


def _all_paths(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> tuple[str, ...]:
    found = (*value, *ctx.meta.get(_DIRS, ()))
    if not found:
        found = tuple(one for one in os.environ.get("KAFKALOG_DIR", "").split(os.pathsep) if one)
    if not found and not ctx.resilient_parsing:
        raise click.MissingParameter("give DIR, -d DIR, or set KAFKALOG_DIR", ctx=ctx, param=param)
    return found


on_damage_option = click.option(
    "--on-damage", type=click.Choice(["raise", "skip"]), default="raise", show_default=True,
    help="At bytes that are not a valid batch: stop with an error, or skip them, report them and continue.",
)  # fmt: skip


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


topics_option = click.option(
    "-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; repeatable. Default: all.",
    shell_complete=complete_topics,
)  # fmt: skip


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


apply_option = click.option(
    "--dry-run/--apply", "dry_run", default=True, help="Only show the changes (default), or make them."
)


recovery_option = click.option(
    "--on-damage", type=click.Choice(["recover", "refuse"]),
    help="If a log was not closed cleanly and has damage before valid records: cut it there and keep the records "
    "after it (recover, the default), or do not open it (refuse).",
)  # fmt: skip


def group_option(what: str, *, required: bool = False) -> Callable[[Command], Command]:
    """Add -G/--group, the name of cursors; `what` is the help text."""
    return click.option("-G", "--group", required=required, metavar="NAME", help=what)


cursors_option = click.option(
    "--cursors", envvar="KAFKALOG_CURSORS", type=click.Path(), metavar="DIR",
    help="Directory of stored positions. Default: in the user's state directory. [env: KAFKALOG_CURSORS]",
)  # fmt: skip


isolation_option = click.option(
    "--isolation-level", metavar="LEVEL",
    help="read_uncommitted (default): up to the end; read_committed: up to the last stable offset, without "
    "records of aborted transactions; high_watermark: up to the one in the data directory's checkpoint.",
)  # fmt: skip


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
    def logging_command(*arguments: object, **given: object) -> object:
        import logging

        level = logging.ERROR if is_quiet() else (logging.WARNING, logging.INFO, logging.DEBUG)[min(verbosity(), 2)]
        logging.basicConfig(stream=sys.stderr, level=level, format="kafkalog: %(message)s")
        return command(*arguments, **given)

    return verbosity_flags(cast("Command", logging_command))


def verbosity_flags(command: Command) -> Command:
    """Add -q, which drops notes and progress (`is_quiet`), and -v, which adds detail (`verbosity`)."""
    command = click.option(
        "-v", count=True, expose_value=False, callback=store_as(_VERBOSITY), help="Print more on stderr."
    )(command)
    return click.option(
        "-q", is_flag=True, expose_value=False, callback=store_as(_QUIET),
        help="Print no notes and no progress on stderr.",
    )(command)  # fmt: skip


def store_as(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Return the callback of an option whose value `stored` returns, so that no function has to pass it on."""

    def store(ctx: click.Context, param: click.Parameter, value: object) -> None:
        ctx.meta[name] = value

    return store


def stored(name: str, default: Any) -> Any:
    """Return the value of an option of the running command that `store_as` stored."""
    context = click.get_current_context(silent=True)
    return default if context is None else context.meta.get(name, default)


def is_quiet() -> bool:
    """Return True if the running command has -q."""
    return bool(stored(_QUIET, False))


def verbosity() -> int:
    """Return the number of -v flags of the running command."""
    return int(stored(_VERBOSITY, 0))


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


def index_interval(settings: Mapping[str, str], refusal: str) -> int | None:
    """Return the distance of index entries of -X; a usage error with the text `refusal` for another setting."""
    for name in settings:
        if name != INTERVAL:
            raise click.BadParameter(f"{name} {refusal}", param_hint="-X")
    try:
        return int(settings[INTERVAL]) if settings else None
    except ValueError:
        raise click.BadParameter(f"{settings[INTERVAL]!r} is not a number", param_hint="-X") from None


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


def select_partitions(
    paths: Sequence[str], dirs: Sequence[str], topic: str | None, numbers: Sequence[int], tiered: str | None
) -> tuple[FileSystem, list[PartitionPath]]:
    """Return the partitions below `paths`, or without any those that -d, -t and -p select, and their file system."""
    from kafkalog.tools.directories import partitions_below

    fs, where = locate_dirs(paths or need_dirs(dirs), tiered)
    if not paths:
        return fs, find_partitions(where, topic, numbers, fs)
    found = partitions_below(where, [topic] if topic else [], fs)
    return fs, [one for one in found if not numbers or one.topic_partition.partition in numbers]


def each_opened(
    found: Sequence[PartitionPath], opens: Callable[[PartitionPath], T], failed: list[KafkalogError]
) -> Iterator[tuple[PartitionPath, T]]:
    """Yield each partition with what `opens` returns for it.

    One that cannot be opened is reported, and its error is added to `failed`: the others follow.
    """
    from kafkalog.errors import CorruptCheckpoint, NotAPartition

    for one in found:
        try:
            opened = opens(one)
        except (CorruptCheckpoint, NotAPartition) as error:
            note(f"kafkalog: {error}", always=True)
            failed.append(error)
            continue
        yield one, opened


def view_log(path: str, fs: FileSystem) -> Log:
    """Open a partition of a file system, such as one with tiered segments, for reading."""
    from kafkalog.log.log import Log
    from kafkalog.storage.readonly.view import LogView

    return Log(LogView(path, fs=fs), None)


def note(text: str, *, always: bool = False) -> None:
    """Print a line on stderr, unless the command has -q; `always` in spite of it."""
    if always or not is_quiet():
        print(one_message(text), file=sys.stderr, flush=True)


class Report(Protocol):
    """The report of a command: `ok` if nothing is left to do or to say."""

    @property
    def ok(self) -> bool: ...
    def lines(self) -> Iterable[str]: ...
    def json_lines(self) -> Iterable[str]: ...


def print_report(report: Report, *, as_json: bool) -> int:
    """Print a report and return the exit status."""
    for line in report.json_lines() if as_json else report.lines():
        print(line)
    return 0 if report.ok else 1


def show_server_log() -> None:
    """Log a server's progress with times: only warnings with -q, everything with -v."""
    import logging

    level = logging.WARNING if is_quiet() else logging.DEBUG if verbosity() else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def settings_text(settings: Mapping[str, str]) -> str:
    """Return settings as `a=1,b=2`, sorted by name."""
    return ",".join(f"{name}={value}" for name, value in sorted(settings.items()))
