"""Log lines about requests that are not served or are refused: one for each client software, call and verdict."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkalog.server.requests.context import Connection

_LOG: Final = logging.getLogger(__name__)
_MOST_LINES: Final = 1000
_MOST_LETTERS: Final = 80


class RefusalLog:
    """The lines logged so far, so that each is logged once. Memory is bounded: clients choose the names in them."""

    __slots__ = ("_logged",)

    def __init__(self) -> None:
        self._logged: set[tuple[str, str, str, object]] = set()

    def closed(self, connection: Connection, call: str, verdict: str, reason: object, client_id: str = "") -> None:
        """Log as a warning that a request ends its connection; `verdict` distinguishes lines about one call."""
        if self._is_new(connection, call, verdict):
            _LOG.warning("closed the connection of %s: %s", _client(connection, client_id), reason)

    def answered(self, connection: Connection, call: str, error_code: int, reason: object, client_id: str) -> None:
        """Log that a call failed as a whole and was answered with an error."""
        if self._is_new(connection, call, error_code):
            _LOG.info("refused %s of %s: error %d, %s", call, _client(connection, client_id), error_code, reason)

    def _is_new(self, connection: Connection, call: str, verdict: object) -> bool:
        line = (connection.software_name, connection.software_version, call, verdict)
        if line in self._logged or len(self._logged) >= _MOST_LINES:
            return False
        self._logged.add(line)
        if len(self._logged) == _MOST_LINES:
            _LOG.warning("%d refused requests are logged; no more will be", _MOST_LINES)
        return True


def _client(connection: Connection, client_id: str) -> str:
    """Return the client's software, its id and its address."""
    software = f"{connection.software_name} {connection.software_version}".strip() or "a client of unknown software"
    named = f" with client id {ascii(client_id[:_MOST_LETTERS])}" if client_id else ""
    return f"{software}{named} at {connection.peer_host}:{connection.peer_port}"


def call_name(api_key: int) -> str:
    """Return the name of any of Kafka's calls, served or not."""
    from kio.schema.index import api_key_map  # not needed for a server's first answers

    name = api_key_map.get(api_key)
    return f"call {api_key}" if name is None else f"{name} ({api_key})"
