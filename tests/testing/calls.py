"""Requests to a server for tests, one connection each, as any client could make them."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from kafkalog.server.wire.reader import read_response
from kafkalog.server.wire.versions import API_VERSIONS, APIS
from tests.server.nodes import KEYS, request_bytes


class Link:
    """A client's connection."""

    def __init__(self, address: str, client_id: str = "test") -> None:
        host, _, port = address.rpartition(":")
        self.sock = socket.create_connection((host, int(port)), 60)
        self.client_id = client_id

    def __enter__(self) -> Link:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, name: str, version: int, tree: Mapping[str, Any]) -> None:
        frame = request_bytes(name, version, tree, client_id=self.client_id)
        self.sock.sendall(len(frame).to_bytes(4, "big") + frame)

    def receive(self) -> bytes:
        """A response as it came; less than announced where the connection ended."""
        size = int.from_bytes(self._take(4), "big")
        return self._take(size)

    def call(self, name: str, version: int, tree: Mapping[str, Any]) -> Any:
        """The response as a named tuple; None where the connection was closed instead."""
        self.send(name, version, tree)
        data = self.receive()
        if not data:
            return None
        key = KEYS[name]
        position = 5 if APIS[key].is_flexible(version) and key != API_VERSIONS else 4
        return read_response(key, version, data, position)

    def _take(self, size: int) -> bytes:
        data = b""
        while len(data) < size and (more := self.sock.recv(size - len(data))):
            data += more
        return data
