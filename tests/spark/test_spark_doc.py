"""docs/spark.md and the recipe: their examples run, and the tables of the first have every option with its default."""

import io
import re
import shlex
import warnings
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from kafkalog.cli import spark_cmd
from kafkalog.cli.main import run
from kafkalog.spark.option_table import SINK_OPTIONS, SOURCE_OPTIONS, Option
from tests.documents import ROOT, run_document
from tests.trees import PACKAGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DOCUMENT = ROOT / "docs" / "spark.md"


def rows(heading: str) -> list[str]:
    """The rows of the table under a heading, as they stand."""
    part = re.split(r"^#+ ", DOCUMENT.read_text(encoding="utf-8").split(f"# {heading}\n")[1], flags=re.MULTILINE)[0]
    return [line for line in part.splitlines() if line.startswith("| `")]


def row_of(option: Option) -> str:
    kafka = "yes" if option.kafka else ""
    return f"| `{option.name}` | {kafka} | {option.default} | {option.used_by} | {option.meaning} |"


def test_every_option_of_the_source_is_there() -> None:
    assert rows("Options of the source") == [row_of(option) for option in SOURCE_OPTIONS]


def test_every_option_of_the_sink_is_there() -> None:
    assert rows("Options of the sink") == [row_of(option) for option in SINK_OPTIONS]


def test_every_job_is_there_with_its_flags() -> None:
    documented = {line.split("`")[1]: set(re.findall(r"`(--[a-z-]+)`", line)) for line in rows("Jobs")}
    there = {name: flags_of(job) for name, job in spark_cmd.command.commands.items() if name != "archive"}
    assert documented == there


def flags_of(job: click.Command) -> set[str]:
    """Return the long flags of a job, except those that all jobs have."""
    found = {flag for option in job.params for flag in option.opts if flag.startswith("--")}
    return found - {"--json", "--master", "--conf"}


def test_every_error_is_said_somewhere() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in (PACKAGE / "spark").rglob("*.py"))
    part = DOCUMENT.read_text(encoding="utf-8").split("## Errors\n")[1]
    documented = re.findall(r"^\| (.*?) \| ", part, re.MULTILINE)[1:]
    assert len(documented) >= 10
    assert [one for one in documented if one not in " ".join(text.split()).replace("{OLDEST}", "17")] == []


def in_this_process(command: str, _: Path) -> str | None:
    """Return the stdout of a job's command, run in the current session."""
    words = shlex.split(command)
    if words[:2] != ["kafkalog", "spark"]:
        return None
    with redirect_stdout(io.StringIO()) as said:
        status = run(words[1:])
    assert status == 0, command
    return said.getvalue()


RECIPE = DOCUMENT.parent / "cookbook" / "spark_pipeline.md"


@pytest.mark.parametrize("document", [DOCUMENT, RECIPE], ids=lambda one: one.stem)
def test_examples(document: Path, spark: "SparkSession", tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)  # commands set it
    run_document(document, tmp_path, {"__name__": "__example__", "spark": spark}, in_this_process)
