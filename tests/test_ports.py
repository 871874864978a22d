"""Ports that tests choose are nobody else's."""

import pytest

from tests.ports import free_ports, neighbouring_ports, own_ports


def test_no_port_is_given_twice() -> None:
    first = neighbouring_ports(3)
    given = [first, first + 1, first + 2, *free_ports(50), *free_ports(50)]
    assert len(set(given)) == len(given) and set(given) <= set(own_ports())


def test_processes_of_a_run_have_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "6")
    found: list[int] = []
    for number in range(6):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        found += own_ports()
    assert len(set(found)) == len(found) > 20_000
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw7")  # in the place of one that crashed
    assert set(own_ports()) <= set(found)
