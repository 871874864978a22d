"""examples/counter.py: an event-sourced counter."""

import json
from datetime import UTC, datetime
from pathlib import Path

import kafkalog
from tests.examples.programs import refused, run, said


def test_counts_and_remembers(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert said("counter.py", data, "add", "apples", "5") == ["apples 5"]
    assert said("counter.py", data, "add", "pears", "1") == ["pears 1"]
    between = datetime.now(UTC).isoformat()
    assert said("counter.py", data, "add", "apples", "-2") == ["apples 3"]
    assert said("counter.py", data, "show") == ["apples 3", "pears 1"]
    assert said("counter.py", ".", "add", "pears", "0", cwd=data) == ["pears 1"]
    assert said("counter.py", data, "show", "--until", between) == ["apples 5", "pears 1"]
    with kafkalog.open(data / "counters-0") as log:
        assert [(record.key, json.loads(record.value or b"")) for record in log] == [
            (b"apples", {"add": 5}), (b"pears", {"add": 1}), (b"apples", {"add": -2}), (b"pears", {"add": 0})
        ]  # fmt: skip


def test_the_snapshot_is_only_a_help(tmp_path: Path) -> None:
    """Without it, with one cut short by a crash, and with one of another log, the events are read again."""
    data, snapshot = tmp_path / "data", tmp_path / "data.snapshot.json"
    said("counter.py", data, "add", "apples", "5")
    assert json.loads(snapshot.read_text()) == {"next": 1, "values": {"apples": 5}}
    for number, text in enumerate(('{"next": 1, "val', "", '{"next": 99, "values": {"apples": 1000}}'), 1):
        snapshot.write_text(text)
        assert said("counter.py", data, "add", "apples", "1") == [f"apples {5 + number}"]
    snapshot.unlink()
    assert said("counter.py", data, "add", "apples", "1") == ["apples 9"]


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    assert "the partition directory does not exist" in refused("counter.py", tmp_path / "nowhere", "show")
    assert not (tmp_path / "nowhere").exists()
    (tmp_path / "file").write_text("")
    assert "File exists" in refused("counter.py", tmp_path / "file", "add", "apples", "5")
    assert "invalid int value" in refused("counter.py", tmp_path, "add", "apples", "five", status=2)
    said("counter.py", tmp_path / "data", "add", "apples", "5")
    assert "is not a time" in refused("counter.py", tmp_path / "data", "show", "--until", "noon")
    with kafkalog.open(tmp_path / "data" / "counters-0", "a"):
        assert "Hint: stop the process" in refused("counter.py", tmp_path / "data", "add", "apples", "5")
        assert run("counter.py", tmp_path / "data", "show").stdout == "apples 5\n"
