"""Sequence arithmetic as the reference does it (REC-13)."""

from typing import Any

import pytest

from tests.golden_cases import each_entry
from tests.sequences import decrement_sequence, increment_sequence

pytestmark = pytest.mark.golden


@each_entry("sequence")
def test_increment_and_decrement(entry: dict[str, Any]) -> None:
    assert increment_sequence(entry["sequence"], entry["by"]) == entry["increment"]
    assert decrement_sequence(entry["sequence"], entry["by"]) == entry["decrement"]
