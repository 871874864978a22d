"""Kafka's names of calls and errors, as tests write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kafkalog.errors import IllegalArgument
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.wire.versions import APIS
from kafkalog.util.keywords import closest_match

_KEYS: Final = {api.name.replace("_", ""): key for key, api in APIS.items()}
_ALL: Final = "*"
PEER_PREFIX: Final = "kafkalog-replica-"
"""Beginning of the client ids of nodes in their requests to each other."""


def keys_of(api: str | Iterable[str]) -> list[int] | None:
    """Return the keys of calls by Kafka's names, None for "*". IllegalArgument for an unknown one."""
    names = [api] if isinstance(api, str) else list(api)
    return None if _ALL in names else sorted({_key_of(name) for name in names})


def _key_of(name: str) -> int:
    plain = name.replace("_", "").lower()
    if plain not in _KEYS:
        nearest = closest_match(plain, _KEYS)
        known = None if nearest is None else f"did you mean {kafka_name(APIS[_KEYS[nearest]].name)}?"
        raise IllegalArgument(f"there is no API {name!r}", hint=known or 'use a name as "Produce", or "*" for all')
    return _KEYS[plain]


def code_of(error: str | int) -> int:
    """Return the number of an error by Kafka's name or number. IllegalArgument for an unknown one, and for none."""
    known = ErrorCode.__members__
    if isinstance(error, str):
        if error not in known:
            nearest = closest_match(error, known)
            raise IllegalArgument(
                f"there is no error {error!r}", hint=f"did you mean {nearest}?" if nearest else "use Kafka's name of it"
            )
        code = int(known[error])
    else:
        code = int(error)
    if not code or code not in {int(one) for one in known.values()}:
        raise IllegalArgument(f"error={error!r} is no error", hint='use a name as "NOT_LEADER_OR_FOLLOWER"')
    return code


def kafka_name(name: str) -> str:
    """Return Kafka's name of a call: "OffsetCommit" for `offset_commit`."""
    return "".join(part.capitalize() for part in name.split("_"))
