"""State machine of a classic group: joining, rebalancing, assigning, leaving, timing out.

Every function takes the group and an event, changes the group, and returns the effects to carry out (`effects.py`).
The rules are those of a broker of 4.3.1; KIP-62, KIP-134, KIP-345, KIP-394 and KIP-814 explain them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups.classic_group import ClassicGroup, State
from kafkalog.server.groups.classic_member import ClassicMember, Members
from kafkalog.server.groups.effects import JOIN_TIMER, MEMBER_TIMER, SYNC_TIMER, Effect, Reply, Waiter, Wake, Write
from kafkalog.server.groups.values import Joined, Joining, Synced, Syncing

NEW_MEMBER_TIMEOUT_MS: Final = 300_000
"""Session timeout of a new member while its first join is pending (KAFKA-8151)."""


class Rules(NamedTuple):
    """Settings of classic groups, and the current time."""

    initial_delay_ms: int
    max_size: int
    now_ms: int


def join(group: ClassicGroup, event: Joining, waiter: Waiter, rules: Rules) -> list[Effect]:
    """Handle JoinGroup: add or update a member of the next generation."""
    refused = _refusal(group, event, rules)
    if refused:
        return [Reply(waiter, Joined(refused, event.member_id))]
    if event.member_id:
        return _join_again(group, event, waiter, rules)
    if event.instance_id is not None:
        return _join_static(group, event, waiter, rules)
    if event.is_id_required:
        group.pending.add(event.new_id)
        timer = Wake(MEMBER_TIMER + event.new_id, event.session_timeout_ms)
        return [timer, Reply(waiter, Joined(ErrorCode.MEMBER_ID_REQUIRED, event.new_id))]
    return _add(group, event, event.new_id, waiter, rules)


def _refusal(group: ClassicGroup, event: Joining, rules: Rules) -> int:
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    if not _accepts(group, event.member_id, rules.max_size):
        return ErrorCode.GROUP_MAX_SIZE_REACHED
    if not group.supports(event.protocol_type, dict(event.protocols)):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return 0


def _accepts(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    if group.state is State.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is State.PREPARING_REBALANCE:
        # returning members are accepted as long as those who already rejoined leave room
        awaiting = sum(one.awaiting_join is not None for one in group.members.values())
        return (member is not None and member.awaiting_join is not None) or awaiting < max_size
    return member is not None or len(group.members) < max_size


def _join_again(group: ClassicGroup, event: Joining, waiter: Waiter, rules: Rules) -> list[Effect]:
    if event.member_id in group.pending:
        if event.instance_id is not None:
            return [Reply(waiter, Joined(ErrorCode.UNKNOWN_SERVER_ERROR, ""))]
        return _add(group, event, event.member_id, waiter, rules)
    error = group.check_member(event.member_id, event.instance_id)
    if error or group.state is State.EMPTY:
        return [Reply(waiter, Joined(error or ErrorCode.UNKNOWN_MEMBER_ID, event.member_id))]
    member = group.members[event.member_id]
    is_same = member.protocols == event.protocols
    if group.state is State.COMPLETING_REBALANCE and is_same:
        return [Reply(waiter, group.joined(member))]  # the answer was lost: repeat it
    if group.state is State.STABLE and is_same and member.id != group.leader:
        return [Reply(waiter, group.joined(member))]
    out: list[Effect] = []
    group.members.change(member, event)
    _await_join(member, waiter, out)
    _prepare_or_complete(group, rules, out)
    return out


def _add(group: ClassicGroup, event: Joining, member_id: str, waiter: Waiter, rules: Rules) -> list[Effect]:
    out: list[Effect] = []
    member = ClassicMember.of(event, member_id)
    member.is_new = True
    if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
        group.new_member_added = True
    if group.is_empty:
        group.protocol_type = event.protocol_type
    if group.leader is None or group.leader not in group.members:
        group.leader = member_id
    group.members[member_id] = member
    if member.instance_id is not None:
        group.instances[member.instance_id] = member_id
    group.pending.discard(member_id)
    member.awaiting_join = waiter
    out.append(Wake(MEMBER_TIMER + member_id, NEW_MEMBER_TIMEOUT_MS))
    _prepare_or_complete(group, rules, out)
    return out


def _join_static(group: ClassicGroup, event: Joining, waiter: Waiter, rules: Rules) -> list[Effect]:
    assert event.instance_id is not None
    old_id = group.instances.get(event.instance_id)
    if old_id is None:
        return _add(group, event, event.new_id, waiter, rules)
    old_leader = group.leader
    out: list[Effect] = []
    old = group.members[old_id]
    member = _replace(group, old, event, out)
    if group.state is State.STABLE and group.select_protocol() == group.protocol:
        return [*out, Write(group.fields(), lambda error: _replaced(group, member, old, old_leader, error, waiter))]
    member.awaiting_join = waiter
    _rebalance_if_active(group, rules, out)
    return out


def _replace(group: ClassicGroup, old: ClassicMember, event: Joining, out: list[Effect]) -> ClassicMember:
    """Replace a static member by a new one with the same instance id; fence the old one and return the new one."""
    assert event.instance_id is not None
    error = ErrorCode.FENCED_INSTANCE_ID
    if old.awaiting_join is not None:
        out.append(Reply(old.awaiting_join, Joined(error, old.id)))
    if old.awaiting_sync is not None:
        out.append(Reply(old.awaiting_sync, Synced(error)))
    member = ClassicMember.of(event, event.new_id)
    member.assignment = old.assignment
    if old.id in group.pending_sync:
        group.pending_sync.remove(old.id)
        group.pending_sync.add(member.id)
    _put_in_place(group, old, member)
    if group.leader == old.id:
        group.leader = member.id
    out.append(Wake(MEMBER_TIMER + old.id, None))
    out.append(Wake(MEMBER_TIMER + member.id, member.session_timeout_ms))
    return member


def _put_in_place(group: ClassicGroup, old: ClassicMember, new: ClassicMember) -> None:
    group.members = Members(new if one is old else one for one in group.members.values())
    if new.instance_id is not None:
        group.instances[new.instance_id] = new.id


def _replaced(
    group: ClassicGroup, member: ClassicMember, old: ClassicMember, old_leader: str | None, error: int, waiter: Waiter
) -> list[Effect]:
    """Answer a static member that returned to a stable group; it keeps its assignment.

    If the group's record could not be written (`error`), restore the old member and report the error. A member that
    was removed or replaced meanwhile is not restored.
    """
    if error and group.members.get(member.id) is not member:
        return [Reply(waiter, Joined(error, member.id))]
    if error:
        _put_in_place(group, member, old)
        group.leader = old_leader
        timers = [Wake(MEMBER_TIMER + member.id, None), Wake(MEMBER_TIMER + old.id, old.session_timeout_ms)]
        return [*timers, Reply(waiter, Joined(error, member.id))]
    if member.skips_assignment:
        answer = group.joined(member)._replace(skips_assignment=group.leader == member.id)
    else:  # a leader that cannot skip would assign partitions: name the old leader, so that it acts as a follower
        answer = group.joined(member)._replace(leader=old_leader or "", members=())
    return [Reply(waiter, answer)]


def _await_join(member: ClassicMember, waiter: Waiter, out: list[Effect]) -> None:
    if member.awaiting_join is not None:  # the client abandoned its last request and retries
        out.append(Reply(member.awaiting_join, Joined(ErrorCode.UNKNOWN_MEMBER_ID, member.id)))
    member.awaiting_join = waiter


def _prepare_or_complete(group: ClassicGroup, rules: Rules, out: list[Effect]) -> None:
    if group.state is State.PREPARING_REBALANCE:
        _complete_if_all_joined(group, rules, out)
    else:
        _prepare(group, rules, out)


def _prepare(group: ClassicGroup, rules: Rules, out: list[Effect]) -> None:
    """Start a rebalance: members that do not join in time are removed from the group."""
    if group.state is State.COMPLETING_REBALANCE:
        _assign(group, {}, ErrorCode.REBALANCE_IN_PROGRESS, out)
    group.pending_sync.clear()
    out.append(Wake(SYNC_TIMER, None))
    was_empty = group.state is State.EMPTY
    group.move_to(State.PREPARING_REBALANCE, rules.now_ms)
    if was_empty:
        group.initial_left_ms = max(group.rebalance_timeout_ms - rules.initial_delay_ms, 0)
        group.new_member_added = False
        if rules.initial_delay_ms <= 0:
            _complete(group, rules, out)
        else:
            out.append(Wake(JOIN_TIMER, rules.initial_delay_ms))
        return
    group.initial_left_ms = None
    out.append(Wake(JOIN_TIMER, group.rebalance_timeout_ms))
    _complete_if_all_joined(group, rules, out)


def begin(group: ClassicGroup, rules: Rules) -> list[Effect]:
    """Start a rebalance of a stable group."""
    out: list[Effect] = []
    _prepare(group, rules, out)
    return out


def _complete_if_all_joined(group: ClassicGroup, rules: Rules, out: list[Effect]) -> None:
    # a new group waits for its initial delay, since all of its known members have already joined
    if group.state is State.PREPARING_REBALANCE and group.initial_left_ms is None and group.has_all_joined:
        _complete(group, rules, out)


def _assign(group: ClassicGroup, assignments: Mapping[str, bytes], error: int, out: list[Effect]) -> None:
    """Set the members' assignments, and answer the SyncGroup requests that wait for them."""
    group.assignment_bytes = sum(map(len, assignments.values()))
    for member in group.members.values():
        member.assignment = assignments.get(member.id, b"")
        if member.awaiting_sync is not None:
            waiter, member.awaiting_sync = member.awaiting_sync, None
            out.append(Reply(waiter, Synced(error) if error else group.synced(member)))
            out.append(session(group, member.id))


