"""A writer's process is killed with SIGKILL: acknowledged records are in the log (`make crash`: 1,000)."""

from pathlib import Path

from tests.crash.killer import kill_many


def test_killed_writers(place: Path) -> None:
    """LOAD-10, LOAD-22: all that was acknowledged, flushed or not; producers as a replay knows them."""
    killed = kill_many(place, range(4))
    assert len(killed) == 4 and sum(one.operations for one in killed) > 10
