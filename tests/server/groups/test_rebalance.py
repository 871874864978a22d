"""A classic group's rules, tried without a clock, a log or a socket (KIP-62, KIP-134, KIP-345, KIP-394, KIP-814)."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.groups import rebalance
from kafkalog.server.groups.classic_group import ClassicGroup, State
from kafkalog.server.groups.effects import JOIN_TIMER, MEMBER_TIMER, SYNC_TIMER, Effect, Reply, Wake, Write
from kafkalog.server.groups.values import Joining, Syncing

RANGE = (("range", b"r"),)


class Driver:
    """A group with what it asks for: answers by the request they are for, timers, and what was written."""

    def __init__(self, delay_ms: int = 0, max_size: int = 100) -> None:
        self.group = ClassicGroup("g", 0)
        self.rules = rebalance.Rules(delay_ms, max_size, 1000)
        self.answers: dict[str, Any] = {}
        self.timers: dict[str, int] = {}
        self.written: list[Any] = []
        self.write_error = 0

    def run(self, effects: list[Effect]) -> None:
        left = list(effects)
        while left:
            effect = left.pop(0)
            if isinstance(effect, Reply):
                assert effect.waiter not in self.answers, "a request is answered once"
                self.answers[effect.waiter] = effect.answer
            elif isinstance(effect, Wake):
                if effect.delay_ms is None:
                    self.timers.pop(effect.name, None)
                else:
                    self.timers[effect.name] = effect.delay_ms
            else:
                if not self.write_error:
                    self.written.append(effect.fields)
                left = [*effect.then(self.write_error), *left]

    def join(self, request: str, member_id: str = "", **more: Any) -> Any:
        event = joining(member_id, new_id=f"id-of-{request}", **more)
        self.run(rebalance.join(self.group, event, request, self.rules))
        return self.answers.get(request)

    def sync(self, request: str, member_id: str, given: dict[str, bytes] | None = None, **more: Any) -> Any:
        generation = more.pop("generation", self.group.generation)
        instance_id, kind, protocol = (more.get(one) for one in ("instance_id", "protocol_type", "protocol"))
        event = Syncing(member_id, instance_id, generation, kind, protocol, given or {})
        self.run(rebalance.sync(self.group, event, request, self.rules))
        return self.answers.get(request)

    def heartbeat(self, member_id: str, generation: int | None = None) -> int:
        at = self.group.generation if generation is None else generation
        code, effects = rebalance.heartbeat(self.group, member_id, None, at)
        self.run(effects)
        return int(code)

    def leave(self, member_id: str, instance_id: str | None = None) -> int:
        [code], effects = rebalance.leave(self.group, [(member_id, instance_id)], self.rules)
        self.run(effects)
        return int(code)

    def fire(self, name: str) -> None:
        del self.timers[name]
        if name == JOIN_TIMER:
            self.run(rebalance.on_join_timer(self.group, self.rules))
        elif name == SYNC_TIMER:
            self.run(rebalance.on_sync_timer(self.group, self.rules))
        else:
            member_id = name.removeprefix(MEMBER_TIMER)
            self.run(rebalance.on_session_end(self.group, member_id, self.rules))

    def begin(self) -> None:
        """Lets the time pass that a new group waits."""
        while self.group.state is State.PREPARING_REBALANCE:
            self.fire(JOIN_TIMER)

    def stable(self, members: int = 2, *, is_static: bool = False) -> list[str]:
        """A stable group of so many; the ids, the leader's first."""
        self.rules = self.rules._replace(initial_delay_ms=10)
        for number in range(members):
            self.join(f"j{number}", instance_id=f"i{number}" if is_static else None)
        self.begin()
        ids = [f"id-of-j{number}" for number in range(members)]
        self.sync("s0", ids[0], {one: one.encode() for one in ids}, instance_id="i0" if is_static else None)
        for number, one in enumerate(ids[1:], 1):
            self.sync(f"s{number}", one, instance_id=f"i{number}" if is_static else None)
        assert self.group.state is State.STABLE
        return ids


