"""A few of the kills of `python -m tests.spark.kills`, which runs them at length."""

from pathlib import Path
from random import Random

import pytest

from tests.spark.conftest import why_not
from tests.spark.kills import MOMENTS, TARGETS, plan, run

REASON = why_not()


def test_every_target_is_killed_at_every_moment() -> None:
    pairs = list(plan(len(TARGETS) * len(MOMENTS) + 4, Random(1)))
    assert {*pairs[:-4]} == {(target, moment) for target in TARGETS for moment in MOMENTS}
    assert len(pairs) == 20


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_each_line_lands_once_though_drivers_and_workers_are_killed(tmp_path: Path) -> None:
    kills = [("python worker", "staging"), ("executor", "staged"), ("driver", "intent")]
    assert "3 kills and 2 drivers" in run(tmp_path, kills, 1)
