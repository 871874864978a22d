"""A clean that ends badly loses no record that is to be retained: killed, without power, or with a call that fails.

A sample; `make crash-clean` does it at length.
"""

from pathlib import Path

import pytest

from tests.crash.cleaned import CLEANED_MODES, cut_clean, fail_clean
from tests.crash.faulty import FAULTS
from tests.crash.killer import kill_cleans


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_every_change_of_the_disk(place: Path, seed: int) -> None:
    """CLN-25: what is swapped in is on disk before what it replaces goes."""
    changes, states = cut_clean(place, seed, CLEANED_MODES[:3])
    assert changes > 5 and states > 2


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_failing_call(place: Path, fault: object) -> None:
    assert fail_clean(place, 5, fault, 7) > 0  # type: ignore[arg-type]


def test_killed_while_it_appends_and_cleans(place: Path) -> None:
    """CLN-41: what is appended meanwhile is there too."""
    killed = kill_cleans(place, range(4))
    assert len(killed) == 4 and sum(one.appended for one in killed) > 10
