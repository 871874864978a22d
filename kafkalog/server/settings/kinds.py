"""Resource types with settings, and operations on a setting, by the protocol's numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Final, Protocol

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
KEPT: Final = {GROUP: "groups", CLIENT_METRICS: "client_metrics"}
"""Types whose settings are only kept, for those who look them up, with their names in files."""
KINDS: Final = frozenset({TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS, GROUP})


def is_of_one_node(request: Any) -> bool:
    """Return True if a change of settings is only of those that each node has for itself: its own and its loggers'."""
    kinds = [(one.resource_type, bool(one.resource_name)) for one in request.resources]
    return bool(kinds) and all(kind == BROKER_LOGGER or (kind == BROKER and is_named) for kind, is_named in kinds)


class Change(IntEnum):
    """Operation on one setting (KIP-339); the last two are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class RequestedChange(Protocol):
    """A change of one setting, as a request has it; `config_operation` is one of `Change`, or unknown."""

    @property
    def name(self) -> str: ...
    @property
    def config_operation(self) -> int: ...
    @property
    def value(self) -> str | None: ...