def on_join_timer(group: ClassicGroup, rules: Rules) -> list[Effect]:
    """End the join phase. A group that was empty waits again while new members keep joining."""
    if group.state is not State.PREPARING_REBALANCE:
        return []
    left_ms = group.initial_left_ms
    if left_ms and group.new_member_added:
        delay_ms = min(rules.initial_delay_ms, left_ms)
        group.new_member_added, group.initial_left_ms = False, max(left_ms - delay_ms, 0)
        return [Wake(JOIN_TIMER, delay_ms)]
    out: list[Effect] = []
    _complete(group, rules, out)
    return out


def _complete(group: ClassicGroup, rules: Rules, out: list[Effect]) -> None:
    """Start the next generation. Remove dynamic members that did not join, but keep static ones (KIP-345).

    If no member joined, but static members exist, wait once more.
    """
    group.initial_left_ms = None
    out.append(Wake(JOIN_TIMER, None))
    for member in [one for one in group.members.values() if one.awaiting_join is None and one.instance_id is None]:
        _remove(group, member, out)
    if group.members and not group.elect_leader():
        out.append(Wake(JOIN_TIMER, group.rebalance_timeout_ms))
        return
    group.generation += 1
    group.pending_sync.clear()
    if not group.members:
        group.protocol, group.read_topics = None, group.topics_of_members(None)
        group.move_to(State.EMPTY, rules.now_ms)
        out.append(Write(group.fields(), lambda error: []))
        return
    group.protocol = group.select_protocol()
    group.read_topics = group.topics_of_members(group.protocol)
    group.move_to(State.COMPLETING_REBALANCE, rules.now_ms)
    for member in group.members.values():
        waiter, member.awaiting_join, member.is_new = member.awaiting_join, None, False
        if waiter is not None:
            out.append(Reply(waiter, group.joined(member)))
        out.append(session(group, member.id))
        group.pending_sync.add(member.id)
    out.append(Wake(SYNC_TIMER, group.rebalance_timeout_ms))


