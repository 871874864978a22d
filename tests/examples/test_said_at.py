"""examples/said_at.py: what a topic said at a moment."""

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import kafkalog
from tests import raw_batches
from tests.examples.programs import refused, said

NOON = datetime(2023, 11, 20, 12, tzinfo=UTC)


def write(directory: Path, *records: tuple[int, bytes, bytes]) -> None:
    """A partition with records of (minutes after noon, key, value)."""
    with kafkalog.open(directory, "a", retention_ms=-1) as log:
        for minutes, key, value in records:
            log.append((key, value, int((NOON + timedelta(minutes=minutes)).timestamp() * 1000)))


def fields(line: str) -> list[str]:
    """The words of a line, without its time."""
    words = line.split()
    return [word for word in words if not word.startswith("20")]


def test_the_last_before_and_the_first_from_a_moment_on(tmp_path: Path) -> None:
    write(tmp_path / "prices-0", (-90, b"a", b"1"), (-1, b"b", b"2"), (0, b"a", b"3"), (1, b"b", b"4"))
    write(tmp_path / "prices-1", (-30, b"c", b"5"))
    lines = said("said_at.py", tmp_path, "prices", NOON.isoformat(), "-n", "1", TZ="UTC")
    assert [fields(line) for line in lines] == [
        ["before", "prices-0", "1", "b", "2"], ["prices-0", "2", "a", "3"], ["before", "prices-1", "0", "c", "5"]
    ]  # fmt: skip
    assert "2023-11-20T11:59:00.000+00:00" in lines[0]
    lines = said("said_at.py", tmp_path, "prices", NOON.isoformat(), "--key", "a")
    assert [fields(line) for line in lines] == [["before", "prices-0", "0", "a", "1"], ["prices-0", "2", "a", "3"]]


def test_without_a_time_it_is_noon_yesterday_as_this_machine_counts(tmp_path: Path) -> None:
    hours = datetime.now(UTC).hour - 12
    here = timezone(timedelta(hours=-hours))  # where it is about noon: no midnight comes before the program looks
    noon = (datetime.now(here) - timedelta(days=1)).replace(hour=12, minute=0, second=0, microsecond=0)
    with kafkalog.open(tmp_path / "t-0", "a", retention_ms=-1) as log:
        log.append([(b"k", b"%d" % n, int(noon.timestamp() * 1000) + n) for n in range(-3, 3)])
    assert [fields(line)[-1] for line in said("said_at.py", tmp_path, "t", TZ=f"here{hours:+}")] == [
        "-1", "0", "1", "2"
    ]  # fmt: skip


def test_gaps_and_a_long_way_back(tmp_path: Path) -> None:
    """A compacted log has no record at most offsets; the last of a key may lie far behind."""
    base = int(NOON.timestamp() * 1000)
    with kafkalog.open(tmp_path / "t-0", "a", retention_ms=-1) as log:
        log.replicate(raw_batches.batch(5, [b"early"], timestamp=base - 9000))
        log.replicate(raw_batches.batch(4000, [b"late"], timestamp=base - 1))
        log.replicate(raw_batches.batch(9000, [b"after"], timestamp=base + 1))
    lines = said("said_at.py", tmp_path, "t", NOON.isoformat())
    assert [fields(line) for line in lines] == [["before", "t-0", "4000", "-", "late"], ["t-0", "9000", "-", "after"]]
    at = (NOON - timedelta(seconds=1)).isoformat()
    assert [fields(line)[-1] for line in said("said_at.py", tmp_path, "t", at, "-n", "1")] == ["early", "late"]


def test_what_cannot_be_is_said(tmp_path: Path) -> None:
    write(tmp_path / "prices-0", (0, b"a", b"1"))
    assert "Hint: topics here: prices" in refused("said_at.py", tmp_path, "price")
    assert "does not exist" in refused("said_at.py", tmp_path / "nowhere", "prices")
    assert "invalid moment value: 'noon'" in refused("said_at.py", tmp_path, "prices", "noon", status=2)
