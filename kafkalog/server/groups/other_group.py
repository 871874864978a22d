"""A group that commits no offsets here, so that no consumer may use its name: a share or streams group.

Share groups (KIP-932) are in `share_group`. A streams group (KIP-1071) that a broker wrote is not served: it is tracked
so that nothing is written, expired or deleted under its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups import records

if TYPE_CHECKING:
    from kafkalog.records.schema import Message

_STABLE: Final = 1
"""State of a streams group member without partitions to revoke or to wait for."""


class Kind(StrEnum):
    """Kinds of these groups, by the names reported to clients."""

    SHARE = "share"
    STREAMS = "streams"


KIND_OF: Final[Mapping[int, Kind]] = {
    **dict.fromkeys(range(records.SHARE_MEMBER, records.SHARE_PARTITIONS + 1), Kind.SHARE),
    **dict.fromkeys(
        (records.STREAMS_GROUP, records.STREAMS_MEMBER, records.STREAMS_TARGET, records.STREAMS_CURRENT_MEMBER,
         records.STREAMS_TOPOLOGY), Kind.STREAMS,
    ),
}  # fmt: skip
"""Kind of group by record type, for the types that determine its members and state."""

MEMBERS: Final = frozenset({records.STREAMS_MEMBER})
"""Record types of which only the key matters, and whether there is a value."""
WITHOUT_STATE: Final = frozenset({records.STREAMS_TARGET_MEMBER})
"""Record types of such groups that affect neither members nor state."""


class OtherMember(NamedTuple):
    """A member as the broker last wrote it: its epoch and the state of its assignment."""

    epoch: int = -1
    state: int = _STABLE


@dataclass(slots=True, eq=False)
class OtherGroup:
    """The state that a group's records describe; `epoch` is None before its own record and after its tombstone."""

    id: str
    kind: Kind
    epoch: int | None = None
    members: dict[str, OtherMember] = field(default_factory=dict)
    target_epoch: int = 0
    topology_epoch: int | None = None
    validated_epoch: int = -1

    def apply(self, number: int, names: Message, value: Message | None) -> None:
        """Apply a record of a type in `KIND_OF`."""
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
        """State, by the name that a broker reports."""
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
        """Return 0 for a member of a streams group with its current epoch, else the error code."""
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return 0 if self.members[member_id].epoch == epoch else ErrorCode.STALE_MEMBER_EPOCH

    def refuse_commit(self, member_id: str, epoch: int, *, knows_epochs: bool) -> int:
        """Return the error code of an offset commit, as a broker rejects it.

        A commit that a broker accepts, from a member in its epoch or from any client while the group is empty, is
        rejected with UNKNOWN_MEMBER_ID.
        """
        if self.kind is Kind.SHARE:
            return ErrorCode.GROUP_ID_NOT_FOUND
        error = self.check_member(member_id, epoch)
        if error != ErrorCode.UNKNOWN_MEMBER_ID and not knows_epochs:
            return ErrorCode.UNSUPPORTED_VERSION
        return error or ErrorCode.UNKNOWN_MEMBER_ID
