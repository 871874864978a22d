"""`kafkalog bench`: its lines, JSON, refusals, and what a signal leaves."""

import json
import os
import re
import signal
from pathlib import Path

import click
import pytest

import kafkalog
from kafkalog.bench.settings import BENCHMARKS, Settings
from kafkalog.bench.surroundings import cpu_model
from kafkalog.cli.bench_cmd import command
from tests.commands import kafkalog as program
from tests.commands import ok, started

LINE = re.compile(r"^(\w+) +: +[\d,.]+ micros/op; +[\d,.]+ ops/s")


def test_a_header_and_a_line_for_each(tmp_path: Path) -> None:
    text = ok("bench", "--num", "200", "--benchmarks", "fillbatch,readseq,verify", tmp_path / "data").decode()
    head, body = text.split("-" * 60 + "\n")
    head = re.sub(r"\n +", "", head)  # a long path is folded
    assert [line.partition(":")[0] for line in head.splitlines()] == [
        "kafkalog", "CPU", "Directory", "File system", "Keys", "Values", "Entries", "Raw size", "Compression",
        "Page cache", "Clock",
    ]  # fmt: skip
    assert str(tmp_path / "data") in head and "200, in batches of 100" in head and kafkalog.__version__ in head
    assert [match[1] for line in body.splitlines() if (match := LINE.match(line))] == ["fillbatch", "readseq", "verify"]
    assert "200 records in 2 batches" in body and "cached" in body and " MB/s" in body
    assert os.listdir(tmp_path) == []


def test_60_columns_without_colour() -> None:
    text = ok("bench", "--num", "1000", COLUMNS="60", TERM="dumb", PYTHONIOENCODING="ascii").decode("ascii")
    assert "\x1b" not in text and max(map(len, text.splitlines())) <= 60
    assert [match[1] for line in text.splitlines() if (match := LINE.match(line))] == list(BENCHMARKS)


def test_json_has_an_object_for_each(tmp_path: Path) -> None:
    names = ["fillseq", "readrandom", "compact"]
    text = ok("bench", "-J", "--num", "2000", "--value-size", "10", "--benchmarks", ",".join(names), "--seed", "7")
    found = [json.loads(line) for line in text.splitlines()]
    assert [one["benchmark"] for one in found] == names
    first = found[0]
    assert first.keys() == {
        "benchmark", "unit", "ops", "asked", "records", "bytes", "seconds", "micros_per_op", "ops_per_s",
        "mb_per_s", "latency_us", "ended_early", "cached", "notes", "settings", "machine",
    }  # fmt: skip
    assert (first["ops"], first["records"], first["bytes"], first["ended_early"]) == (2000, 2000, 52_000, False)
    assert first["latency_us"].keys() == {"count", "p50", "p95", "p99", "p99_9", "max"}
    assert 0 < first["latency_us"]["p50"] <= first["latency_us"]["p99_9"] <= first["latency_us"]["max"]
    assert found[2]["latency_us"]["p50"] is None and found[1]["cached"] is not None
    assert (first["settings"]["seed"], first["settings"]["value_size"], first["settings"]["num"]) == (7, 10, 2000)
    assert first["machine"]["cores"] >= 1 and first["machine"]["version"] == kafkalog.__version__


def test_a_log_that_is_there(tmp_path: Path) -> None:
    """--keep leaves one; --use-existing reads it."""
    done = program("bench", tmp_path / "data", "--num", "300", "--benchmarks", "fillbatch", "--keep")
    assert done.returncode == 0 and done.stderr.decode() == f"the logs are in {tmp_path / 'data'}\n"
    text = ok("bench", "--use-existing", tmp_path / "data" / "fillbatch-0", "-J", "--num", "100").decode()
    assert [json.loads(line)["records"] for line in text.splitlines()] == [100, 100, 100, 100, 100, 300]
    again = program("bench", tmp_path / "data", "--benchmarks", "fillbatch")
    assert again.returncode == 2 and b"not empty" in again.stderr and again.stdout == b""


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (["--benchmarks", "fillseq,fillsec"], 2, "did you mean fillseq"), (["--num", "0"], 2, "num is 0"),
        (["--num", "many"], 2, "--num"), (["--value-size", "99999999999"], 2, "value_size"),
        (["--compression", "brotli"], 2, "--compression"), (["--segment-bytes", "1"], 2, "segment.bytes"),
        (["--seconds", "0"], 2, "seconds is 0"), (["--use-existing", "nobody-0"], 1, "nobody-0"),
        (["--use-existing", "nobody-0", "--benchmarks", "fillseq"], 2, "fillseq writes"),
        (["no/such/parent"], 1, "parent"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, arguments: list[str], status: int, said: str) -> None:
    done = program("bench", *arguments, cwd=tmp_path)
    assert done.returncode == status and said in done.stderr.decode() and b"Traceback" not in done.stderr, done
    assert done.stdout == b"" and os.listdir(tmp_path) == []


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_signal_ends_it_and_leaves_nothing(tmp_path: Path, number: int, status: int, threads: str) -> None:
    options = ["--num", "1000000000", "--seconds", "600", "--threads", threads]
    with kafkalog.open(tmp_path / "data" / "t-0", "a") as log:
        log.append([b"x"] * 1000)
    before = sorted(tmp_path.rglob("*"))
    if threads == "1":
        options += ["--benchmarks", "fillseq"]
    else:
        options += ["--benchmarks", "readrandom", "--use-existing", str(tmp_path / "data" / "t-0")]
    with started("bench", *options, TMPDIR=str(tmp_path)) as child:
        assert child.stdout is not None and child.stderr is not None
        for line in child.stdout:
            if line.startswith(b"---"):
                break
        child.send_signal(number)
        rest = child.stdout.read()
        said = child.stderr.read().decode()
        assert child.wait(60) == status, said
    removed = "; the logs are removed" if threads == "1" else ""
    assert (said.strip(), rest) == (f"interrupted after 0 of 1 benchmark{removed}", b"")
    assert sorted(tmp_path.rglob("*")) == before


def test_the_help_tells_defaults_and_benchmarks() -> None:
    text = " ".join(ok("bench", "--help").decode().split())
    assert all(f"{name} {what}" in text for name, what in BENCHMARKS.items())
    settings = Settings()
    for option in command.params:
        if isinstance(option, click.Option) and (told := re.search(r"\[default: (.+)\]", option.help or "")):
            value = getattr(settings, str(option.name))
            assert told[1] == ("no limit" if value is None else str(value)), option.name


def test_names_are_completed_behind_a_comma() -> None:
    ask = {"_KAFKALOG_COMPLETE": "bash_complete", "COMP_CWORD": "3"}
    said = ok(COMP_WORDS="kafkalog bench --benchmarks fillseq,readr", **ask).decode().split()
    assert said == ["plain,fillseq,readrandom"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("processor\t: 0\nmodel name\t: AMD  EPYC 7B13\nmodel name\t: other\n", "AMD EPYC 7B13"),
        ("processor\t: 0\nBogoMIPS\t: 50.00\n", ""), ("", ""), ("cpu model : MIPS 24Kc\n", "MIPS 24Kc"),
    ],
)  # fmt: skip
def test_the_name_of_a_processor(text: str, name: str) -> None:
    assert cpu_model(text) == name
