"""The `kafkalog` command: a table of commands, each imported when it runs, and error handling.

Exit status: 0 fine (an empty topic and a closed pipe too), 1 damage, or a named item is missing, 2 wrong
usage, 130 after Ctrl-C. Data goes to stdout, notes, progress and errors to stderr.
"""

from __future__ import annotations

import io
import os
import sys
import warnings
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

    import click

COMMANDS = {
    "backup": ("kafkalog.cli.backup_cmd", "Create, list, verify, restore and delete backups of data directories."),
    "bench": ("kafkalog.cli.bench_cmd", "Benchmark appending, reading, recovery and compaction on this machine."),
    "browse": ("kafkalog.cli.browse_cmd", "Browse partitions, batches and records in the terminal."),
    "compact": ("kafkalog.cli.compact_cmd", "Clean compacted topics; dry run by default."),
    "completion": ("kafkalog.cli.completion_cmd", "Print the completion script for bash, zsh or fish."),
    "consume": ("kafkalog.cli.consume_cmd", "Print the records of a topic."),
    "copy": ("kafkalog.cli.copy_cmd", "Copy topics between clusters and directories; dry run by default."),
    "dump": ("kafkalog.cli.dump_cmd", "Print segment files in the format of Kafka's dump tool."),
    "export": ("kafkalog.cli.export_cmd", "Export records to Parquet, Arrow, JSON lines or a data directory."),
    "handover": ("kafkalog.cli.handover_cmd", "Register topics with the Kafka broker of their directories."),
    "import": ("kafkalog.cli.import_cmd", "Import records from Parquet, Arrow, JSON lines or a data directory."),
    "kept": ("kafkalog.cli.kept_cmd", "List, restore and remove records that recovery cut off and kept."),
    "keys": ("kafkalog.cli.keys_cmd", "Build, list and drop key indexes, and get records by key."),
    "ls": ("kafkalog.cli.ls_cmd", "List the files of topics: length, bytes used, disk space, entries."),
    "mirror": ("kafkalog.cli.mirror_cmd", "Mirror topics of a Kafka cluster into data directories."),
    "offsets": ("kafkalog.cli.offsets_cmd", "Find offsets by time; show, move and delete readers' positions."),
    "produce": ("kafkalog.cli.produce_cmd", "Append records from files or stdin to a topic."),
    "promote": ("kafkalog.cli.promote_cmd", "Make a server the leader of its replica set."),
    "redact": ("kafkalog.cli.redact_cmd", "Empty records by key, condition or offset; dry run by default."),
    "repair": ("kafkalog.cli.repair_cmd", "Rebuild wrong indexes and truncate torn tails; dry run by default."),
    "report": ("kafkalog.cli.report_cmd", "Write an HTML report on data directories: rates, sizes, keys, indexes."),
    "restore": ("kafkalog.cli.restore_cmd", "Restore a backup into data directories."),
    "retain": ("kafkalog.cli.retain_cmd", "Delete segments that exceed retention; dry run by default."),
    "serve": ("kafkalog.cli.serve_cmd", "Serve topics to Kafka clients."),
    "spark": ("kafkalog.cli.spark_cmd", "Run jobs over many data directories on Spark."),
    "sql": ("kafkalog.cli.sql_cmd", "Query topics with SQL, by DuckDB."),
    "stats": ("kafkalog.cli.stats_cmd", "Show records, batches, bytes, rates and compression of partitions."),
    "table": ("kafkalog.cli.table_cmd", "Write topics to Iceberg and Delta tables, and back."),
    "times": ("kafkalog.cli.times_cmd", "Build, list and drop time ranges, for queries with a range of time."),
    "topics": ("kafkalog.cli.topics_cmd", "List, describe, create, alter and delete topics."),
    "transactions": ("kafkalog.cli.transactions_cmd", "List open transactions and their producers."),
    "verify": ("kafkalog.cli.verify_cmd", "Verify directories, partitions or files; change nothing."),
}


class ClosedPipe(Exception):
    """The reader of the output closed the pipe; click itself would exit with status 1."""


OK, FAILED, USAGE, INTERRUPTED, TERMINATED = 0, 1, 2, 130, 143


