"""Members of share and streams groups, and calls to a broker or server, over separate sockets."""

from __future__ import annotations

import io
import socket
import struct
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse
from kio.schema.streams_group_heartbeat.v0 import request as streams
from kio.schema.streams_group_heartbeat.v0.response import StreamsGroupHeartbeatResponse
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32, i32Timedelta

from kafkalog.server.wire.reader import read_response
from kafkalog.server.wire.versions import APIS
from tests.server.nodes import KEYS, request_bytes

LIMIT_S: Final = 180
SHARE: Final = {
    "share.coordinator.state.topic.replication.factor": "1", "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}  # fmt: skip
"""Settings of a broker alone that has share groups."""
QUICK: Final = {"group.share.min.heartbeat.interval.ms": "200", "group.share.heartbeat.interval.ms": "200"}
"""Heartbeats as often as the tests need them."""
_SHARE_BEAT, _STREAMS_BEAT = 76, 88
_NOT_YET: Final = {14, 15, 16}


def exchange(bootstrap: str, request: bytes) -> bytes:
    """The answer to one request, both without their lengths."""
    host, _, port = bootstrap.rpartition(":")
    with socket.create_connection((host, int(port)), LIMIT_S) as link, link.makefile("rb") as stream:
        link.sendall(len(request).to_bytes(4, "big") + request)
        return stream.read(int.from_bytes(stream.read(4), "big"))


def asked(bootstrap: str, name: str, version: int, tree: Mapping[str, Any]) -> Any:
    """The response to a call; asked again while a coordinator is not ready."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        data = exchange(bootstrap, request_bytes(name, version, tree))
        found = read_response(KEYS[name], version, data, 5 if APIS[KEYS[name]].is_flexible(version) else 4)
        if not _codes(found) & _NOT_YET or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def _codes(value: Any) -> set[int]:
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return {code for one in value for code in _codes(one)}
    fields = getattr(value, "_fields", ())
    return {getattr(value, "error_code", 0)} | {code for name in fields for code in _codes(getattr(value, name))}


def _beat(bootstrap: str, key: int, version: int, message: Any, answer: Any) -> Any:
    body = io.BytesIO()
    entity_writer(type(message))(body, message)
    head = struct.pack(">hhih", key, version, 7, 4) + b"test\0"
    deadline = time.monotonic() + LIMIT_S
    while True:
        found, _ = entity_reader(answer)(exchange(bootstrap, head + body.getvalue()), 5)
        if found.error_code.value not in _NOT_YET or time.monotonic() > deadline:
            return found
        time.sleep(0.05)


def share_beat(bootstrap: str, group_id: str, epoch: int, member_id: str = "m") -> Any:
    """A heartbeat of a member that reads topic t; epoch 0 joins, -1 leaves."""
    message = ShareGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=i32(epoch), subscribed_topic_names=("t",)
    )
    return _beat(bootstrap, _SHARE_BEAT, 1, message, ShareGroupHeartbeatResponse)


def streams_beat(bootstrap: str, group_id: str, epoch: int, member_id: str = "m", source: str = "t") -> Any:
    """A heartbeat of a streams member, whose topology is to read a topic; epoch 0 joins, -1 leaves."""
    is_joining = epoch == 0
    part = streams.Subtopology(
        subtopology_id="0", source_topics=(source,), state_changelog_topics=(), repartition_source_topics=(),
        copartition_groups=(),
    )  # fmt: skip
    nothing = () if is_joining else None
    message = streams.StreamsGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=i32(epoch), endpoint_information_epoch=i32(0),
        rebalance_timeout=i32Timedelta.parse(timedelta(seconds=60) if is_joining else timedelta(milliseconds=-1)),
        topology=streams.Topology(epoch=i32(0), subtopologies=(part,)) if is_joining else None, active_tasks=nothing,
        standby_tasks=nothing, warmup_tasks=nothing, process_id="p" if is_joining else None, client_tags=nothing,
        task_offsets=None, task_end_offsets=None,
    )  # fmt: skip
    return _beat(bootstrap, _STREAMS_BEAT, 0, message, StreamsGroupHeartbeatResponse)
