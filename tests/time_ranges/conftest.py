"""Fixtures of the tests of time ranges."""

import pytest

from kafkalog.sidecars import identity


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that were just written count as settled: what a query reads does not depend on their age."""
    monkeypatch.setattr(identity, "SETTLED_NS", -1)
