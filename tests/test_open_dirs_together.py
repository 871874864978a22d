"""A store whose topics and logs several threads ask for at the same moment, also while it closes."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import kafkalog
from kafkalog.dirs.readonly import DirsView
from kafkalog.errors import LogClosed, TopicExists
from kafkalog.types import TopicPartition
from tests.held_store import Held


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    with Held(tmp_path / "a", tmp_path / "b") as made:
        yield made


def test_nobody_gets_a_log_of_a_store_that_closes(held: Held, tmp_path: Path) -> None:
    """No one would end its writer's thread."""
    held.dirs.create_topic("t")
    held.store._retire_all()  # the first step of a close
    with pytest.raises(LogClosed):
        held.dirs["t", 0]
    view = DirsView([str(tmp_path / "a")])
    view.close()
    with pytest.raises(LogClosed):
        view.log(TopicPartition("t", 0))


def test_of_two_who_make_a_topic_one_is_told_that_it_exists(held: Held) -> None:
    """Else the second one, failing half-way, would take away what the first has made."""
    refused: list[BaseException] = []

    def again() -> None:
        try:
            held.dirs.create_topic("t", 3)
        except TopicExists as error:
            refused.append(error)

    other = threading.Thread(target=again)
    with kafkalog.hooks.on("open", lambda event: other.ident or (other.start(), other.join(0.3))):
        held.dirs.create_topic("t", 3)
    other.join()
    assert len(refused) == 1 and len(held.dirs) == 3
