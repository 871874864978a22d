"""`kafkalog bench`: benchmarks of the library, in the manner of leveldb's db_bench."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from kafkalog.cli import common

if TYPE_CHECKING:
    from kafkalog.bench.result import Result
    from kafkalog.bench.settings import Settings
    from kafkalog.bench.surroundings import Surroundings


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names that may follow the last comma."""
    from kafkalog.bench.settings import BENCHMARKS

    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in BENCHMARKS if name.startswith(last)]


class _Listing(click.Command):
    """A command whose help has a line for each benchmark."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from kafkalog.bench.settings import BENCHMARKS

        with formatter.section("Benchmarks"):
            formatter.write_dl(list(BENCHMARKS.items()))


@click.command("bench", cls=_Listing)
@click.argument("directory", required=False, type=click.Path(), metavar="[DIR]")
@click.option(
    "--benchmarks", metavar="NAME,...", shell_complete=_complete, help="Benchmarks to run, in order. Default: all."
)
@click.option("--use-existing", type=click.Path(), metavar="PARTITION", help="Only read this log; write nothing.")
@click.option("--num", type=int, metavar="N", help="Number of records, and of reads.  [default: 100000]")
@click.option("--value-size", type=int, metavar="BYTES", help="Size of a value in bytes.  [default: 100]")
@click.option("--key-size", type=int, metavar="BYTES", help="Size of a key in bytes.  [default: 16]")
@click.option("--batch-size", type=int, metavar="RECORDS", help="Records in a batch of fillbatch.  [default: 100]")
@click.option("--compression", metavar="CODEC", help="Codec: none, gzip, snappy, lz4, zstd, zstd:9.  [default: none]")
@click.option("--segment-bytes", type=int, metavar="BYTES", help="Size of a segment in bytes.  [default: 1073741824]")
@click.option("--threads", type=int, metavar="N", help="Number of threads that share the reads.  [default: 1]")
@click.option("--seconds", type=float, metavar="S", help="Limit of each benchmark in seconds.  [default: no limit]")
@click.option("--seed", type=int, metavar="N", help="Seed; the same seed writes the same records.  [default: 301]")
@click.option("--cold", is_flag=True, help="Drop the log's pages from memory before each read.")
@click.option("--keep", is_flag=True, help="Do not remove the logs at the end.")
@common.json_option("Print one JSON object for each benchmark.")
@common.quiet_options
def command(
    directory: str | None,
    benchmarks: str | None,
    use_existing: str | None,
    keep: bool,
    as_json: bool,
    **given: object,
) -> None:
    """Benchmark appending, reading, recovery and compaction on this machine; print a line for each benchmark.

    Logs are written to DIR, which must be missing or empty, and removed at the end. Default: a temporary directory.
    With --use-existing, an existing log is read and nothing is written; a broker may be running.

    Each line shows the time of one operation, the operations and megabytes (of keys and values) per second, and the
    latency of single operations: half of them took no longer than p50.

    Example: kafkalog bench --benchmarks fillbatch,readseq --num 1000000

    Exit status: 0 fine, 1 the disk failed or is full, 2 wrong usage, 130 after Ctrl-C.
    """
    from kafkalog.bench.running import run
    from kafkalog.errors import UnsupportedCompression

    output = _Output(as_json)
    settings = {name: value for name, value in given.items() if value is not None}
    try:
        run(
            directory, benchmarks, use_existing=use_existing, keep=keep, begun=output.print_header,
            tell=output.print_result, **settings,
        )  # fmt: skip
    except UnsupportedCompression as error:
        raise click.BadParameter(str(error), param_hint="--compression") from None
    except (KeyboardInterrupt, SystemExit):
        output.interrupted(keep)
        raise
    if keep:
        common.note(f"the logs are in {output.directory}")


class _Output:
    """Output of the command: header and results as they arrive."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._settings: Settings | None = None
        self._surroundings: Surroundings | None = None
        self._finished = 0

    @property
    def directory(self) -> str:
        """Directory of the logs."""
        return "" if self._surroundings is None else self._surroundings.directory

    def print_header(self, settings: Settings, surroundings: Surroundings) -> None:
        """Print the header."""
        from kafkalog.bench.surroundings import header
        from kafkalog.inspect.text import terminal_columns

        self._settings, self._surroundings = settings, surroundings
        if self._as_json:
            return
        width = terminal_columns()
        for line in header(settings, surroundings):
            for part in _wrap_line(line, width):
                print(part)
        print("-" * min(width, 60), flush=True)

    def print_result(self, result: Result) -> None:
        """Print a result."""
        from kafkalog.bench.result import as_dict, lines
        from kafkalog.inspect.text import terminal_columns

        assert self._settings is not None and self._surroundings is not None
        self._finished += 1
        if self._as_json:
            print(json.dumps(as_dict(result, self._settings, self._surroundings)), flush=True)
        else:
            print("\n".join(lines(result, terminal_columns())), flush=True)

    def interrupted(self, keep: bool) -> None:
        """Report the state after a signal: finished benchmarks and logs."""
        if self._surroundings is None or self._settings is None:
            return
        total = len(self._settings.benchmarks)
        place = f"in {self.directory}" if keep else "removed"
        logs = "" if self._settings.only_reads else f"; the logs are {place}"
        text = f"interrupted after {self._finished} of {common.plural(total, 'benchmark')}{logs}"
        common.note(text)


def _wrap_line(line: str, width: int) -> list[str]:
    import textwrap

    indent = len(line) - len(line.partition(":")[2].lstrip())
    return textwrap.wrap(line, width, subsequent_indent=" " * indent)
