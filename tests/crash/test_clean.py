"""A clean that ends badly loses no record that is to be retained: killed, without power, or with a call that fails.

A sample; `make crash-clean` does it at length.
"""

from pathlib import Path

import pytest

from tests.crash.cleaned import CLEANED_MODES, cut_clean, fail_clean
from tests.crash.faulty import FAULTS
from tests.crash.killer import kill_cleans, kill_stores
from tests.crash.stored import cut_store, fail_store


@pytest.mark.parametrize("seed", range(3))
def test_a_power_cut_at_every_change_of_the_disk(place: Path, seed: int) -> None:
    """CLN-25: what is swapped in is on disk before what it replaces goes."""
    changes, states = cut_clean(place, seed, CLEANED_MODES[:3])
    assert changes > 5 and states > 2


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_failing_call(place: Path, fault: object) -> None:
    assert fail_clean(place, 5, fault, 7) > 0  # type: ignore[arg-type]


def test_killed_while_it_appends_and_cleans(place: Path) -> None:
    """CLN-41: what is appended meanwhile is there too."""
    killed = kill_cleans(place, range(4))
    assert len(killed) == 4 and sum(one.appended for one in killed) > 10


@pytest.mark.slow
def test_killed_while_the_cleaner_of_a_store_works(place: Path) -> None:
    """CLN-33, CLN-41: nothing that was acknowledged is lost, the checkpoint is true, the next clean works."""
    killed = kill_stores(place, range(3))
    assert len(killed) == 3 and sum(sum(one.appended.values()) for one in killed) > 10


@pytest.mark.slow
def test_a_power_cut_while_the_cleaner_of_a_store_works(place: Path) -> None:
    """CLN-25, CLN-33: also where what was appended since the last flush is lost."""
    changes, states = cut_store(place, 0, CLEANED_MODES[:3], 0.02)
    assert changes > 50 and states > 2


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_failing_call_of_the_cleaner_of_a_store(place: Path, fault: object) -> None:
    """CLN-39: the store goes on or its directory is offline, and nothing is lost."""
    assert fail_store(place, 2, fault, 350) > 0  # type: ignore[arg-type]
