"""`kafkalog retain`: what retention takes from data directories; told, or done."""

from __future__ import annotations

import click

from kafkalog.cli.common import parse_settings, quiet_options, set_verbosity


@click.command("retain")
@click.argument("paths", nargs=-1, required=True, type=click.Path(), metavar="(DIR | PARTITION)...")
@click.option("--dry-run/--apply", "dry_run", default=True, help="Only tell what would go (default), or delete it.")
@click.option("-t", "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this topic; repeats. Default: all.")
@click.option("--retention-ms", metavar="MS", help="Counts instead of each topic's retention.ms; -1: no limit.")
@click.option("--retention-bytes", metavar="N", help="Counts instead of each topic's retention.bytes; -1: no limit.")
@click.option("--now", "now_text", metavar="TIME", help="Ages count up to then: ms or ISO-8601. Default: now.")
@click.option(
    "-X", "store", multiple=True, metavar="NAME=VALUE", callback=lambda ctx, param, given: parse_settings(given, "-X"),
    help="Setting of the broker for topics without their own, such as log.retention.hours=48; repeats.",
)  # fmt: skip
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object for each segment, and one for the report.")
@quiet_options
def command(
    paths: tuple[str, ...],
    dry_run: bool,
    topics: tuple[str, ...],
    retention_ms: str | None,
    retention_bytes: str | None,
    now_text: str | None,
    store: dict[str, str],
    as_json: bool,
    quiet: bool,
    verbose: int,
) -> None:
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

    set_verbosity(quiet, verbose)
    given = {"retention.ms": retention_ms, "retention.bytes": retention_bytes}
    report = retain(
        paths,
        apply=not dry_run,
        topics=topics,
        settings={name: value for name, value in given.items() if value is not None},
        store=store,
        now_ms=_time(now_text),
    )
    for line in report.json_lines() if as_json else report.lines():
        click.echo(line)


def _time(text: str | None) -> int | None:
    from kafkalog.errors import IllegalArgument
    from kafkalog.times import to_ms

    if text is None:
        return None
    try:
        return int(text) if text.isdigit() else to_ms(text)
    except IllegalArgument as error:
        raise click.BadParameter(str(error), param_hint="--now") from None
