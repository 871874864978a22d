"""Events that are written, against the bytes of a writer that shares no code with them."""

from __future__ import annotations

import base64
import os

import pytest

from kafkalog.storage.leader_epoch import EpochEntry
from kafkalog.tiered.events import copy_started, new_segment_id, state_changed
from kafkalog.tiered.segment_bytes import TieredPartition
from kafkalog.tiered.segment_metadata import COPY_FINISHED, DELETE_STARTED, RemoteSegment
from tests.tiered_store import TOPIC_ID, Copy, epochs_of, make_batch, make_id

BATCHES = [make_batch(5, 3, 2), make_batch(8, 4, 7)]
COPY = Copy(make_id(3), BATCHES, partition=4)
PLACE = TieredPartition("orders", 4, TOPIC_ID)
SEGMENT = RemoteSegment(
    COPY.segment_id, COPY.first, COPY.stop - 1, len(COPY.data), 1_700_000_000_000 + COPY.stop,
    tuple(EpochEntry(*one) for one in epochs_of(BATCHES)), broker_id=1,
)  # fmt: skip


@pytest.mark.parametrize("custom", [None, b"", b"fields"])
def test_events_are_those_of_a_broker(custom: bytes | None) -> None:
    begun = copy_started(PLACE, SEGMENT._replace(custom=custom), 1_700_000_000_000)
    assert begun == COPY.started(custom=custom)
    without_index = copy_started(PLACE, SEGMENT._replace(custom=custom, is_txn_index_empty=True), 1_700_000_000_000)
    assert without_index == begun[:-1] + b"\x01\x00\x01\x01", "a tagged field"
    for state in (COPY_FINISHED, DELETE_STARTED):
        assert state_changed(PLACE, SEGMENT, state, 1_700_000_000_001, custom) == COPY.update(state, custom)


def test_an_id_of_a_segment_begins_with_no_hyphen(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = [b"\xf8" + bytes(15), b"\xfb" * 16, b"\xfc" + bytes(15)]
    monkeypatch.setattr(os, "urandom", lambda size: (drawn.pop(0) + b"\xff")[:size])
    found = new_segment_id()
    assert found == "_" + "A" * 21 and len(drawn) == 0
    assert base64.urlsafe_b64decode(found + "==") == b"\xfc" + bytes(15)
