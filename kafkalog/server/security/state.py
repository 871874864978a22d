"""The security state of a server (ACLs, quotas and users' keys), and its file format.

The file is JSON with a version. It contains no passwords, only the keys to check them (RFC 5802).
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import sha256
from math import isfinite
from typing import Final, NamedTuple, TypeVar

from kafkalog.server.security.acls import Acl, Operation, PatternType, Permission, ResourceType

VERSION: Final = 1
MECHANISMS: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Hash function of each mechanism, by `hashlib`'s name."""
MIN_ITERATIONS: Final = 4096
MAX_ITERATIONS: Final = 16_384

T = TypeVar("T")
Entity = tuple[tuple[str, str | None], ...]
"""Entity of a quota: (type, name) pairs, sorted by type; the name None is the default for all others."""


class ScramKeys(NamedTuple):
    """Keys to check a password, for one mechanism."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class SecurityState(NamedTuple):
    """The whole security state. It is immutable; a change creates another state."""

    acls: tuple[Acl, ...] = ()
    quotas: Mapping[Entity, Mapping[str, float]] = {}
    users: Mapping[str, Mapping[str, ScramKeys]] = {}


def format_state(state: SecurityState, taken_from: str | None = None) -> bytes:
    """Return the file's content: indented JSON, sorted, with a final newline.

    `taken_from` is the digest of the broker's state that was taken over.
    """
    data = {
        "version": VERSION,
        **({} if taken_from is None else {"taken_from": taken_from}),
        "acls": [_acl_row(acl) for acl in sorted(state.acls)],
        "quotas": [
            {"entity": dict(entity), "limits": dict(sorted(limits.items()))}
            for entity, limits in sorted(state.quotas.items(), key=lambda item: _sort_key(item[0]))
        ],
        "users": {
            user: {mechanism: _key_row(keys) for mechanism, keys in sorted(mechanisms.items())}
            for user, mechanisms in sorted(state.users.items())
        },
    }
    return (json.dumps(data, indent=1) + "\n").encode()


def parse_state(content: bytes) -> SecurityState:
    """Parse a file's content. ValueError describes the fault."""
    data = json.loads(content.decode())
    if not isinstance(data, dict) or isinstance(data.get("version"), bool) or data.get("version") != VERSION:
        raise ValueError(f"it is not an object with version {VERSION}")
    try:
        return SecurityState(
            tuple(_parse_acl(row) for row in _check_type(data["acls"], list)),
            dict(_parse_quota(row) for row in _check_type(data["quotas"], list)),
            {user: _parse_user(row) for user, row in _check_type(data["users"], dict).items()},
        )
    except KeyError as error:
        raise ValueError(f"{error} is missing") from None


def parse_taken_from(content: bytes) -> str | None:
    """Return the digest of the broker's state that a valid file took over; None if it has none."""
    taken_from = json.loads(content.decode()).get("taken_from")
    return None if taken_from is None else str(_check_type(taken_from, str))


def digest(state: SecurityState) -> str:
    """Return a digest that is the same only for equal states."""
    return sha256(format_state(state)).hexdigest()


def _acl_row(acl: Acl) -> dict[str, str]:
    return {name: value.name if hasattr(value, "name") else value for name, value in acl._asdict().items()}


def _key_row(keys: ScramKeys) -> dict[str, int | str]:
    return {
        name: value if isinstance(value, int) else b64encode(value).decode() for name, value in keys._asdict().items()
    }


def _sort_key(entity: Entity) -> list[tuple[str, bool, str]]:
    return [(kind, name is not None, name or "") for kind, name in entity]


def _check_type(value: object, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise ValueError(f"{ascii(str(value)[:60])} is not of type {kind.__name__}")
    return value


def _parse_acl(row: object) -> Acl:
    fields = _check_type(row, dict)
    try:
        return Acl(
            ResourceType[fields["resource_type"]],
            _check_type(fields["resource_name"], str),
            PatternType[fields["pattern_type"]],
            _check_type(fields["principal"], str),
            _check_type(fields["host"], str),
            Operation[fields["operation"]],
            Permission[fields["permission"]],
        )
    except KeyError as error:
        raise ValueError(f"an ACL: {error} is missing or unknown") from None


def _parse_quota(row: object) -> tuple[Entity, dict[str, float]]:
    fields = _check_type(row, dict)
    entity = _check_type(fields["entity"], dict)
    if not entity or any(name is not None and not isinstance(name, str) for name in entity.values()):
        raise ValueError("the entity of a quota has no valid names")
    limits = {key: float(value) for key, value in _check_type(fields["limits"], dict).items()}
    if not all(isfinite(value) and value > 0 for value in limits.values()):
        raise ValueError("a quota is not above 0")
    return tuple(sorted(entity.items())), limits


def _parse_user(row: object) -> dict[str, ScramKeys]:
    keys = {}
    for mechanism, fields in _check_type(row, dict).items():
        if mechanism not in MECHANISMS:
            raise ValueError(f"unknown mechanism {ascii(mechanism[:40])}")
        iterations = _check_type(fields["iterations"], int)
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise ValueError(f"{iterations} iterations; must be {MIN_ITERATIONS} to {MAX_ITERATIONS}")
        salt, stored_key, server_key = (
            b64decode(_check_type(fields[name], str), validate=True) for name in ("salt", "stored_key", "server_key")
        )
        keys[mechanism] = ScramKeys(salt, stored_key, server_key, iterations)
    return keys
