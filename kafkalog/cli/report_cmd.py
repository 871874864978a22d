"""`kafkalog report`: an HTML page on data directories."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Unpack

import click

from kafkalog.cli import common
from kafkalog.cli.by_options import by_options, by_topic, count_topic, parse_counting
from kafkalog.cli.progress import Meter

if TYPE_CHECKING:
    from kafkalog.cli.by_options import ByGiven, Counting
    from kafkalog.inspect.counts import PathCounts
    from kafkalog.inspect.report import Report


@click.command("report")
@click.argument("paths", nargs=-1, type=click.Path(), metavar="[DIR | PARTITION]...")
@common.dir_option
@common.topics_option
@click.option(
    "-o", "--output", default="report.html", show_default=True, metavar="FILE", help="Output file; - is stdout."
)
@click.option("--keys/--no-keys", default=True, help="Decode some records to find the most frequent keys (default).")
@click.option("--exact", is_flag=True, help="Read everything, whatever the size.")
@by_options
@common.quiet_options
def command(
    paths: tuple[str, ...],
    dirs: tuple[str, ...],
    topics: tuple[str, ...],
    output: str,
    keys: bool,
    exact: bool,
    **by: Unpack[ByGiven],
) -> int:
    """Write an HTML report on data directories: rates, sizes, compression, keys, dirty ratios, indexes.

    The report is one self-contained page without scripts or external resources, for light and dark mode, desktop and
    phone. Of large logs, a sample is read, about 512 MiB in total, and the page states how much. Checksums of all data
    read are verified, and damage is shown. With --by all records are read, and each topic has exact counts. Nothing is
    locked or changed in the directories, and a broker may be running.

    Example: kafkalog report -d data -o report.html

    Exit status: 0 fine, 1 something is damaged or could not be read (the page shows the details), 2 wrong usage.
    """
    from kafkalog.inspect.report import page
    from kafkalog.tools.report import REPORT_BYTES, make_report, total_bytes, write_report

    counting = parse_counting(by)
    selected = list(paths) if paths else common.need_dirs(dirs)
    with Meter("report", total_bytes(selected, topics) if sys.stderr.isatty() else None) as meter:
        report = make_report(
            selected, topics=topics, sample_bytes=None if exact else REPORT_BYTES, keys=keys, tell=meter.add
        )
    if counting is not None:
        report = _with_counts(report, selected, topics, counting)
    text = page(report)
    if output == "-":
        print(text, end="")
    else:
        write_report(text, output)
    found_problems = report.all_problems()
    for one in report.logs:
        if one.sampled() and common.verbosity():
            common.note(f"{one.name}: {one.sampled()}")
    problems = f"; {common.plural(len(found_problems), 'problem')}, see the page" if found_problems else ""
    common.note(f"{common.plural(len(report.logs), 'partition')} in {output}{problems}")
    return 1 if found_problems else 0


def _with_counts(
    report: Report, selected: Sequence[str], topics: Sequence[str], counting: Counting
) -> Report:
    """Return the report with the counts of each topic; a topic that cannot be counted is a problem of the report."""
    from kafkalog.errors import KafkalogError
    from kafkalog.tools.directories import partitions_below

    counts: list[PathCounts] = []
    problems = list(report.problems)
    for topic in by_topic(partitions_below(selected, topics)):
        try:
            counts.append(count_topic(topic, counting))
        except KafkalogError as error:
            problems.append(f"not counted by {counting.path}: {error}")
    return report._replace(counts=tuple(counts), problems=tuple(problems))
