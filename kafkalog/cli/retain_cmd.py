"""`kafkalog retain`: apply retention to data directories; a dry run by default."""

from __future__ import annotations

from typing import Any

import click

from kafkalog.cli import common

_OPTIONS = (
    click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="(DIR | PARTITION)..."),
    common.apply_option,
    common.topics_option,
    click.option("--retention-ms", metavar="MS", help="Counts instead of each topic's retention.ms; -1: none."),
    click.option("--retention-bytes", metavar="N", help="Counts instead of each topic's retention.bytes; -1: none."),
    click.option("--now", "now_text", metavar="TIME", help="Ages count up to then: ms or ISO-8601. Default: now."),
    common.settings_option("Setting of the broker for topics without their own, such as log.retention.hours=48"),
    common.json_option("One JSON object for each segment, and one for the report."),
)


def retention_options(command: common.Command) -> common.Command:
    """Add the options of what to delete, and the retention; `retention_of` converts them."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def retention_of(
    dry_run: bool,
    topics: tuple[str, ...],
    retention_ms: str | None,
    retention_bytes: str | None,
    now_text: str | None,
    settings: dict[str, str],
) -> dict[str, Any]:
    """Return the options as arguments of `retain`; a usage error for an invalid time."""
    given = {"retention.ms": retention_ms, "retention.bytes": retention_bytes}
    return {
        "apply": not dry_run,
        "topics": topics,
        "settings": {name: value for name, value in given.items() if value is not None},
        "store": settings,
        "now_ms": None if now_text is None else common.parse_time(now_text, "--now"),
    }


@click.command("retain")
@retention_options
@common.quiet_options
def command(paths: tuple[str, ...], as_json: bool, quiet: bool, verbose: int, **given: Any) -> None:
    """Delete the segments that retention takes: below the log start, beyond retention.bytes, older than retention.ms.

    Each topic has its own settings: from the topics file where kafkalog made it, from the broker's metadata
    (__cluster_metadata-0) where a broker did; the defaults are Kafka's, or those given with -X. A topic that nobody
    knows is left alone unless the command says how long to keep it. Nothing at or above a partition's high watermark
    goes. Topics that are only compacted lose what lies below their log start.

    Nothing changes without --apply. With it the data directories are locked, so no broker may run on them; a log that
    was not closed well is recovered first where it has anything to delete.

    Exit status: 0 fine, 1 damage or a named thing absent, 2 wrong usage.
    """
    from kafkalog.tools.retain import retain

    common.set_verbosity(quiet, verbose)
    report = retain(paths, **retention_of(**given))
    for line in report.json_lines() if as_json else report.lines():
        print(line)
