"""`kafkalog compact`: clean compacted topics; a dry run by default."""

from __future__ import annotations

import sys
from typing import Any

import click

from kafkalog.cli import common
from kafkalog.cli.progress import Meter

_OPTIONS = (
    click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="(DIR | PARTITION)..."),
    common.apply_option,
    common.topics_option,
    click.option("--from-start", is_flag=True, help="Clean what is clean already, too: what waited for its time goes."),
    click.option("--roll", is_flag=True, help="Begin a new segment first, so that the last one is cleaned, too."),
    click.option("--delete-retention-ms", metavar="MS", help="Counts instead of each topic's delete.retention.ms."),
    click.option("--min-compaction-lag-ms", metavar="MS", help="Counts instead of each topic's min.compaction.lag.ms."),
    click.option("--cleanup-policy", metavar="POLICY", help="Counts instead of each topic's cleanup.policy."),
    click.option(
        "--map-bytes",
        type=click.IntRange(48),
        metavar="N",
        help="Memory for keys, 24 bytes each. Default: 128 MiB, or less where there are fewer records.",
    ),
    click.option("--now", "now_text", metavar="TIME", help="Delete horizons count from then: ms or ISO-8601."),
    common.settings_option("Setting of the broker for topics without their own"),
    common.json_option("One JSON object for each partition, and one for the report."),
)


def compaction_options(command: common.Command) -> common.Command:
    """Add the options of what to clean, and by which rules; `compaction_of` converts them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def compaction_of(
    dry_run: bool,
    topics: tuple[str, ...],
    from_start: bool,
    roll: bool,
    delete_retention_ms: str | None,
    min_compaction_lag_ms: str | None,
    cleanup_policy: str | None,
    map_bytes: int | None,
    now_text: str | None,
    settings: dict[str, str],
) -> dict[str, Any]:
    """Return the options as arguments of `compact`; a usage error for an invalid time."""
    given = {
        "delete.retention.ms": delete_retention_ms,
        "min.compaction.lag.ms": min_compaction_lag_ms,
        "cleanup.policy": cleanup_policy,
    }
    asked = {
        "apply": not dry_run,
        "topics": topics,
        "settings": {name: value for name, value in given.items() if value is not None},
        "store": settings,
        "from_start": from_start,
        "roll": roll,
        "now_ms": None if now_text is None else common.parse_time(now_text, "--now"),
    }
    return asked if map_bytes is None else {**asked, "map_bytes": map_bytes}


@click.command("compact")
@compaction_options
@common.quiet_options
def command(paths: tuple[str, ...], as_json: bool, quiet: bool, verbose: int, **given: Any) -> None:
    """Clean compacted topics: of the records of a key the last one stays, and a deleted key goes in time.

    Each topic has its own settings: from the topics file where kafkalog made it, from the broker's metadata
    (__cluster_metadata-0) where a broker did. A topic that is not compacted, or that nobody knows, is left alone. How
    dirty a log is, is not asked; the last segment of a partition stays as it is without --roll.

    Nothing changes without --apply: what would go is counted, and a broker may run. With it the data directories are
    locked, so no broker may run on them; a log that was not closed well is recovered first where it has anything to
    clean.

    Exit status: 0 fine, 1 damage or a named thing absent, 2 wrong usage.
    """
    from kafkalog.tools.compact import compact, plan_compact

    common.set_verbosity(quiet, verbose)
    asked = compaction_of(**given)
    meter = Meter("compact", None, quiet=quiet)
    if meter.shown and sys.stderr.isatty():
        plan = {name: value for name, value in asked.items() if name != "apply"}
        meter = Meter("compact", plan_compact(paths, **plan).total_bytes(), quiet=quiet)
    with meter:
        report = compact(paths, **asked, progress=meter.add if meter.shown else None)
    for line in report.json_lines() if as_json else report.lines():
        print(line)