def joining(member_id: str = "", **more: Any) -> Joining:
    values: dict[str, Any] = {
        "member_id": member_id, "new_id": "new", "instance_id": None, "client_id": "c", "client_host": "/h",
        "session_timeout_ms": 100, "rebalance_timeout_ms": 500, "protocol_type": "consumer", "protocols": RANGE,
    }  # fmt: skip
    return Joining(**(values | more))


def test_the_first_member_leads_and_gets_what_it_hands_out() -> None:
    driver = Driver()
    joined = driver.join("a")
    assert (joined.error_code, joined.generation, joined.leader) == (0, 1, "id-of-a")
    assert joined.members == (("id-of-a", None, b"r"),)
    synced = driver.sync("b", "id-of-a", {"id-of-a": b"all"})
    assert (synced.error_code, synced.assignment) == (0, b"all")
    assert driver.group.state is State.STABLE
    [fields] = driver.written
    assert fields["generation"] == 1
    assert fields["members"][0]["assignment"] == b"all"
    assert driver.heartbeat("id-of-a") == 0


def test_a_new_group_waits_for_more_members_and_longer_while_they_come() -> None:
    driver = Driver(delay_ms=200)
    assert driver.join("a", rebalance_timeout_ms=450) is None
    assert driver.timers[JOIN_TIMER] == 200
    driver.join("b", rebalance_timeout_ms=450)
    driver.fire(JOIN_TIMER)
    assert driver.timers[JOIN_TIMER] == 200, "somebody came: it waits once more"
    driver.join("c", rebalance_timeout_ms=450)
    driver.fire(JOIN_TIMER)
    assert driver.timers[JOIN_TIMER] == 50, "but not longer than its members would"
    driver.fire(JOIN_TIMER)
    assert {one: driver.answers[one].error_code for one in "abc"} == {"a": 0, "b": 0, "c": 0}
    assert [len(driver.answers[one].members) for one in "abc"] == [3, 0, 0], "only the leader gets the other members"


