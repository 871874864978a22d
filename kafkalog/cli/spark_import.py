"""`kafkalog spark import`: Parquet tables and JSON lines back to topics."""

from __future__ import annotations

import json
from typing import Any

import click

from kafkalog.cli import common, row_options, spark_options


@click.command("import")
@click.argument("files", nargs=-1, required=True, type=click.Path(), metavar="(FILE | DIR)...")
@spark_options.target_option
@click.option("-t", "--topic", metavar="TOPIC", help="Topic of all rows. Default: what rows or their paths say.")
@click.option("--format", "format", metavar="FORMAT", help="parquet or json (lines). Default: by the names of files.")
@row_options.column_option
@row_options.offsets_option
@spark_options.writing_options
@common.json_option("One JSON object with what was written.")
@spark_options.session_options
@common.quiet_options
def command(
    files: tuple[str, ...], dir: str, master: str | None, conf: dict[str, str], as_json: bool, quiet: bool,
    verbose: int, **given: Any,
) -> int:  # fmt: skip
    """Write the records of Parquet files, such as the directory of an export, or of JSON lines to topics.

    Keys, values, nulls, headers and times become what they were. Rows with topic, partition and offset keep their
    offsets where all of their partitions are empty, and are appended in that order elsewhere. JSON lines are those of
    `kafkalog consume -J`, appended to -t.

    Exit status: 0 written, 1 nothing written, 2 wrong usage.
    """
    common.set_verbosity(quiet, verbose)
    spark_options.need_paths(files)
    with spark_options.session(master, conf, "import", quiet=quiet, verbose=verbose) as (spark, tell):
        from kafkalog.spark.jobs.import_ import import_

        report = import_(spark, files, dir, tell=tell, **given)
    if as_json:
        print(json.dumps(report._asdict()))
    elif report.landed:
        how = "with their offsets" if report.kept else "appended"
        print(f"{common.plural(report.records, 'record')} of {common.plural(report.files, 'file')} {how}")
    else:
        print(f"job {report.job_id} has landed before: nothing was written")
    return 0
