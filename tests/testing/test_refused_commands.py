"""Faults, recorders and the clock where a server does not take them."""

from collections.abc import Callable

import pytest

from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError
from kafkalog.testing import kafka_server


def test_what_a_server_does_not_take_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    with kafka_server(unmatched="error") as server:  # a fault that were left would be reported at the end
        control = server._control
        assert control is not None
        sent: list[str] = []

        def refuse(name: str, **given: object) -> None:
            sent.append(name)
            raise KafkalogError("the server does not take it")

        with monkeypatch.context() as patch:
            patch.setattr(control, "call", refuse)
            for begin in (lambda: server.fault("Produce", error=7), server.record):
                with pytest.raises(KafkalogError, match="does not take it"):
                    begin()
        assert sent == ["add_rule", "remove_rule", "record", "end_record"]
        assert server._commands_for(1) == []


def test_several_workers_refuse_what_only_one_obeys() -> None:
    with kafka_server(workers=2, topics={"orders": 2}, unmatched="error") as server:
        calls: tuple[Callable[[], object], ...] = (
            lambda: server.fault("Produce", error=7), server.record, server.full_disk, server.refuse_connections,
            server.snapshot, lambda: server.advance(ms=1), lambda: server.lag("g"),
            lambda: server.record_count("orders"), lambda: server.wait_for(topic="orders", records=0),
        )  # fmt: skip
        for call in calls:
            with pytest.raises(IllegalState, match="need a server with one worker"):
                call()
        assert (server._commands_for(1), server._ahead_ms) == ([], 0)
        assert server.records("orders") == []


def test_a_node_that_there_is_not_is_refused() -> None:
    """A fault that matches nothing is reported at its end; these are not."""
    with kafka_server() as server:
        calls: tuple[Callable[[], object], ...] = (
            lambda: server.full_disk(nodes=[1, 2]), lambda: server.refuse_connections(nodes=[0]),
            lambda: server.drop_connections(nodes=[2]),
        )  # fmt: skip
        for call in calls:
            with pytest.raises(IllegalArgument, match="there is no node [02]"):
                call()
        assert server._commands_for(1) == []


def test_a_number_of_workers_that_no_server_has_is_refused() -> None:
    with pytest.raises(IllegalArgument, match="workers=0"), kafka_server(workers=0):
        raise AssertionError("it started")
