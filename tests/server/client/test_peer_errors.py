"""Errors about peers: text, pickles, and what each may be caught as."""

from __future__ import annotations

import pickle

import pytest

from kafkalog.errors import KafkalogError
from kafkalog.server.client.errors import PeerError, PeerMisbehaved, PeerRefused, PeerTimedOut, PeerUnreachable

KINDS = [PeerError, PeerMisbehaved, PeerRefused, PeerTimedOut, PeerUnreachable]


@pytest.mark.parametrize("kind", KINDS)
def test_the_peer_is_named_and_kept(kind: type[PeerError]) -> None:
    error = kind("it broke", peer="host:9092", hint="mend it")
    assert str(error) == "host:9092: it broke. Hint: mend it"
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), again.peer) == (kind, str(error), "host:9092")
    assert isinstance(error, KafkalogError) and isinstance(error, ConnectionError)
    assert error.retriable == (kind is not PeerRefused)


def test_no_answer_in_time_is_a_time_out() -> None:
    assert isinstance(PeerTimedOut("late"), TimeoutError) and PeerTimedOut.code == 7