def on_sync_timer(group: ClassicGroup, rules: Rules) -> list[Effect]:
    """Remove the members that joined but sent no SyncGroup in time (KAFKA-9752)."""
    out: list[Effect] = []
    if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_sync:
        return out
    for member_id in list(group.pending_sync):
        member = group.members.get(member_id)
        if member is not None:
            _remove(group, member, out)
    _prepare(group, rules, out)
    return out


def sync(group: ClassicGroup, event: Syncing, waiter: Waiter, rules: Rules) -> list[Effect]:
    """Handle SyncGroup: a member requests its assignment; the leader's request contains all assignments."""
    error = group.check_member(event.member_id, event.instance_id) or _sync_refusal(group, event)
    if error:
        return [Reply(waiter, Synced(error))]
    member = group.members[event.member_id]
    group.pending_sync.discard(member.id)
    if group.state is State.STABLE:
        return [session(group, member.id), Reply(waiter, group.synced(member))]
    out: list[Effect] = []
    if member.awaiting_sync is not None:
        out.append(Reply(member.awaiting_sync, Synced(ErrorCode.UNKNOWN_MEMBER_ID)))
    member.awaiting_sync = waiter
    if member.id != group.leader:
        return out
    generation = group.generation
    assignments = {one: event.assignments.get(one, b"") for one in group.members}
    fields = group.fields(assignments)

    def written(error: int) -> list[Effect]:
        if group.state is not State.COMPLETING_REBALANCE or group.generation != generation:
            return []
        after: list[Effect] = []
        if error:
            _assign(group, {}, error, after)
            _prepare(group, rules, after)
        else:
            _assign(group, assignments, 0, after)
            group.move_to(State.STABLE, rules.now_ms)
        return after

    return [*out, Write(fields, written)]


