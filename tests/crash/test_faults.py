"""A call that fails: the operation says so with a typed error or succeeds, and nothing acknowledged is lost.

A sample of the calls; `make crash` fails each of them.
"""

from pathlib import Path

import pytest

from tests.crash.faulty import FAULTS, fail_opening, fail_operation
from tests.crash.power import EACH_OPERATION


@pytest.mark.parametrize("do", EACH_OPERATION)
def test_calls_of_each_operation(place: Path, do: str) -> None:
    """LOG-26: with EIO, on a full disk in the middle of a write, once or from then on."""
    for seed, fault in enumerate(FAULTS):
        made = place / str(seed)
        made.mkdir()
        fail_operation(made, do, seed, fault, 29)


@pytest.mark.parametrize("clean", [True, False], ids=["clean", "unclean"])
def test_calls_of_an_opening(place: Path, clean: bool) -> None:
    for seed, fault in enumerate(FAULTS):
        made = place / str(seed)
        made.mkdir()
        assert fail_opening(made, seed, clean, fault, 17) > 0
