"""`kafkalog.quorum.json`: the term of a replica set, its leader, and this node's vote.

The file lies in each data directory, and is replaced as a whole and synced before an answer reports its content: a node
that forgot its vote could give it twice, also if a disk is offline. An unreadable file aborts the start.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkalog.config.keys import MAX_INT
from kafkalog.manager.known_topics import QUORUM_FILE
from kafkalog.server.quorum.state_file import StateFile, parse_number

NO_NODE: Final = -1


class QuorumState(NamedTuple):
    """A node's view of its set: the term, the node that leads in it, and the node it voted for; -1: none."""

    term: int
    leader: int = NO_NODE
    voted_for: int = NO_NODE


class QuorumFile(StateFile[QuorumState]):
    """The file of a data directory."""

    name = QUORUM_FILE
    content = "the term of the replica set"
    hint = "restore the file; without it this node may vote twice in a term"

    @staticmethod
    def _fields(value: QuorumState) -> dict[str, object]:
        return value._asdict()

    @staticmethod
    def _value(data: dict[str, object]) -> QuorumState:
        term = parse_number(data, "term", 0, MAX_INT)
        return QuorumState(term, *(parse_number(data, name, NO_NODE, MAX_INT) for name in ("leader", "voted_for")))