def _sync_refusal(group: ClassicGroup, event: Syncing) -> int:
    if event.generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    for sent, own in ((event.protocol_type, group.protocol_type), (event.protocol, group.protocol)):
        if sent is not None and sent != own:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is State.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.UNKNOWN_MEMBER_ID if group.state in (State.EMPTY, State.DEAD) else 0


def heartbeat(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[int, list[Effect]]:
    """Handle a heartbeat: return its error code, and the restart of the member's session timer."""
    if group.state is State.DEAD:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, []
    error = group.check_member(member_id, instance_id)
    if error:
        return error, []
    if generation != group.generation:
        return ErrorCode.ILLEGAL_GENERATION, []
    if group.state is State.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID, []
    code = ErrorCode.REBALANCE_IN_PROGRESS if group.state is State.PREPARING_REBALANCE else 0
    return code, [session(group, member_id)]


def session(group: ClassicGroup, member_id: str) -> Wake:
    """Return the effect that restarts a member's session timer."""
    return Wake(MEMBER_TIMER + member_id, group.members[member_id].session_timeout_ms)


def leave(
    group: ClassicGroup, members: Iterable[tuple[str, str | None]], rules: Rules
) -> tuple[list[int], list[Effect]]:
    """Remove the members that leave, each given by its id or its instance id, then rebalance the others once.

    Return an error code for each, and the effects. As in a broker, an id that was only pending has the others rejoin.
    """
    out: list[Effect] = []
    codes = [_leave(group, member_id, instance_id, out) for member_id, instance_id in members]
    if 0 in codes:
        _rebalance_if_active(group, rules, out)
    return codes, out


def _leave(group: ClassicGroup, member_id: str, instance_id: str | None, out: list[Effect]) -> int:
    if instance_id is not None and not member_id:
        member_id = group.instances.get(instance_id, "")
    if member_id in group.pending:
        group.pending.discard(member_id)
        out.append(Wake(MEMBER_TIMER + member_id, None))
        return 0
    error = group.check_member(member_id, instance_id)
    if not error:
        _remove(group, group.members[member_id], out)
    return error


def on_session_end(group: ClassicGroup, member_id: str, rules: Rules) -> list[Effect]:
    """Remove a member whose session timed out, unless a request of it is pending."""
    out: list[Effect] = []
    if member_id in group.pending:
        group.pending.discard(member_id)
        out.append(Wake(MEMBER_TIMER + member_id, None))
        _complete_if_all_joined(group, rules, out)
        return out
    member = group.members.get(member_id)
    if member is None or member.is_waiting:
        return out
    _remove(group, member, out)
    _rebalance_if_active(group, rules, out)
    return out


def _remove(group: ClassicGroup, member: ClassicMember, out: list[Effect]) -> None:
    del group.members[member.id]
    if member.instance_id is not None and group.instances.get(member.instance_id) == member.id:
        del group.instances[member.instance_id]
    group.pending_sync.discard(member.id)
    if group.leader == member.id:
        group.leader = next(iter(group.members), None)
    out.append(Wake(MEMBER_TIMER + member.id, None))
    if member.awaiting_join is not None:
        out.append(Reply(member.awaiting_join, Joined(ErrorCode.UNKNOWN_MEMBER_ID, "")))
    if member.awaiting_sync is not None:
        out.append(Reply(member.awaiting_sync, Synced(ErrorCode.UNKNOWN_MEMBER_ID)))


def _rebalance_if_active(group: ClassicGroup, rules: Rules, out: list[Effect]) -> None:
    if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
        _prepare(group, rules, out)
    else:
        _complete_if_all_joined(group, rules, out)


def disband(group: ClassicGroup, error: int, now_ms: int) -> list[Effect]:
    """End the group: remove all members and answer their pending requests with `error`."""
    out: list[Effect] = [Wake(JOIN_TIMER, None), Wake(SYNC_TIMER, None)]
    for member in list(group.members.values()):
        if member.awaiting_join is not None:
            out.append(Reply(member.awaiting_join, Joined(error, member.id)))
        if member.awaiting_sync is not None:
            out.append(Reply(member.awaiting_sync, Synced(error)))
        member.awaiting_join = member.awaiting_sync = None
        _remove(group, member, out)
    out += [Wake(MEMBER_TIMER + one, None) for one in group.pending]
    group.move_to(State.DEAD, now_ms)
    return out
