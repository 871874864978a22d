"""The two ends of a copy as users write them: `kafka://HOST:PORT,...`, directories, backups, URLs."""

from __future__ import annotations

import os
from difflib import get_close_matches
from typing import Final

from kafkalog.backup.store import MARKER
from kafkalog.errors import IllegalArgument, UnknownConfig
from kafkalog.storage.remote import is_url

CLUSTER: Final = "kafka://"
BACKUP: Final = "backup:"


def is_cluster(place: str) -> bool:
    """Return True for the address of a cluster."""
    return place.startswith(CLUSTER)


def backups_of(place: str) -> str | None:
    """Return the directory of backups that a target names: by `backup:PATH`, or because it is one; else None."""
    if place.startswith(BACKUP):
        if not place.removeprefix(BACKUP):
            raise IllegalArgument(f"{place!r} has no path", hint="write backup:PATH")
        return place.removeprefix(BACKUP)
    return place if not is_url(place) and os.path.exists(os.path.join(place, MARKER)) else None


def parse_addresses(place: str) -> list[tuple[str, int]]:
    """Parse `kafka://HOST:PORT,...`, with or without `kafka://`; raise IllegalArgument for anything else.

    >>> parse_addresses("kafka://broker-1:9092,[::1]:9093")
    [('broker-1', 9092), ('::1', 9093)]
    """
    found = []
    for one in place.removeprefix(CLUSTER).rstrip("/").split(","):
        host, colon, port = one.strip().rpartition(":")
        if not colon or not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
            raise IllegalArgument(f"{one.strip()!r} is not HOST:PORT", hint="write broker-1:9092,broker-2:9092")
        found.append((host.removeprefix("[").removesuffix("]"), int(port)))
    return found


def settings_for(side: str, given: dict[str, str]) -> dict[str, str]:
    """Return the client settings of one side, "source" or "target": those with its prefix, and those with none.

    UnknownConfig for a prefix with a typing error.
    """
    for name in given:
        prefix = name.partition(".")[0]
        for similar in get_close_matches(prefix, ("source", "target"), n=1, cutoff=0.8):
            if prefix != similar:
                raise UnknownConfig(f"unknown client setting {ascii(name)}", hint=f"did you mean the prefix {similar}?")
    other = {"source": "target.", "target": "source."}[side]
    common = {name: value for name, value in given.items() if not name.startswith((f"{side}.", other))}
    own = {name.removeprefix(f"{side}."): value for name, value in given.items() if name.startswith(f"{side}.")}
    return {"client.id": "kafkalog-copy", **common, **own}
