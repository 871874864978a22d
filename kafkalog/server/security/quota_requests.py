"""Quotas in requests: entities, limits to set, and filters (KIP-546)."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.config.keys import MAX_INT, MAX_LONG
from kafkalog.errors import ApiError, InvalidRequest
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.security.quotas import IP_KEYS, KEYS
from kafkalog.server.security.state import Entity, SecurityState

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.request import EntityData, OpData
    from kio.schema.describe_client_quotas.v1.request import ComponentData

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
_TYPES: Final = (USER, CLIENT_ID, IP)
_TYPE_NAMES: Final = {"int": "an INT", "long": "a LONG"}
_LARGEST: Final = {"int": MAX_INT, "long": MAX_LONG}
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2


class UnsupportedEntity(ApiError):
    """Error for a type of entity without quotas."""

    code = int(ErrorCode.UNSUPPORTED_VERSION)


def entity_of(parts: Sequence[EntityData]) -> Entity:
    """Return the entity of a request entry. InvalidRequest if it is invalid."""
    if not parts:
        raise InvalidRequest("Invalid empty client quota entity")
    names_by_type = {part.entity_type: part.entity_name for part in parts}
    if len(names_by_type) < len(parts):
        raise InvalidRequest("Duplicate entity type in a client quota entity")
    for kind, name in names_by_type.items():
        if kind not in _TYPES:
            raise InvalidRequest(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise InvalidRequest(f"Empty {kind} not supported")
    if IP in names_by_type and len(names_by_type) > 1:
        raise InvalidRequest("Invalid quota entity combination: ip must not be used with user or client-id")
    address = names_by_type.get(IP)
    if address is not None and not _may_be_host(address):
        raise InvalidRequest(f"{address} is not a valid IP or resolvable host.")
    return tuple(sorted(names_by_type.items()))


def _may_be_host(name: str) -> bool:
    """Return True for an address, and for what may be the name of a host. A broker also looks the name up."""
    try:
        if not name.strip("0123456789."):
            socket.inet_aton(name)
        elif ":" in name:
            ipaddress.ip_address(name)
    except (OSError, ValueError):
        return False
    return re.fullmatch(r"[\w.:%-]+", name) is not None


def limits_of(entity: Entity, operations: Sequence[OpData]) -> dict[str, float | None]:
    """Return the limits to set, None for one to remove. InvalidRequest if they are invalid."""
    known = IP_KEYS if entity[0][0] == IP else KEYS
    limits: dict[str, float | None] = {}
    for one in operations:
        if one.key in limits:
            raise InvalidRequest(f"Duplicate key {one.key}")
        if one.remove:  # also of a key that is not known
            limits[one.key] = None
            continue
        if one.key not in known:
            raise InvalidRequest(f"Invalid configuration key {one.key}")
        value: float = one.value
        if not 0 < value < float("inf"):
            raise InvalidRequest(f"Quota {one.key} must be greater than 0")
        kind = known[one.key]
        if kind in _LARGEST and value > _LARGEST[kind]:
            raise InvalidRequest(f"Proposed value for {one.key} is too large for {_TYPE_NAMES[kind]}.")
        if kind != "double" and value != int(value):
            raise InvalidRequest(f"{one.key} cannot be a fractional value.")
        limits[one.key] = value
    return limits


def with_limits(state: SecurityState, changes: Mapping[Entity, Mapping[str, float | None]]) -> SecurityState:
    """Return the state with these limits set or, if None, removed."""
    quotas = {entity: dict(limits) for entity, limits in state.quotas.items()}
    for entity, limits in changes.items():
        current = quotas.setdefault(entity, {})
        for key, value in limits.items():
            if value is None:
                current.pop(key, None)
            else:
                current[key] = value
        if not current:
            del quotas[entity]
    return state._replace(quotas=quotas)


class QuotaFilter:
    """A filter of entities; `is_strict` rejects entities with types that it does not name."""

    def __init__(self, components: Sequence[ComponentData], is_strict: bool) -> None:
        self._exact: dict[str, str | None] = {}
        self._any: set[str] = set()
        self._is_strict = is_strict
        for one in components:
            self._add(one.entity_type, one.match_type, one.match)
        types = {*self._exact, *self._any}
        if IP in types and len(types) > 1:
            raise InvalidRequest(
                "Invalid entity filter component combination. IP filter component should not be used with user or "
                "clientId filter component."
            )

    def _add(self, kind: str, match_type: int, match: str | None) -> None:
        if not kind:
            raise InvalidRequest("Invalid empty entity type.")
        if kind in self._exact or kind in self._any:
            raise InvalidRequest(f"Entity type {kind} cannot appear more than once in the filter.")
        if kind not in _TYPES:
            raise UnsupportedEntity(f"Unsupported entity type {kind}")
        if match_type == _EXACT:
            if match is None:
                raise InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
            self._exact[kind] = match
        elif match_type == _DEFAULT:
            if match is not None:
                raise InvalidRequest("Request specified MATCH_TYPE_DEFAULT, but also specified a match string.")
            self._exact[kind] = None
        elif match_type == _SPECIFIED:
            if match is not None:
                raise InvalidRequest("Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.")
            self._any.add(kind)
        else:
            raise InvalidRequest(f"Unknown match type {match_type}")

    def matches(self, entity: Entity) -> bool:
        """Return True if an entity passes the filter."""
        names_by_type = dict(entity)
        if any(kind not in names_by_type or names_by_type[kind] != name for kind, name in self._exact.items()):
            return False
        if any(kind not in names_by_type for kind in self._any):
            return False
        return not self._is_strict or len(names_by_type) == len(self._exact) + len(self._any)
