"""`kafkalog copy`: topics with offsets, between clusters, directories and backups, and from tiered stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from kafkalog.cli import common
from kafkalog.cli.progress import Meter

if TYPE_CHECKING:
    from kafkalog.copy import CopyReport

    class CopyOptions(TypedDict):
        """Values of the options of `copy`."""

        sources: tuple[str, ...]
        target: str
        topics: tuple[str, ...]
        groups: tuple[str, ...]
        no_groups: bool
        offsets: str
        isolation_level: str
        tiered: str | None
        to_tiered: str | None
        settings: dict[str, str]
        dry_run: bool
        follow: bool
        poll_every_s: float

_options = common.options(
    click.option(
        "--from", "sources", multiple=True, required=True, metavar="PLACE",
        help="Source: kafka://HOST:PORT[,...], a data directory (repeatable), a backup, a tiered store.",
    ),
    click.option(
        "--to", "target", required=True, metavar="PLACE", help="Target: kafka://HOST:PORT[,...], a data directory, or "
        "backup:PATH.",
    ),
    common.topics_option,
    common.apply_option,
    click.option(
        "--follow", is_flag=True,
        help="With --apply: copy new records and offsets of groups until SIGTERM or Ctrl-C.",
    ),
    click.option(
        "--poll-every", "poll_every_s", type=click.FloatRange(min=0, min_open=True), default=1.0, show_default=True,
        metavar="SECONDS", help="With --follow: seconds from one look at the source to the next.",
    ),
    click.option(
        "-G", "--group", "groups", multiple=True, metavar="NAME",
        help="Only offsets of this group; repeatable. Default: all groups.",
    ),
    click.option("--no-groups", is_flag=True, help="Copy no offsets of groups."),
    click.option(
        "--offsets", type=click.Choice(["auto", "keep", "new"]), default="auto", show_default=True,
        help="Keep offsets where the target can; require that; or append behind other records of a cluster's topic.",
    ),
    click.option(
        "--isolation-level", type=click.Choice(["read_uncommitted", "read_committed"]), default="read_uncommitted",
        show_default=True,
        help="Into a directory: whole transactions with their markers, or only committed records. A cluster gets only "
        "committed records.",
    ),
    common.tiered_option,
    click.option(
        "--to-tiered", metavar="URL|FILE",
        help="Also put closed segments of a target directory in this tiered store: its URL, or its description.",
    ),
    common.settings_option("Client setting, for one side with the prefix source. or target."),
    common.json_option("Print one JSON object for each partition, each thing that is not kept, and the totals."),
    common.quiet_options,
)  # fmt: skip


@click.command("copy")
@_options
def command(as_json: bool, **given: Unpack[CopyOptions]) -> int:
    """Copy topics with their settings, records and groups' offsets, between clusters, directories and backups.

    Nothing is written without --apply: the output shows what would be copied, and what the target cannot keep. A copy
    that was killed is continued by the same command, and so is one of a source that has grown; every record is written
    once. docs/copy.md shows what is kept where.

    Example: kafkalog copy --from data --to kafka://broker-1:9092 -t orders --apply

    Example: kafkalog copy --from kafka://broker-1:9092 --to data -X source.security.protocol=SSL --apply

    Example: kafkalog copy --from data --to kafka://broker-1:9092 --apply --follow

    Example: kafkalog copy --from data --to copied --to-tiered tiered.json --apply

    Exit status: 0 copied, stopped, or nothing written without --apply; 1 not copied, or without the offsets of some
    groups; 2 wrong usage.
    """
    if given["groups"] and given["no_groups"]:
        raise click.UsageError("--group and --no-groups contradict each other")
    if given["follow"] and given["dry_run"]:
        raise click.UsageError("--follow writes: give --apply with it")
    is_ok = True
    with Meter("copy", None) as meter:
        for report in _reports(given, meter.add if meter.shown else lambda size: None):
            for line in report.json_lines() if as_json else report.lines():
                print(line, flush=True)
            is_ok = report.ok
    return 0 if is_ok else 1


def _reports(given: CopyOptions, progress: Callable[[int], object]) -> Iterator[CopyReport]:
    from kafkalog.copy import copy_topics, follow_topics
    from kafkalog.util.interrupts import stop_signals

    common_options: dict[str, Any] = {
        "groups": () if given["no_groups"] else given["groups"] or None, "offsets": given["offsets"],
        "isolation": given["isolation_level"], "tiered": given["tiered"], "to_tiered": given["to_tiered"],
        "settings": given["settings"], "progress": progress,
    }  # fmt: skip
    ends = given["sources"], given["target"], given["topics"]
    if not given["follow"]:
        yield copy_topics(*ends, **common_options, apply=not given["dry_run"])
        return
    with stop_signals() as is_stopped:
        yield from follow_topics(*ends, **common_options, poll_every_s=given["poll_every_s"], is_stopped=is_stopped)
