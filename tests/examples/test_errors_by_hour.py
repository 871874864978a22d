"""examples/errors_by_hour.py: counts of matching records by hour."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import kafkalog
from tests.examples.programs import refused, run, said

START = datetime(2026, 11, 20, 9, 30, tzinfo=UTC)


def write(folder: Path) -> None:
    """Two partitions with an event every ten minutes."""
    folder.mkdir()
    for partition in (0, 1):
        with kafkalog.open(folder / f"events-{partition}", "a", retention_ms=-1) as log:
            for n in range(12):
                event = {"level": "error" if n % 3 == 0 else "info", "service": ["api", "web"][n % 2]}
                time = int((START + timedelta(minutes=10 * n)).timestamp() * 1000)
                log.append((b"k%d" % partition, json.dumps(event).encode(), time))


def test_errors_by_hour(tmp_path: Path) -> None:
    write(tmp_path / "data")
    assert said("errors_by_hour.py", tmp_path / "data", "events") == [
        "2026-11-20 09:00        2", "2026-11-20 10:00        4", "2026-11-20 11:00        2"
    ]  # fmt: skip
    by_service = said("errors_by_hour.py", tmp_path / "data", "events", "key == 'k1'", "--by", "value.service")
    assert by_service[:2] == ["2026-11-20 09:00        2 api", "2026-11-20 09:00        1 web"]
    late = said("errors_by_hour.py", tmp_path / "data", "events", "key == 'k1'", "--since", "2026-11-20T11:00Z")
    assert late == ["2026-11-20 11:00        3"]


def test_values_that_do_not_decode_are_counted(tmp_path: Path) -> None:
    write(tmp_path / "data")
    with kafkalog.open(tmp_path / "data" / "events-0", "a") as log:
        log.append(b"{")
    done = run("errors_by_hour.py", tmp_path / "data", "events")
    assert done.returncode == 0 and len(done.stdout.splitlines()) == 3
    assert done.stderr == "events-0: 1 values are no json\n"


def test_a_wrong_condition_is_told(tmp_path: Path) -> None:
    write(tmp_path / "data")
    assert "did you mean value" in refused("errors_by_hour.py", tmp_path / "data", "events", "vlaue.level == 'error'")
