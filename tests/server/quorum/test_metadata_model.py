"""Acknowledged changes of topics and settings survive every change of leader: any order of steps."""

from __future__ import annotations

import pytest

from kafkalog.server.quorum import decisions
from tests.server.quorum.metadata_model import MetadataModel, MetadataRules, metadata_losses
from tests.server.quorum.model import Lost, Stuck


@pytest.mark.parametrize("count", [2, 3, 5])
def test_nothing_that_was_answered_for_is_lost(count: int) -> None:
    """And who is promoted among a majority leads, unless one of them stopped between two versions."""
    found = metadata_losses(MetadataRules(), range(1000), steps=600, count=count)
    assert found["lost"] == 0
    assert found["elections"] > 600 and found["answers"] > 50 and found["copied"] > 50
    assert found["promotions"] > 20 * found["apart"]


@pytest.mark.parametrize(
    ("rule", "seed", "steps", "error"),
    [
        ("compares_versions", 19, 500, Stuck),
        ("reads_version_first", 308, 500, Lost),
        ("reads_version_last", 5859, 500, Lost),
        ("keeps_begun", 5859, 500, Lost),
        ("leaders_begun_is_open", 13438, 1000, Lost),
        ("ignores_with_version", 5859, 500, Lost),
        ("counts_what_is_done", 460, 500, Lost),
        ("ends_with_its_term", 3562, 500, Lost),
        ("takes_all", 62, 500, Lost),
        ("waits_for_majority", 16, 500, Lost),
        ("copies_metadata", 2, 500, Stuck),
        ("copies_what_is_later", 2939, 1000, Lost),
        ("ignores_what_is_deleted", 141, 500, Stuck),
        ("takes_before_it_fetches", 26649, 600, Stuck),
    ],
)
def test_each_rule_is_needed(rule: str, seed: int, steps: int, error: type[Exception]) -> None:
    """The same steps fail without the rule and pass with it."""
    with pytest.raises(error):
        MetadataModel(seed, MetadataRules(**{rule: False})).run(steps)
    MetadataModel(seed, MetadataRules()).run(steps)


def test_a_log_of_a_later_leader_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The version of a vanished leader is newer than the voter's metadata and older than its records."""
    rules = MetadataRules(takes_before_it_fetches=False)
    MetadataModel(14558, rules).run(600)
    real = decisions.is_deleted_there
    monkeypatch.setattr(decisions, "is_deleted_there", lambda version, begun, _: real(version, begun, -1))
    with pytest.raises(Lost):
        MetadataModel(14558, rules).run(600)
