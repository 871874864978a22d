"""The nodes with copies of all partitions, as named in `kafkalog.replicas`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from kafkalog.config.keys import MAX_INT
from kafkalog.errors import ConfigError

SETTING: Final = "kafkalog.replicas"
_FORM: Final = re.compile(r"(\d{1,10})@(\[[0-9A-Fa-f:.%]+\]|[^\s@:\[\]]+):(\d{1,5})")
_HINT: Final = f"{SETTING}=1@first:9092,2@second:9092,3@third:9092, the same on all nodes"


class Member(NamedTuple):
    """A node of the set, and its address for other nodes and clients."""

    node_id: int
    host: str
    port: int


class ReplicaSet:
    """The members, sorted by node id. Immutable."""

    __slots__ = ("_by_id", "ids")

    def __init__(self, members: Iterable[Member]) -> None:
        self._by_id = {one.node_id: one for one in sorted(members)}
        self.ids = tuple(self._by_id)

    def __len__(self) -> int:
        return len(self.ids)

    def __contains__(self, node_id: object) -> bool:
        return node_id in self._by_id

    def __getitem__(self, node_id: int) -> Member:
        return self._by_id[node_id]

    @property
    def members(self) -> tuple[Member, ...]:
        """All members, by node id."""
        return tuple(self._by_id.values())

    def others(self, node_id: int) -> tuple[int, ...]:
        """Return the ids of all members except this one."""
        return tuple(one for one in self.ids if one != node_id)

    def is_majority(self, nodes: Collection[int]) -> bool:
        """Return True if more than half of the members are among these nodes."""
        return 2 * len(self._by_id.keys() & set(nodes)) > len(self._by_id)

    def __repr__(self) -> str:
        return f"<ReplicaSet {','.join(f'{one.node_id}@{one.host}:{one.port}' for one in self.members)}>"


def parse_replicas(texts: Iterable[str]) -> ReplicaSet | None:
    """Parse `ID@HOST:PORT` texts into a set; None without texts: the node is alone. ConfigError."""
    members: list[Member] = []
    for text in texts:
        found = _FORM.fullmatch(text.strip())
        if found is None or int(found[1]) > MAX_INT or not 0 < int(found[3]) <= 0xFFFF:
            raise ConfigError(f"{ascii(text)} in {SETTING} is not ID@HOST:PORT", hint=_HINT)
        one = Member(int(found[1]), found[2].strip("[]"), int(found[3]))
        for other in members:
            if other.node_id == one.node_id or other[1:] == one[1:]:
                what = "node" if other.node_id == one.node_id else "address"
                raise ConfigError(f"{SETTING} names the same {what} twice: {ascii(text)}", hint=_HINT)
        members.append(one)
    return ReplicaSet(members) if members else None


def check_member(replicas: ReplicaSet, node_id: int) -> None:
    """Raise ConfigError if the node is not in the set."""
    if node_id not in replicas:
        named = ", ".join(map(str, replicas.ids))
        raise ConfigError(
            f"this is node {node_id}, but {SETTING} names {named}", hint="set node.id to the number of this node"
        )
