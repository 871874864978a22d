"""Every behaviour that has to be shown is named by a test or has a row with the reason."""

from functools import cache
from pathlib import Path

import pytest

from tests import checklist

named = cache(checklist.named_ids)
NOT_APPLICABLE = {row.id: row for row in checklist.rows(checklist.NOT_APPLICABLE)}
PARTLY_SHOWN = {row.id: row for row in checklist.rows(checklist.PARTLY_SHOWN)}


@pytest.mark.parametrize("id_", checklist.required_ids())
def test_behaviour_is_shown(id_: str) -> None:
    known = id_ in named() or id_ in NOT_APPLICABLE or id_ in PARTLY_SHOWN
    assert known, f"no test names {id_} and no row excuses it"


@pytest.mark.parametrize("row", [*NOT_APPLICABLE.values(), *PARTLY_SHOWN.values()], ids=lambda row: row.id)
def test_row_is_about_a_known_behaviour_and_gives_a_reason(row: checklist.Row) -> None:
    assert row.id in checklist.required_ids()
    assert len(row.reason) > 20, "say why"


@pytest.mark.parametrize("row", PARTLY_SHOWN.values(), ids=lambda row: row.id)
def test_part_that_is_missing_names_the_issue_that_brings_it(row: checklist.Row) -> None:
    assert "issue" in row.reason
    assert row.id in named(), "partly shown means that a test shows the other part"


def test_no_id_is_both_excused_and_partly_shown() -> None:
    assert not NOT_APPLICABLE.keys() & PARTLY_SHOWN.keys()


@pytest.mark.parametrize("path", [checklist.NOT_APPLICABLE, checklist.PARTLY_SHOWN], ids=lambda p: p.name)
def test_an_id_has_one_row(path: Path) -> None:
    ids = [row.id for row in checklist.rows(path)]
    assert sorted(set(ids)) == sorted(ids)
