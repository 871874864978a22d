"""A power cut at any call: nothing that was acknowledged as flushed is lost, and what opens agrees with itself.

A sample; `make crash` does it at length.
"""

from pathlib import Path

import pytest

from tests.crash.disk import MODES
from tests.crash.power import EACH_OPERATION, PowerRun, check_cut, cut_opening, cut_operation, cut_session


@pytest.mark.parametrize("seed", range(6))
def test_a_random_session(place: Path, seed: int) -> None:
    """LOAD-23, LOAD-24, SEG-25: snapshots, epochs and indexes too may be torn, stale or missing."""
    assert cut_session(place, seed, 50, 0.04) > 0


@pytest.mark.parametrize("do", EACH_OPERATION)
def test_every_call_of_each_operation(place: Path, do: str) -> None:
    changes, checked = cut_operation(place, do, 7, MODES[4:7])
    assert checked > 0 or changes == 0


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_every_call_of_an_opening(place: Path, clean: bool) -> None:
    """A crash while a crash is recovered from."""
    changes, checked = cut_opening(place, 5, clean, MODES[4:7])
    assert changes > 0 and checked > 0


@pytest.mark.parametrize("seed", range(4))
def test_what_is_appended_below_the_recorded_recovery_point(place: Path, seed: int) -> None:
    """LOG-53: a cut below it lowers it on disk too, for later records are not there yet."""
    run = PowerRun(place, seed)
    for _ in range(4):
        run.session.step("group")
    run.session.step("reopen", sync=False)
    run.session.step("truncate", offset=run.session.model.data_end - 12)
    for _ in range(3):
        run.session.step("group")
    for _ in range(12):
        run.take(MODES[6])
        run.take(MODES[2])
    run.session.close()
    assert sum(check_cut(cut, run.session.settings, place) for cut in run.cuts()) > 2
