"""`kafkalog handover`: a broker takes over the topics in its data directories; a dry run by default."""

from __future__ import annotations

import json

import click
from click.core import ParameterSource

from kafkalog.cli import common


@click.command("handover")
@common.dir_option
@common.topics_option
@click.option(
    "--metadata-dir", type=click.Path(), metavar="DIR", help="The broker's metadata.log.dir, if it is none of -d."
)
@common.apply_option
@click.option("--keep-records", is_flag=True, help="Disable retention of topics whose records would expire at once.")
@click.option("--let-expire", is_flag=True, help="Allow the broker to delete records past their retention.")
@click.option("--adopt", is_flag=True, help="Assign the partitions to the broker's topic of the same name.")
@click.option("--undo", is_flag=True, help="Undo the newest handover, at once; possible until the broker is started.")
@common.json_option("Print one JSON object.")
@common.settings_option("Broker setting, such as log.retention.ms=604800000")
@common.quiet_options
def command(
    dirs: tuple[str, ...],
    topics: tuple[str, ...],
    metadata_dir: str | None,
    dry_run: bool,
    keep_records: bool,
    let_expire: bool,
    adopt: bool,
    undo: bool,
    as_json: bool,
    settings: dict[str, str],
) -> int:
    """Register the topics in a stopped broker's data directories with that broker, with their ids and settings.

    The directories must be those of log.dirs of one node with process.roles=broker,controller, formatted by
    kafka-storage.sh. The partitions stay where they are. Without a handover, a broker renames directories that it does
    not know to -stray. Dry run by default; --apply makes the changes. If anything prevents the handover, nothing
    changes. Use -X log.retention.ms=N to give a default from the broker's server.properties that decides what expires.

    Example: kafkalog handover -d /var/lib/kafka/data -t orders --apply

    Exit status: 0 the broker knows all topics, 1 something remains to be done or was refused, 2 wrong usage.
    """
    from kafkalog.tools.handover.directories import HandoverOptions, handover, undo_handover

    homes = common.need_dirs(dirs)
    if keep_records and let_expire:
        raise click.UsageError("--keep-records and --let-expire contradict each other: give one")
    if undo:
        if topics or adopt or keep_records or let_expire or settings:
            raise click.UsageError("--undo reverts the newest handover as a whole: give only -d and --metadata-dir")
        if dry_run and click.get_current_context().get_parameter_source("dry_run") is not ParameterSource.DEFAULT:
            raise click.UsageError("--undo has no dry run: it reverts the newest handover at once")
        journal = undo_handover(homes, metadata_dir=metadata_dir)
        if as_json:
            print(json.dumps({"type": "handover", "ok": True, "undone": True, "topics": sorted(journal.topics)}))
        common.note(f"undid the handover of {common.plural(len(journal.topics), 'topic')}")
        return 0
    options = HandoverOptions(topics, keep_records, let_expire, adopt, settings)
    report = handover(homes, apply=not dry_run, metadata_dir=metadata_dir, options=options)
    if as_json:
        print(json.dumps(report.as_json(), ensure_ascii=True))
    else:
        for line in report.lines():
            print(line)
    return 0 if report.ok else 1
