"""`kafkalog retain`: apply retention to data directories; a dry run by default."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from kafkalog.cli import common

if TYPE_CHECKING:
    class RetentionOptions(TypedDict):
        """Values of `retention_options`."""

        dry_run: bool
        topics: tuple[str, ...]
        retention_ms: str | None
        retention_bytes: str | None
        now_text: str | None
        settings: dict[str, str]

retention_options = common.options(
    common.paths_argument(),
    common.apply_option,
    common.topics_option,
    click.option("--retention-ms", metavar="MS", help="Override each topic's retention.ms; -1: no limit."),
    click.option("--retention-bytes", metavar="N", help="Override each topic's retention.bytes; -1: no limit."),
    click.option("--now", "now_text", metavar="TIME", help="Time to measure ages at: ms or ISO-8601. Default: now."),
    common.settings_option("Broker setting for topics without their own, such as log.retention.hours=48"),
    common.json_option("Print one JSON object for each segment, and one for the report."),
)
"""What to delete, and the retention; `retention_of` converts the options."""


def retention_of(given: RetentionOptions) -> dict[str, Any]:
    """Return the options as arguments of `retain`; a usage error for an invalid time."""
    settings = {"retention.ms": given["retention_ms"], "retention.bytes": given["retention_bytes"]}
    now_text = given["now_text"]
    return {
        "apply": not given["dry_run"],
        "topics": given["topics"],
        "settings": {name: value for name, value in settings.items() if value is not None},
        "store": given["settings"],
        "now_ms": None if now_text is None else common.parse_time(now_text, "--now"),
    }


@click.command("retain")
@retention_options
@common.quiet_options
def command(paths: tuple[str, ...], as_json: bool, **given: Unpack[RetentionOptions]) -> None:
    """Delete segments that exceed retention.

    These are segments below the log start, beyond retention.bytes, or older than retention.ms. Each topic's own
    settings apply. They come from the topics file if kafkalog created the topic, or from the broker's metadata
    (__cluster_metadata-0) if a broker did; the defaults are Kafka's, or those given with -X. A topic whose settings
    are unknown is skipped, unless the command line sets its retention. Records at or above a partition's high
    watermark are never deleted. Topics that are only compacted lose only segments below their log start.

    Dry run by default; --apply makes the changes. --apply locks the data directories, so no broker may run on them. A
    log that was not closed cleanly is recovered first if it has anything to delete.

    Example: kafkalog retain data --apply --retention-ms 86400000

    Exit status: 0 fine, 1 damage, or a named item is missing, 2 wrong usage.
    """
    from kafkalog.tools.retain.directories import retain

    report = retain(paths, **retention_of(given))
    for line in report.json_lines() if as_json else report.lines():
        print(line)
