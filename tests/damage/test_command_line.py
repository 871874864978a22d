"""`consume` and `export` on damaged logs: every sound record in the output, or a status that is not 0."""

import json
import warnings
from collections.abc import Iterator
from pathlib import Path

import click
import pyarrow.parquet
import pytest

from kafkalog.cli import consume_cmd
from kafkalog.cli.main import run
from kafkalog.errors import CorruptRecord
from tests.damage.judge import Result, Verdict, judge
from tests.damage.logs import Row
from tests.damage.matrix import Case, Directories, case_of, header_plan, workspace
from tests.damage.oracle import NO_END, Claim, Oracle
from tests.damage.ways import Read

SEED = 11
CASES = 90
CAN_SKIP = any(
    "--on-damage" in option.opts for option in consume_cmd.command.params if isinstance(option, click.Option)
)


@pytest.fixture(autouse=True)
def keep_warnings_format(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command's own format of warnings ends with the test."""
    monkeypatch.setattr(warnings, "formatwarning", warnings.formatwarning)


def cases() -> Iterator[Case]:
    """Damaged logs, opened by none but the command."""
    plan = header_plan(SEED)
    return (case_of(SEED, number, plan)._replace(mode="r") for number in range(CASES))


@pytest.fixture(scope="module")
def directories() -> Iterator[Directories]:
    """Yield the directories of the damaged logs."""
    with workspace() as made:
        yield made


def consumed(out: bytes) -> list[tuple[int, bytes]]:
    """(offset, value) of each line that `consume -J` and an export to JSON lines have."""
    found = [json.loads(line) for line in out.splitlines()]
    return [(one["offset"], one["payload"].encode()) for one in found]


def rows_of(given: list[tuple[int, bytes]], oracle: Oracle) -> list[Row]:
    """The records that these are; with no time for one that is none of the log."""
    known = {(row.offset, row.value): row for row in [*oracle.originals, *oracle.rows]}
    return [known.get((offset, value), Row(offset, 0, None, value)) for offset, value in given]


def verdict_on(case: Case, given: list[tuple[int, bytes]], status: int, start: int = 0) -> str | None:
    """Why what a command did is wrong; None where it is right."""
    oracle = Oracle(case.kind, case.damage)
    error = None if status == 0 else CorruptRecord(f"status {status}")
    if status not in (0, 1):
        return f"{case.text}: status {status}"
    read = Read("command", "rows", start, NO_END, lambda log: [])
    verdict, why = judge(read, Result(rows_of(given, oracle), error), oracle)
    if verdict is Verdict.ALARM:
        return None  # a command may say 1 for a torn end as well
    return f"{case.text}: {verdict.value}, {why}" if verdict.is_failure else None


def fail_for(bad: list[str]) -> None:
    """Fails with the first of the cases that went wrong."""
    assert not bad, f"{len(bad)} of {CASES} cases\n" + "\n".join(bad[:10])


@pytest.mark.parametrize("start", [None, 20])
def test_consume_prints_each_sound_record_or_fails(
    directories: Directories, capsysbinary: pytest.CaptureFixture[bytes], start: int | None
) -> None:
    bad = []
    for case in cases():
        with directories.damaged(case) as path:
            status = run(["consume", "-q", "-d", str(path), "-t", "t", "-J", *(["-o", str(start)] if start else [])])
        wrong = verdict_on(case, consumed(capsysbinary.readouterr().out), status, start or 0)
        bad += [wrong] if wrong else []
    fail_for(bad)


def exported(target: Path, format: str) -> list[tuple[int, bytes]]:
    """(offset, value) of each record of an export."""
    paths = sorted(target.glob(f"topic=t/**/*.{format}"))
    if format == "jsonl":
        return [row for path in paths for row in consumed(path.read_bytes())]
    rows: list[tuple[int, bytes]] = []
    for path in paths:
        table = pyarrow.parquet.read_table(path, columns=["offset", "value"], partitioning=None)
        rows += zip(table["offset"].to_pylist(), table["value"].to_pylist(), strict=True)
    return rows


@pytest.mark.parametrize("format", ["jsonl", "parquet"])
def test_export_writes_each_sound_record_or_fails(directories: Directories, tmp_path: Path, format: str) -> None:
    bad = []
    for case in cases():
        target = tmp_path / str(case.number)
        with directories.damaged(case) as path:
            status = run(["export", "-q", "-J", "-d", str(path), "-t", "t", str(target), "--format", format])
        wrong = verdict_on(case, exported(target, format), status)
        bad += [wrong] if wrong else []
    fail_for(bad)


def skipped_rows(reading: list[Claim]) -> list[tuple[int, bytes | None]]:
    """Return the rows of a command that skips damage in a log with these sound batches."""
    return [(row.offset, row.value) for claim in reading for row in claim.rows]


if CAN_SKIP:  # the condition goes when `consume` and `export` take --on-damage

    @pytest.mark.parametrize("command", ["consume", "export"])
    def test_commands_that_skip_give_the_sound_records_and_status_1(
        directories: Directories, capsysbinary: pytest.CaptureFixture[bytes], tmp_path: Path, command: str
    ) -> None:
        bad = []
        for case in cases():
            oracle = Oracle(case.kind, case.damage)
            target = tmp_path / str(case.number)
            own = ["-J"] if command == "consume" else [str(target), "--format", "jsonl"]
            with directories.damaged(case) as path:
                status = run([command, "-d", str(path), "-t", "t", "--on-damage", "skip", *own])
            out, err = capsysbinary.readouterr()
            given = consumed(out) if command == "consume" else exported(target, "jsonl")
            is_exact = given in [skipped_rows(reading) for reading in oracle.readings]
            has_said = status == 1 and bool(err) if oracle.broken else True
            if not is_exact or not has_said:
                bad.append(f"{case.text}: status {status}, {len(given)} records, {err.decode()[:200]!r}")
        fail_for(bad)
