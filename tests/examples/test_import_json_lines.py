"""examples/import_json_lines.py: a file of JSON lines of any size into a topic."""

import json
import os
import re
from datetime import datetime
from pathlib import Path

import kafkalog
from tests.examples.programs import interrupted, refused, said, started
from tests.gates import wait_until

PROGRAM = "import_json_lines.py"


def test_each_line_is_a_record(tmp_path: Path) -> None:
    source, target = tmp_path / "events.jsonl", tmp_path / "data" / "events-0"
    assert said(PROGRAM, "--make", "2M", source) == []
    assert 2_000_000 <= source.stat().st_size < 2_001_000
    lines = source.read_bytes().splitlines()
    (line,) = said(PROGRAM, source, target, "--key", "user", "--time", "at", "--compression", "zstd")
    assert re.fullmatch(rf"imported {len(lines):,} lines, 0.00 GB in \d+ s, \d+ MB/s, peak memory \d+ MB", line)
    with kafkalog.open(target) as log:
        assert [record.value for record in log] == lines
        for record in (log[0], log[777], log[-1]):
            document = json.loads(record.value or b"")
            assert record.key == document["user"].encode()
            assert record.datetime == datetime.fromisoformat(document["at"])
        assert log.size < source.stat().st_size / 4
    assert said(PROGRAM, source, target)[0].startswith("imported 0 lines")


def end_of(directory: Path) -> int:
    with kafkalog.open(directory) as log:
        return log.end_offset


def test_an_import_that_is_interrupted_goes_on(tmp_path: Path) -> None:
    """The first run reads from a pipe in which not all lines are: so it is always in the middle of them."""
    source, pipe, target = tmp_path / "events.jsonl", tmp_path / "pipe", tmp_path / "data" / "events-0"
    said(PROGRAM, "--make", "1M", source)
    lines = source.read_bytes().splitlines(keepends=True)
    os.mkfifo(pipe)
    running = started(PROGRAM, pipe, target, "--key", "user")
    with pipe.open("wb", buffering=0) as file:
        file.write(b"".join(lines[:300]))
        wait_until(lambda: running.poll() is not None or any(target.glob("*.log")) and end_of(target) == 300)
        interrupted(running)
    assert end_of(target) == 300
    assert said(PROGRAM, source, target, "--key", "user")[0].startswith(f"imported {len(lines) - 300:,} lines")
    with kafkalog.open(target) as log:
        assert [(record.value or b"") + b"\n" for record in log] == lines


def test_a_line_that_cannot_be_imported_ends_it_and_is_named(tmp_path: Path) -> None:
    source, target = tmp_path / "events.jsonl", tmp_path / "data" / "events-0"
    source.write_text('{"id": 1}\n\n{"id": 2}\n{"id"\n{"id": 4}\n')
    assert f"{source}:4: JSONDecodeError" in refused(PROGRAM, source, target, "--key", "id")
    with kafkalog.open(target) as log:
        assert [record.key for record in log] == [b"1", b"2"]
    source.write_text('{"id": 1}\n\n{"id": 2}\n{"id": 3}\n{"id": 4}\n')
    assert said(PROGRAM, source, target, "--key", "id")[0].startswith("imported 2 lines")
    with kafkalog.open(target) as log:
        assert [record.key for record in log] == [b"1", b"2", b"3", b"4"]


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    source = tmp_path / "events.jsonl"
    target = tmp_path / "data" / "events-0"
    assert "No such file" in refused(PROGRAM, source, target)
    assert not target.parent.exists()
    source.write_text('{"id": 1}\n[2]\n')
    assert "KeyError: 'user'" in refused(PROGRAM, source, target, "--key", "user")
    assert ":2: ValueError: it is not a JSON object" in refused(PROGRAM, source, target, "--key", "id")
    source.write_text("[" * 100_000)
    assert ":1: RecursionError" in refused(PROGRAM, source, target.with_name("other-0"))
    assert "did you mean zstd?" in refused(PROGRAM, source, target, "--compression", "zst")
    assert "DIR/TOPIC-N" in refused(PROGRAM, source, status=2)
    assert "invalid size value" in refused(PROGRAM, "--make", "much", source, status=2)
