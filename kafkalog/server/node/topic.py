"""A topic as clients see it, its id as text, and the names of internal topics."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Final, NamedTuple
from uuid import UUID

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
INTERNAL: Final = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE})


class Topic(NamedTuple):
    """A topic that clients see, with the partitions 0 ... `partitions` - 1."""

    name: str
    id: UUID
    partitions: int
    is_internal: bool


def id_text(topic_id: UUID) -> str:
    """Return the id as the 22 characters used in files."""
    return urlsafe_b64encode(topic_id.bytes).decode()[:22]


def uuid_of(text: str) -> UUID:
    """Return the id that these characters stand for."""
    return UUID(bytes=urlsafe_b64decode(text + "=="))
