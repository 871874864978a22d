"""The requests of one node as lines of a file, which survives the node's end."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from kafkalog.testing.names import PEER_PREFIX, kafka_name

if TYPE_CHECKING:
    from kafkalog.testing.inside.requests import Call


class Recorder:
    """Appends one line of JSON for each request, when it arrives."""

    def __init__(self, path: str, node_id: int, *, peers: bool) -> None:
        """With `peers`, requests of other nodes are recorded as well."""
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._node_id = node_id
        self._has_peers = peers

    def record(self, call: Call) -> None:
        """Append a request."""
        context = call.context
        if not self._has_peers and context.client_id.startswith(PEER_PREFIX):
            return
        row = {
            "time": time.monotonic(), "node": self._node_id, "api": kafka_name(call.api.name),
            "version": context.api_version, "client_id": context.client_id, "connection": context.connection.id,
            "size_bytes": context.size_bytes, "groups": call.groups(), "transactional_ids": call.transactional_ids(),
            "topics": {name: sorted(offsets.items()) for name, offsets in call.topics().items()},
        }  # fmt: skip
        os.write(self._fd, json.dumps(row).encode() + b"\n")

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
