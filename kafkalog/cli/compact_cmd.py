"""`kafkalog compact`: clean compacted topics; a dry run by default."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from kafkalog.cli import common
from kafkalog.cli.progress import Meter

if TYPE_CHECKING:
    class CompactionOptions(TypedDict):
        """Values of `compaction_options`."""

        dry_run: bool
        topics: tuple[str, ...]
        from_start: bool
        roll: bool
        delete_retention_ms: str | None
        min_compaction_lag_ms: str | None
        cleanup_policy: str | None
        map_bytes: int | None
        now_text: str | None
        settings: dict[str, str]

compaction_options = common.options(
    common.paths_argument(),
    common.apply_option,
    common.topics_option,
    click.option("--from-start", is_flag=True, help="Clean the clean part again, to drop expired tombstones."),
    click.option("--roll", is_flag=True, help="Roll a new segment first, so that the last one is cleaned too."),
    click.option("--delete-retention-ms", metavar="MS", help="Override each topic's delete.retention.ms."),
    click.option("--min-compaction-lag-ms", metavar="MS", help="Override each topic's min.compaction.lag.ms."),
    click.option("--cleanup-policy", metavar="POLICY", help="Override each topic's cleanup.policy."),
    click.option(
        "--map-bytes",
        type=click.IntRange(48),
        metavar="N",
        help="Memory for keys in bytes, 24 for each. Default: 128 MiB, or less if there are fewer records.",
    ),
    click.option("--now", "now_text", metavar="TIME", help="Time used as now for delete horizons: ms or ISO-8601."),
    common.settings_option("Broker setting for topics without their own"),
    common.json_option("Print one JSON object for each partition, and one for the report."),
)
"""What to clean, and by which rules; `compaction_of` converts the options."""


def compaction_of(given: CompactionOptions) -> dict[str, Any]:
    """Return the options as arguments of `compact`; a usage error for an invalid time."""
    settings = {
        "delete.retention.ms": given["delete_retention_ms"],
        "min.compaction.lag.ms": given["min_compaction_lag_ms"],
        "cleanup.policy": given["cleanup_policy"],
    }
    now_text, map_bytes = given["now_text"], given["map_bytes"]
    arguments = {
        "apply": not given["dry_run"],
        "topics": given["topics"],
        "settings": {name: value for name, value in settings.items() if value is not None},
        "store": given["settings"],
        "from_start": given["from_start"],
        "roll": given["roll"],
        "now_ms": None if now_text is None else common.parse_time(now_text, "--now"),
    }
    return arguments if map_bytes is None else {**arguments, "map_bytes": map_bytes}


@click.command("compact")
@compaction_options
@common.quiet_options
def command(paths: tuple[str, ...], as_json: bool, **given: Unpack[CompactionOptions]) -> None:
    """Clean compacted topics: keep the last record of each key, and remove deleted keys in time.

    Each topic's own settings apply. They come from the topics file if kafkalog created the topic, or from the broker's
    metadata (__cluster_metadata-0) if a broker did. Topics that are not compacted, or whose settings are unknown, are
    skipped. The dirty ratio of a log is ignored. The last segment of a partition is only cleaned with --roll.

    Dry run by default; --apply makes the changes. A dry run counts the records to be removed, and a broker may be
    running. --apply locks the data directories, so no broker may run on them. A log that was not closed cleanly is
    recovered first if it has anything to clean.

    Example: kafkalog compact data --apply --topic profiles

    Exit status: 0 fine, 1 damage, or a named item is missing, 2 wrong usage.
    """
    from kafkalog.tools.compact.directories import compact, plan_compact
    from kafkalog.tools.compact.partition import dirty_bytes
    from kafkalog.tools.offline_survey import OfflineSurvey
    from kafkalog.util.fileio import OS

    arguments = compaction_of(given)
    meter = Meter("compact", None)
    if meter.shown and sys.stderr.isatty():
        survey = OfflineSurvey.of(paths, *(arguments[name] for name in ("topics", "settings", "store", "now_ms")))
        plans, _ = plan_compact(survey, from_start=given["from_start"], roll=given["roll"])
        meter = Meter("compact", sum(dirty_bytes(plan, OS) for plan in plans))
    with meter:
        report = compact(paths, **arguments, progress=meter.add if meter.shown else None)
    for line in report.json_lines() if as_json else report.lines():
        print(line)
