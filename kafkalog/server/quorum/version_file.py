"""`kafkalog.metadata.json`: version of the topics, settings, users, ACLs and quotas of a node of a replica set.

A version is a leader's term and its number of changes in that term. A node's data is between two versions: it has all
of `complete`, and nothing newer than `begun`. The file lies in the first data directory, beside the settings and users
that it is about. It is replaced as a whole and synced before an answer reports it. An unreadable file aborts the start.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkalog.config.keys import MAX_INT, MAX_LONG
from kafkalog.server.quorum.state_file import StateFile, parse_number

VERSION_FILE: Final = "kafkalog.metadata.json"

Version = tuple[int, int]
"""A leader's term and its number of changes. The larger version is newer."""
NONE: Final[Version] = (-1, 0)


class Versions(NamedTuple):
    """The node has all of `complete` and nothing newer than `begun`; a `complete` of NONE means unknown."""

    begun: Version = NONE
    complete: Version = NONE


def unknown(term: int) -> Versions:
    """Return the versions of a node that stores none yet: its data is of leaders up to this term."""
    return Versions((term, MAX_LONG), NONE)


class VersionFile(StateFile[Versions]):
    """The file of a data directory."""

    name = VERSION_FILE
    content = "the version of the metadata"
    hint = "restore the file; without it this node may vote for a candidate that lacks acknowledged changes"

    @staticmethod
    def _fields(value: Versions) -> dict[str, object]:
        return {name: {"term": term, "changes": changes} for name, (term, changes) in value._asdict().items()}

    @staticmethod
    def _value(data: dict[str, object]) -> Versions:
        versions = Versions(_version(data, "begun"), _version(data, "complete"))
        if versions.complete > versions.begun:
            raise ValueError("complete is newer than begun")
        return versions


def _version(data: dict[str, object], name: str) -> Version:
    tree = data.get(name)
    if not isinstance(tree, dict):
        raise ValueError(f"{name} is not an object")
    return parse_number(tree, "term", -1, MAX_INT), parse_number(tree, "changes", 0, MAX_LONG)