def build() -> click.Group:
    """Return the top-level click group, whose commands are imported on first use."""
    import click
    from click.shell_completion import CompletionItem

    class LazyGroup(click.Group):
        """A group that lists names and one-line helps without importing a command."""

        def list_commands(self, ctx: click.Context) -> list[str]:
            return sorted(COMMANDS)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if cmd_name not in COMMANDS:
                return None
            command: click.Command = import_module(COMMANDS[cmd_name][0]).command
            return command

        def invoke(self, ctx: click.Context) -> object:
            try:
                result = super().invoke(ctx)
                sys.stdout.flush()
                return result
            except BrokenPipeError:
                raise ClosedPipe from None

        def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
            """Return the names and help lines of commands, without importing them."""
            named = [CompletionItem(name, help=COMMANDS[name][1]) for name in sorted(COMMANDS)]
            options = click.Command.shell_complete(self, ctx, incomplete)
            return [*(item for item in named if item.value.startswith(incomplete)), *options]

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Commands"):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])

        def resolve_command(
            self, ctx: click.Context, args: list[str]
        ) -> tuple[str | None, click.Command | None, list[str]]:
            if args and args[0] not in COMMANDS and not args[0].startswith("-"):
                from difflib import get_close_matches

                matches = get_close_matches(args[0], COMMANDS, n=2, cutoff=0.5)
                hint = f" Did you mean {' or '.join(matches)}?" if matches else ""
                ctx.fail(f"No such command {args[0]!r}.{hint}")
            return super().resolve_command(ctx, args)

    @click.group(
        cls=LazyGroup,
        name="kafkalog",
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
        epilog="KAFKALOG_DIR names the data directories if -d is not given. "
        "Run `kafkalog COMMAND --help` for the options of a command.",
    )
    @click.version_option(_version(), "--version", prog_name="kafkalog", message="%(prog)s %(version)s")
    def kafkalog() -> None:
        """Write, read and inspect Kafka's topic directories on local disk, without a broker."""

    return kafkalog


def _version() -> str:
    from kafkalog._version import version

    return version


def _print_error(text: str) -> None:
    from kafkalog.util.text import one_message

    with suppress(OSError):
        print(one_message(text), file=sys.stderr, flush=True)


def _silence_stdout() -> None:
    """Redirect stdout to /dev/null, so that the interpreter's last flush does not fail on a closed pipe."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(devnull, 1)
    finally:
        os.close(devnull)


class Terminated(SystemExit):
    """Ends the program at SIGTERM."""


def _on_terminate(signum: int, frame: object) -> NoReturn:
    raise Terminated(TERMINATED)


def run(args: Sequence[str]) -> int:
    """Run the command line `args` and return the exit status; print errors as one message without a traceback."""
    try:
        return _run(args)
    except KeyboardInterrupt:  # while click was imported, which takes most of the time of a short command
        return INTERRUPTED


def _run(args: Sequence[str]) -> int:
    if list(args) == ["--version"]:
        try:
            print(f"kafkalog {_version()}", flush=True)
        except OSError as error:
            return _explain(error)
        return OK
    import click

    from kafkalog.util.text import one_message

    warnings.formatwarning = lambda message, *rest, **more: f"kafkalog: warning: {one_message(str(message))}\n"
    try:
        status = build().main(list(args), prog_name="kafkalog", standalone_mode=False)
        return status if isinstance(status, int) else OK
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.UsageError as error:
        error.show()
        return USAGE
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except ClosedPipe:
        _silence_stdout()
        return OK
    except Exception as error:
        return _explain(error)


def _explain(error: Exception) -> int:
    from kafkalog import errors

    if not isinstance(error, errors.KafkalogError | OSError | MemoryError):
        raise error
    if isinstance(error, BrokenPipeError):
        _silence_stdout()
        return OK
    text = str(error) or type(error).__name__
    if isinstance(error, OSError) and not isinstance(error, errors.KafkalogError) and error.filename is None:
        text = f"cannot write the output: {error.strerror or error}"
        _silence_stdout()
    _print_error(f"kafkalog: {text}")
    usage = (errors.ConfigError, errors.InvalidTopic, errors.IllegalArgument, errors.InvalidReplicationFactor)
    is_usage = isinstance(error, usage) and error.position is None  # with a position: about a file's content
    return USAGE if is_usage else FAILED


def main() -> NoReturn:
    """Entry point of the `kafkalog` script."""
    import signal

    from kafkalog.util.interrupts import resend_lost_signals

    signal.signal(signal.SIGTERM, _on_terminate)
    resend_lost_signals({Terminated: signal.SIGTERM, KeyboardInterrupt: signal.SIGINT})
    _open_standard_files()
    status = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except OSError as error:
        status = _explain(error) or status
    sys.exit(status)


def _open_standard_files() -> None:
    """Open closed descriptors 0, 1 and 2: otherwise a log's file could get the number, and the output.

    Reading from 0 and writing to 1 still fail; output to 2 is lost.
    """
    for fd, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, mode)  # gets the lowest free number, which is fd
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # a path that is not UTF-8 is printed as its bytes


if __name__ == "__main__":
    main()
