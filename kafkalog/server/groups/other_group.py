"""A share or streams group (KIP-932, KIP-1071), which a broker keeps in the directory and nobody is served in here.

It is known so that its name stays its own: nothing is written, expired or deleted under it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups import records

_STABLE: Final = 1
"""The state of a member of a streams group that has nothing to give back and waits for nothing."""


class Kind(StrEnum):
    """The kind of a group, by the name that clients get."""

    SHARE = "share"
    STREAMS = "streams"


KIND_OF: Final[Mapping[int, Kind]] = {
    **dict.fromkeys((records.SHARE_MEMBER, records.SHARE_GROUP), Kind.SHARE),
    **dict.fromkeys(
        (records.STREAMS_GROUP, records.STREAMS_MEMBER, records.STREAMS_TARGET, records.STREAMS_CURRENT_MEMBER,
         records.STREAMS_TOPOLOGY), Kind.STREAMS,
    ),
}  # fmt: skip
"""The kind of group that records of a type belong to: those that say who is in it and in which state it is."""

MEMBERS: Final = frozenset({records.SHARE_MEMBER, records.STREAMS_MEMBER})
"""Types of records of which only the key counts, and that there is a value."""
WITHOUT_STATE: Final = frozenset({
    records.SHARE_TARGET, records.SHARE_TARGET_MEMBER, records.SHARE_CURRENT_MEMBER, records.SHARE_PARTITIONS,
    records.STREAMS_TARGET_MEMBER,
})  # fmt: skip
"""Types of records of such groups that say neither."""


class OtherMember(NamedTuple):
    """A member as the broker last wrote it: its epoch, and how far it is with its assignment."""

    epoch: int = -1
    state: int = _STABLE


class OtherGroup:
    """What the records of one group say. `epoch` is None until its own record has come, and after that was deleted."""

    __slots__ = ("epoch", "id", "kind", "members", "target_epoch", "topology_epoch", "validated_epoch")

    def __init__(self, group_id: str, kind: Kind) -> None:
        self.id = group_id
        self.kind = kind
        self.epoch: int | None = None
        self.members: dict[str, OtherMember] = {}
        self.target_epoch = 0
        self.topology_epoch: int | None = None
        self.validated_epoch = -1

    def apply(self, number: int, names: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        """Takes in a record of a type in `KIND_OF`."""
        if number in MEMBERS:
            if value is None:
                self.members.pop(names["memberId"], None)
            else:
                self.members.setdefault(names["memberId"], OtherMember())
        elif number == records.STREAMS_CURRENT_MEMBER:
            if value is not None:
                self.members[names["memberId"]] = OtherMember(value["memberEpoch"], value["state"])
            elif names["memberId"] in self.members:
                self.members[names["memberId"]] = OtherMember()
        elif number == records.STREAMS_TARGET:
            self.target_epoch = 0 if value is None else value["assignmentEpoch"]
        elif number == records.STREAMS_TOPOLOGY:
            self.topology_epoch = None if value is None else value["epoch"]
        else:
            self.epoch = None if value is None else value["epoch"]
            self.validated_epoch = -1 if value is None else value.get("validatedTopologyEpoch", -1)

    @property
    def state(self) -> str:
        """Its state by the name that a broker gives it."""
        if not self.members:
            return "Empty"
        if self.kind is Kind.SHARE:
            return "Stable"
        if self.topology_epoch != self.validated_epoch:
            return "NotReady"
        if (self.epoch or 0) > self.target_epoch:
            return "Assigning"
        is_stable = all(one == (self.target_epoch, _STABLE) for one in self.members.values())
        return "Stable" if is_stable else "Reconciling"

    def check_member(self, member_id: str, epoch: int) -> int:
        """0 for a member of a streams group that names the epoch it is in."""
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if self.members[member_id].epoch == epoch else ErrorCode.STALE_MEMBER_EPOCH

    def refuse_commit(self, member_id: str, epoch: int, *, knows_epochs: bool, is_transactional: bool) -> int:
        """The error code for an offset commit, as a broker refuses it.

        What a broker takes, from a member in its epoch or from anyone while the group is empty, is refused as from one
        who is no member.
        """
        if self.kind is Kind.SHARE:
            return ErrorCode.GROUP_ID_NOT_FOUND
        error = self.check_member(member_id, epoch)
        if is_transactional and error == ErrorCode.STALE_MEMBER_EPOCH:
            return ErrorCode.ILLEGAL_GENERATION
        if error != ErrorCode.UNKNOWN_MEMBER_ID and not is_transactional and not knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        return error or ErrorCode.UNKNOWN_MEMBER_ID
