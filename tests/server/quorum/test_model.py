"""What was acknowledged is in the log of every leader after that: any order of steps, with the server's decisions."""

from __future__ import annotations

import pytest

from tests.server.quorum.model import Lost, Model, Rules, losses


@pytest.mark.parametrize("count", [2, 3, 5])
def test_nothing_that_was_acknowledged_is_lost(count: int) -> None:
    lost, elections, acknowledged = losses(Rules(), range(250), steps=200, count=count)
    assert lost == 0
    assert elections > 250 and acknowledged > 50


@pytest.mark.parametrize(
    ("rules", "seed"),
    [
        (Rules(followers_begin_epochs=False), 136),
        (Rules(needs_majority=False), 7),
        (Rules(votes_hold_still=False), 835),
        (Rules(keeps_begun_epochs=False), 726),
    ],
)
def test_each_rule_is_needed(rules: Rules, seed: int) -> None:
    """The same steps lose a record without the rule, and none with it."""
    with pytest.raises(Lost):
        Model(seed, rules).run(200)
    Model(seed, Rules()).run(200)
