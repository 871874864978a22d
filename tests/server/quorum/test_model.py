"""Acknowledged records are in the log of every later leader: any order of steps, with the server's decisions."""

from __future__ import annotations

import pytest

from tests.server.quorum.model import Lost, Model, Rules, Stuck, losses


@pytest.mark.parametrize("count", [2, 3, 5])
def test_nothing_that_was_acknowledged_is_lost(count: int) -> None:
    lost, elections, acknowledged = losses(Rules(), range(250), steps=200, count=count)
    assert lost == 0
    assert elections > 250 and acknowledged > 50


@pytest.mark.parametrize("count", [2, 3, 5])
def test_who_is_promoted_among_a_majority_leads_and_nothing_is_lost(count: int) -> None:
    """Each of those that are left may be ahead in another partition; what was copied in part does no harm."""
    promotions = copied = 0
    for seed in range(150):
        model = Model(seed, Rules(), count=count, partitions=3)
        model.run(250)
        promotions, copied = promotions + model.promotions, copied + model.copied
    assert promotions > 150 and copied > 150


def test_without_a_copy_nodes_that_are_ahead_of_each_other_refuse_each_other() -> None:
    with pytest.raises(Stuck):
        Model(2, Rules(copies_what_is_ahead=False), partitions=2).run(250)


@pytest.mark.parametrize(
    ("rules", "seed", "partitions", "steps"),
    [
        (Rules(followers_begin_epochs=False), 136, 1, 200),
        (Rules(needs_majority=False), 7, 1, 200),
        (Rules(votes_hold_still=False), 835, 1, 200),
        (Rules(keeps_begun_epochs=False, keeps_begins_at_cuts=False), 726, 1, 200),
        (Rules(keeps_begins_at_cuts=False), 5803, 2, 300),
    ],
)
def test_each_rule_is_needed(rules: Rules, seed: int, partitions: int, steps: int) -> None:
    """The same steps lose a record without the rule, and none with it."""
    with pytest.raises(Lost):
        Model(seed, rules, partitions=partitions).run(steps)
    Model(seed, Rules(), partitions=partitions).run(steps)