def test_a_member_id_has_to_be_brought_back() -> None:
    driver = Driver()
    first = driver.join("a", is_id_required=True)
    assert (first.error_code, first.member_id) == (ErrorCode.MEMBER_ID_REQUIRED, "id-of-a")
    assert driver.group.is_empty
    assert driver.timers == {MEMBER_TIMER + "id-of-a": 100}
    assert driver.join("b", "id-of-a", is_id_required=True).error_code == 0
    assert driver.join("c", "id-of-nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_was_not_brought_back_is_forgotten() -> None:
    driver = Driver()
    driver.join("a", is_id_required=True)
    driver.fire(MEMBER_TIMER + "id-of-a")
    assert not driver.group.pending
    assert driver.join("b", "id-of-a").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_somebody_new_makes_all_others_join_again() -> None:
    driver = Driver()
    leader, other = driver.stable()
    assert driver.join("new") is None
    assert driver.group.state is State.PREPARING_REBALANCE
    assert driver.heartbeat(leader) == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.sync("late", other).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.join("l2", leader) is None
    assert driver.join("o2", other).generation == 2
    assert driver.answers["l2"].generation == driver.answers["new"].generation == 2
    assert len(driver.answers["l2"].members) == 3


def test_who_does_not_join_again_in_time_is_out() -> None:
    driver = Driver()
    leader, other = driver.stable()
    driver.join("new")
    driver.join("o2", other)
    driver.fire(JOIN_TIMER)
    assert sorted(driver.group.members) == sorted([other, "id-of-new"])
    assert driver.answers["o2"].leader == other
    assert driver.heartbeat(leader) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_out_and_one_that_waits_is_not_silent() -> None:
    driver = Driver()
    leader, other = driver.stable()
    driver.join("o2", other, protocols=(("range", b"else"),))
    driver.fire(MEMBER_TIMER + other)
    assert other in driver.group.members
    driver.fire(MEMBER_TIMER + leader)
    assert leader not in driver.group.members
    assert driver.answers["o2"].generation == 2


def test_who_joined_and_never_asked_for_its_assignment_is_out() -> None:
    driver = Driver(delay_ms=10)
    driver.join("a")
    driver.join("b")
    driver.begin()
    driver.sync("s", "id-of-a", {"id-of-a": b"1", "id-of-b": b"2"})
    driver.fire(SYNC_TIMER)
    assert list(driver.group.members) == ["id-of-a"]
    assert driver.group.state is State.PREPARING_REBALANCE


def test_a_follower_that_joins_again_unchanged_is_told_the_same_and_a_leader_begins_anew() -> None:
    driver = Driver()
    leader, other = driver.stable()
    again = driver.join("again", other)
    assert (again.generation, again.members) == (1, ())
    assert driver.group.state is State.STABLE
    driver.join("lead", leader)
    assert driver.group.state is State.PREPARING_REBALANCE


def test_what_does_not_fit_the_generation_is_refused() -> None:
    driver = Driver()
    leader, _ = driver.stable()
    assert driver.heartbeat(leader, 7) == ErrorCode.ILLEGAL_GENERATION
    assert driver.sync("a", leader, generation=7).error_code == ErrorCode.ILLEGAL_GENERATION
    assert driver.sync("b", leader, protocol="sticky").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert driver.sync("c", "nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.sync("d", leader, protocol="range", protocol_type="consumer").error_code == 0


def test_an_assignment_that_cannot_be_written_is_not_handed_out() -> None:
    driver = Driver(delay_ms=10)
    driver.join("a")
    driver.join("b")
    driver.begin()
    driver.sync("sb", "id-of-b")
    driver.write_error = ErrorCode.NOT_COORDINATOR
    driver.sync("sa", "id-of-a", {"id-of-b": b"2"})
    assert driver.answers["sa"].error_code == driver.answers["sb"].error_code == ErrorCode.NOT_COORDINATOR
    assert driver.group.state is State.PREPARING_REBALANCE
    assert driver.group.members["id-of-b"].assignment == b""


def test_the_last_to_leave_writes_the_empty_group() -> None:
    driver = Driver()
    leader, other = driver.stable()
    assert driver.leave(other) == 0
    assert driver.leave(other) == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.leave(leader) == 0
    assert driver.group.state is State.EMPTY
    assert driver.written[-1]["members"] == []
    assert driver.written[-1]["protocol"] is None
    assert not driver.timers


def test_a_protocol_that_not_all_speak_is_not_taken() -> None:
    driver = Driver()
    driver.join("a", protocols=(("range", b""), ("sticky", b"")))
    for request, more in (("b", {"protocols": (("other", b""),)}), ("c", {"protocol_type": "connect"})):
        assert driver.join(request, **more).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert Driver().join("d", protocols=()).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    driver.join("e", protocols=(("sticky", b"s"),))
    driver.join("a2", "id-of-a", protocols=(("range", b"r2"), ("sticky", b"s2")))
    assert driver.answers["a2"].protocol == "sticky"


def test_a_full_group_takes_nobody() -> None:
    driver = Driver(max_size=2)
    driver.stable(2)
    assert driver.join("c").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


@pytest.mark.parametrize("skips", [False, True])
def test_a_static_member_comes_back_without_a_rebalance(skips: bool) -> None:
    driver = Driver()
    _, other = driver.stable(2, is_static=True)
    back = driver.join("back", instance_id="i1", skips_assignment=skips)
    assert (back.error_code, back.generation, back.member_id) == (0, 1, "id-of-back")
    assert driver.group.state is State.STABLE
    assert driver.timers[MEMBER_TIMER + "id-of-back"] == 100 and MEMBER_TIMER + other not in driver.timers
    assert driver.sync("s", "id-of-back", instance_id="i1").assignment == other.encode()
    code, _ = rebalance.heartbeat(driver.group, other, "i1", 1)
    assert code == ErrorCode.FENCED_INSTANCE_ID
    lead = driver.join("lead", instance_id="i0", skips_assignment=skips)
    assert lead.skips_assignment is skips
    assert (lead.leader == "id-of-lead") is skips, "one that cannot skip must not hand out assignments again"
    assert len(lead.members) == (2 if skips else 0)


def test_a_static_member_whose_return_cannot_be_written_has_not_returned() -> None:
    driver = Driver()
    driver.stable(2, is_static=True)
    driver.write_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.join("back", instance_id="i1").error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.group.instances["i1"] == "id-of-j1"
    assert MEMBER_TIMER + "id-of-j1" in driver.timers
    assert MEMBER_TIMER + "id-of-back" not in driver.timers


def test_a_static_member_that_returned_twice_keeps_its_instance_when_its_first_return_is_not_written() -> None:
    """In a replica set the record of the first return may fail after that of the second was written."""
    driver = Driver()
    driver.stable(2, is_static=True)
    again = rebalance.join(driver.group, joining("", new_id="again", instance_id="i1"), "again", driver.rules)
    [unsettled] = [one for one in again if isinstance(one, Write)]
    driver.run([one for one in again if one is not unsettled])
    assert driver.join("last", instance_id="i1").error_code == 0
    driver.run(unsettled.then(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    assert driver.answers["again"].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert driver.group.instances["i1"] == "id-of-last"
    assert driver.join("later", instance_id="i1").error_code == 0


def test_static_members_are_waited_for() -> None:
    driver = Driver()
    driver.stable(2, is_static=True)
    driver.join("new")
    driver.begin()
    assert sorted(driver.group.instances) == ["i0", "i1"], "they stay until their sessions end"
    assert driver.answers["new"].leader == "id-of-new"


def test_a_group_whose_static_members_all_stay_away_waits_for_them_once_more() -> None:
    driver = Driver()
    driver.stable(2, is_static=True)
    driver.join("new")
    assert driver.leave("id-of-new") == 0
    driver.fire(JOIN_TIMER)
    assert (driver.group.state, driver.group.generation) == (State.PREPARING_REBALANCE, 1)
    assert driver.timers[JOIN_TIMER] == 500
    for number in range(2):
        driver.join(f"back{number}", f"id-of-j{number}", instance_id=f"i{number}")
    assert {driver.answers[f"back{number}"].generation for number in range(2)} == {2}


def test_what_a_group_says_of_itself_makes_the_same_group() -> None:
    driver = Driver()
    driver.stable(2, is_static=True)
    again = ClassicGroup.of_fields("g", driver.group.fields(), 5)
    assert again.fields() == driver.group.fields()
    assert (again.state, again.instances) == (State.STABLE, driver.group.instances)
    assert again.state_ms == driver.group.state_ms


def test_who_waits_for_a_group_that_ends_is_answered() -> None:
    driver = Driver(delay_ms=10)
    driver.join("new", is_id_required=True)
    driver.join("a")
    driver.run(rebalance.disband(driver.group, ErrorCode.NOT_COORDINATOR, 0))
    assert (driver.answers["a"].error_code, driver.answers["a"].member_id) == (ErrorCode.NOT_COORDINATOR, "id-of-a")
    assert (driver.group.state, driver.timers) == (State.DEAD, {})


def test_who_waits_for_an_assignment_when_the_group_ends_is_answered() -> None:
    driver = Driver(delay_ms=10)
    driver.join("a")
    driver.join("b")
    driver.begin()
    driver.sync("s", "id-of-b")
    driver.run(rebalance.disband(driver.group, ErrorCode.NOT_COORDINATOR, 0))
    assert driver.answers["s"].error_code == ErrorCode.NOT_COORDINATOR
    assert (driver.group.state, driver.timers) == (State.DEAD, {})


def test_a_member_that_leaves_while_it_waits_for_the_others_is_answered() -> None:
    driver = Driver(delay_ms=10)
    driver.join("a")
    driver.join("b")
    assert driver.leave("id-of-a") == 0
    answer = driver.answers["a"]
    assert (answer.error_code, answer.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "")
    driver.begin()
    assert (driver.answers["b"].leader, list(driver.group.members)) == ("id-of-b", ["id-of-b"])


def test_a_static_member_that_speaks_another_protocol_starts_a_rebalance() -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    driver = Driver(delay_ms=10)
    for number in range(2):
        driver.join(f"j{number}", instance_id=f"i{number}", protocols=both)
    driver.begin()
    driver.sync("s0", "id-of-j0", {"id-of-j0": b"0", "id-of-j1": b"1"}, instance_id="i0")
    assert (driver.group.state, driver.group.protocol) == (State.STABLE, "range")
    assert driver.join("back", instance_id="i1", protocols=both[1:]) is None, "it waits for the others"
    assert driver.group.state is State.PREPARING_REBALANCE
    led = driver.join("again", "id-of-j0", instance_id="i0", protocols=both)
    back = driver.answers["back"]
    assert (back.error_code, back.member_id, back.generation, back.protocol) == (0, "id-of-back", 2, "sticky")
    assert led.members == (("id-of-j0", "i0", b"s"), ("id-of-back", "i1", b"s"))


def test_what_a_member_says_anew_when_it_joins_again_counts() -> None:
    driver = Driver()
    leader, other = driver.stable()
    news = {"protocols": (("range", b"more"),), "session_timeout_ms": 250, "rebalance_timeout_ms": 900}
    assert driver.join("again", other, client_id="d", client_host="/i", **news) is None
    assert driver.timers[JOIN_TIMER] == 900
    led = driver.join("lead", leader)
    assert led.members == ((leader, None, b"r"), (other, None, b"more"))
    assert driver.timers[MEMBER_TIMER + other] == 250
    member = driver.group.members[other]
    assert (member.client_id, member.client_host, member.session_timeout_ms) == ("d", "/i", 250)
    driver.sync("s", leader, {leader: b"0", other: b"1"})
    rows = {row["memberId"]: row for row in driver.written[-1]["members"]}
    assert (rows[other]["subscription"], rows[other]["assignment"], rows[other]["clientId"]) == (b"more", b"1", "d")


def test_a_static_member_leaves_by_its_instance_alone() -> None:
    driver = Driver()
    driver.stable(2, is_static=True)
    assert driver.leave("", "nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert driver.leave("id-of-j0", "i1") == ErrorCode.FENCED_INSTANCE_ID
    assert driver.leave("", "i1") == 0
    assert list(driver.group.members) == ["id-of-j0"] and driver.group.instances == {"i0": "id-of-j0"}


@pytest.mark.parametrize("is_handed_out", [False, True])
def test_the_session_of_who_waited_for_its_assignment_begins_anew_with_the_answer(is_handed_out: bool) -> None:
    driver = Driver(delay_ms=10)
    driver.join("a")
    driver.join("b")
    driver.begin()
    assert driver.sync("s", "id-of-b") is None
    driver.fire(MEMBER_TIMER + "id-of-b")
    assert MEMBER_TIMER + "id-of-b" not in driver.timers, "it waits: its session does not end"
    if is_handed_out:
        driver.sync("sa", "id-of-a", {"id-of-b": b"2"})
        assert (driver.answers["s"].error_code, driver.answers["s"].assignment) == (0, b"2")
    else:
        driver.join("c")
        assert driver.answers["s"].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert driver.timers[MEMBER_TIMER + "id-of-b"] == 100
