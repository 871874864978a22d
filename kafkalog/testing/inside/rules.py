"""The rules of one node: while there are any, requests pass through them before the server's own dispatch.

Without rules, the network calls the server directly. A rule that does not apply to a call costs a look-up of its API
and a search of the request's bytes for the rule's names. A Produce is not searched if an earlier one with the same
outline, the only part that rules examine, matched no rule.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog._core.messages.outline import PassedProduces
from kafkalog.server.requests.context import CLOSE, Connection
from kafkalog.server.wire.versions import API_VERSIONS, FETCH, PRODUCE, SHARE_FETCH
from kafkalog.testing.inside import answers
from kafkalog.testing.inside.requests import FLEXIBLE_PRODUCE, PRODUCE_BY_ID, Call, read_call
from kafkalog.testing.names import PEER_PREFIX

if TYPE_CHECKING:
    from kafkalog.server.net.connection import Result
    from kafkalog.server.serving import Server
    from kafkalog.testing.inside.clock import MovableTimers
    from kafkalog.testing.inside.counts import RuleCounts
    from kafkalog.testing.inside.recorder import Recorder

_PATTERN: Final = "*?"
_PEER: Final = PEER_PREFIX.encode()
_CLIENT_ID: Final = 10
"""Position of the client id in a request, after its length in two bytes."""
_LARGE_BYTES: Final = 4096


class Rule(NamedTuple):
    """A rule as the test gave it: the calls that it matches, which of them it changes, and how."""

    number: int
    keys: list[int] | None  # API keys; None for all
    client_id: str | None = None
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    transactional_id: str | None = None
    nth: int = 1
    times: int | None = None
    share: float = 1.0
    seed: str = ""
    error: int = 0
    applied: bool = False
    delay_ms: float = 0
    throttle_ms: int = 0
    way: str = ""  # "cut", "silent" or "close"
    newest: dict[str, int] | None = None  # API key, as text -> newest version offered
    peers: bool = False  # requests of other nodes count, too

    @property
    def wants_topics(self) -> bool:
        """True if the rule looks at topics or partitions."""
        return self.topic is not None or self.partition is not None


def fires(rule: Rule, matched: int, fired: int) -> bool:
    """Return True if the rule changes its `matched`-th call (from 1), after it changed `fired` others.

    The same seed gives the same calls of the same numbers, on whatever node they arrive.
    """
    if matched < rule.nth or (rule.times is not None and fired >= rule.times):
        return False
    return rule.share >= 1 or random.Random(f"{rule.seed}/{matched}").random() < rule.share


class ActiveRule:
    """A rule on this node: what its requests contain, and the requests that it holds."""

    def __init__(self, rule: Rule, server: Server) -> None:
        self.rule = rule
        self._server = server
        self.removed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        names = (rule.group, rule.transactional_id)
        self._texts = [one.encode() for one in names if one is not None and _is_exact(one)]
        self._topic = rule.topic.encode() if rule.topic is not None and _is_exact(rule.topic) else None
        self._client_id: bytes | None = None
        if rule.client_id is not None and _is_exact(rule.client_id):
            text = rule.client_id.encode()
            self._client_id = len(text).to_bytes(2, "big") + text

    def may_match(self, frame: bytearray) -> bool:
        """Return False if a search of the request's bytes shows that the rule does not match it."""
        rule = self.rule
        if not rule.peers and frame.startswith(_PEER, _CLIENT_ID):
            return False
        if self._client_id is not None and not frame.startswith(self._client_id, _CLIENT_ID - 2):
            return False
        for text in self._texts:
            if text not in frame:
                return False
        if self._topic is None or frame[1] in (FETCH, SHARE_FETCH) or len(frame) > _LARGE_BYTES:
            return True  # a session's topics are not in the request; a search of records costs more than reading
        if self._topic in frame:
            return True
        known = self._server.node.topics.get(rule.topic or "")
        return known is not None and known.id is not None and known.id.bytes in frame

    def matches(self, call: Call) -> bool:
        """Return True if the rule's filters accept the request."""
        rule = self.rule
        if not rule.peers and call.context.client_id.startswith(PEER_PREFIX):
            return False
        if rule.client_id is not None and not _fits(call.context.client_id, rule.client_id):
            return False
        if rule.group is not None and not any(_fits(one, rule.group) for one in call.groups()):
            return False
        if rule.transactional_id is not None:
            if not any(_fits(one, rule.transactional_id) for one in call.transactional_ids()):
                return False
        if not rule.wants_topics:
            return True
        for topic, partitions in call.topics().items():
            if rule.topic is None or _fits(topic, rule.topic):
                if rule.partition is None or rule.partition in partitions:
                    return True
        return False

    def is_meant(self, topic: str, partition: int) -> bool:
        """Return True if the rule is about this partition."""
        rule = self.rule
        return rule.partition in (None, partition) and (rule.topic is None or _fits(topic, rule.topic))


class NodeRules:
    """The active rules and recorders of one node. Used only in the loop's thread."""

    def __init__(self, server: Server, counts: RuleCounts, timers: MovableTimers) -> None:
        self._server = server
        self._counts = counts
        self._timers = timers
        self._inner = server.network.dispatch
        self._rules: list[ActiveRule] = []
        self._by_key: dict[int, list[ActiveRule]] = {}
        self._for_all: list[ActiveRule] = []
        self.recorders: dict[int, Recorder] = {}
        self.holding = 0
        """Number of requests that rules delay or leave unanswered."""
        self._passed = PassedProduces(FLEXIBLE_PRODUCE, PRODUCE_BY_ID, ())
        """Produce requests that no rule matches."""

    def add(self, rule: Rule) -> None:
        """Apply a rule from the next request on."""
        self._rules.append(ActiveRule(rule, self._server))
        self.update()

    def remove(self, number: int) -> None:
        """End a rule: connections with a request that it keeps unanswered are closed."""
        for one in [one for one in self._rules if one.rule.number == number]:
            self._rules.remove(one)
            one.removed.set_result(None)
        self.update()

    def update(self) -> None:
        """Dispatch requests through the rules if there are rules or recorders, else directly to the server."""
        self._for_all = [one for one in self._rules if one.rule.keys is None]
        keys = {key for one in self._rules for key in one.rule.keys or ()}
        self._by_key = {
            key: [one for one in self._rules if one.rule.keys is None or key in one.rule.keys] for key in keys
        }
        network = self._server.network
        if self.recorders:
            network.dispatch = self._handle
        elif self._rules:
            network.dispatch = self._matching()
        else:
            network.dispatch = self._inner

    def rebind(self, dispatch: Callable[[Connection, bytearray], Coroutine[object, None, Result]]) -> None:
        """Hand requests to another node of this process from now on."""
        self._inner = dispatch
        self.update()

    def _matching(self) -> Callable[[Connection, bytearray], Coroutine[object, None, Result]]:
        """Return the dispatch for these rules. Each request runs it, so it uses local names."""
        wanted = {one.rule.partition for one in self._rules if one.rule.partition is not None}
        by_key, for_all, inner, handle = self._by_key, self._for_all, self._inner, self._handle
        has_produce = bool(by_key.get(PRODUCE, for_all))
        self._passed = passed = PassedProduces(FLEXIBLE_PRODUCE, PRODUCE_BY_ID, wanted)

        def dispatch(connection: Connection, frame: bytearray) -> Coroutine[object, None, Result]:
            try:
                key = frame[1]  # all known calls have numbers below 256
            except IndexError:
                return inner(connection, frame)
            if has_produce and not key:
                return handle(connection, frame)
            for one in by_key.get(key, for_all):
                if one.may_match(frame):
                    return handle(connection, frame)
            return inner(connection, frame)

        def dispatch_unless_passed(connection: Connection, frame: bytearray) -> Coroutine[object, None, Result]:
            return inner(connection, frame) if frame in passed else dispatch(connection, frame)

        return dispatch_unless_passed if has_produce else dispatch

    def _pass(self, call: Call, frame: bytearray) -> None:
        """Remember that no rule matches a Produce with this outline, until the rules change."""
        outline = None if self.recorders else self._passed.outline(frame)
        names = self._server.node.topics
        ids = [getattr(one, "topic_id", None) for one in call.request.topic_data]
        if outline is None or any(one is not None and names.by_id(one) is None for one in ids):
            return  # the node may learn the topic's name later, and a rule may have it
        self._passed.add(outline)

    async def _handle(self, connection: Connection, frame: bytearray) -> Result:
        if connection.sasl is not None and connection.sasl.is_bare:
            return await self._inner(connection, frame)
        call = read_call(self._server.node, connection, frame)
        if call is None:
            return await self._inner(connection, frame)
        for recorder in self.recorders.values():
            recorder.record(call)
        matching = [one for one in self._by_key.get(call.api.key, self._for_all) if one.matches(call)]
        chosen = next((one for one in matching if self._counted(one.rule)), None)
        if chosen is None:
            if call.api.key == PRODUCE and not matching:
                self._pass(call, frame)
            del call  # its body holds views of the frame, which a handler may release
            return await self._inner(connection, frame)
        return await self._changed(chosen, call, connection, frame)

    def _counted(self, rule: Rule) -> bool:
        """Count a call that matches and return True if the rule changes it."""
        with self._counts.change() as write:
            matched, fired = self._counts.read(rule.number)
            is_fired = fires(rule, matched + 1, fired)
            write(rule.number, matched + 1, fired + is_fired)
        return is_fired

    async def _changed(self, active: ActiveRule, call: Call, connection: Connection, frame: bytearray) -> Result:
        rule = active.rule
        answer: Result = None
        if rule.delay_ms:
            await self._hold(self._delayed(rule.delay_ms))
        if rule.error:
            answer = answers.error_answer(self._server.node, call, rule.error, active.is_meant)
        if rule.applied or not (rule.error or rule.way in ("silent", "close")):
            call.request = None
            real = await self._inner(connection, frame)
            answer = answer if rule.error else real
        if rule.way == "silent":
            connection.may_cancel = True
            await self._hold(asyncio.shield(active.removed))
            return CLOSE
        if rule.way == "close":
            return CLOSE
        return await self._finished(rule, call, connection, answer)

    async def _finished(self, rule: Rule, call: Call, connection: Connection, answer: Result) -> Result:
        if not isinstance(answer, list):
            return answer
        if rule.newest is not None and call.api.key == API_VERSIONS:
            answer = answers.with_older_versions(call, answer, rule.newest)
        if rule.throttle_ms:
            connection.mute_until_ms = self._server.node.monotonic_ms() + rule.throttle_ms
            answer = answers.throttled(call, answer, rule.throttle_ms)
        if rule.way == "cut":
            await self._send_half(connection, answers.joined(answer))
            return CLOSE
        return answer

    async def _hold(self, end: Awaitable[None]) -> None:
        self.holding += 1
        try:
            await end
        finally:
            self.holding -= 1

    async def _delayed(self, delay_ms: float) -> None:
        is_over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self._timers.later(delay_ms, _set_done, is_over)
        try:
            await is_over
        finally:
            timer.cancel()

    async def _send_half(self, connection: Connection, answer: bytes) -> None:
        """Send the length of the whole response, and the first half of it."""
        channel = self._server.network.channels.get(connection.id)
        left = memoryview(len(answer).to_bytes(4, "big") + answer[: len(answer) // 2])
        while left and channel is not None and not channel.is_closed:
            try:
                left = left[channel.send_raw(left) :]
            except BlockingIOError:
                await asyncio.sleep(0.001)
            except OSError:
                return


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _is_exact(pattern: str) -> bool:
    return not set(pattern) & set(_PATTERN)


def _fits(text: str, pattern: str) -> bool:
    """Return True if the text fits the pattern, in which a bracket is a bracket."""
    return fnmatchcase(text, pattern.replace("[", "[[]"))


def rule_of(given: dict[str, Any]) -> Rule:
    """Return the rule that a test sent."""
    return Rule(**given)
