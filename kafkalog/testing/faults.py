"""Faults of a test: the calls that they match, their effects and their counts."""

from __future__ import annotations

import itertools
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal, Self

from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError
from kafkalog.testing.errors import FaultNeverMatched, FaultNeverMatchedWarning
from kafkalog.testing.inside.counts import SLOTS, RuleCounts
from kafkalog.testing.names import code_of, keys_of

Unmatched = Literal["warn", "error", "ignore"]
"""Report of a fault that ended without a matching call."""
Tell = Callable[[frozenset[int] | None, str, dict[str, Any]], None]
"""Sends a command to these nodes, None for all."""


class Fault:
    """A rule for calls, active until `remove()` or the end of its `with` block.

    `matched` is the number of calls that its filters accepted so far, `fired` how many of these it changed.

    >>> from kafkalog.testing import kafka_server
    >>> with kafka_server(unmatched="ignore") as server:
    ...     fault = server.fault("Produce", close=True, nth=3)
    ...     fault.remove()
    ...     fault.matched, fault.fired
    (0, 0)
    """

    def __init__(self, rules: Rules, number: int, text: str, nodes: Iterable[int] | None, rule: dict[str, Any]) -> None:
        self.number = number
        self.nodes = None if nodes is None else frozenset(nodes)
        self.rule = {**rule, "number": number}
        self.is_active = True
        self._rules = rules
        self._text = text
        self._counted = (0, 0)

    @property
    def matched(self) -> int:
        """Number of calls that it matched, on all nodes."""
        return self._counts()[0]

    @property
    def fired(self) -> int:
        """Number of calls that it changed."""
        return self._counts()[1]

    def _counts(self) -> tuple[int, int]:
        if self.is_active:
            self._counted = self._rules.counts_of(self.number)
        return self._counted

    def remove(self) -> None:
        """End the fault; connections with a request that it keeps unanswered are closed.

        If no call matched, warn with FaultNeverMatchedWarning or raise FaultNeverMatched, as `unmatched` says.
        """
        if self.is_active:
            self._end()
            self._rules.report((self,))

    def _end(self) -> None:
        self._counts()
        self.is_active = False
        self._rules.end(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.remove()
        elif self.is_active:  # the test has failed already, perhaps before any call
            self._end()

    def __repr__(self) -> str:
        state = "" if self.is_active else ", removed"
        return f"<Fault {self._text}: matched {self.matched}, fired {self.fired}{state}>"


class Rules:
    """The faults and recorders of one server or cluster; servers that start later get them, too. Threads: one."""

    def __init__(self, tell: Tell, folder: str, unmatched: Unmatched, seed: object) -> None:
        if unmatched not in ("warn", "error", "ignore"):
            raise IllegalArgument(f"unmatched={unmatched!r}", hint='use "warn", "error" or "ignore"')
        self.folder = folder
        descriptor, self.path = tempfile.mkstemp(prefix="rules-", dir=folder)
        os.close(descriptor)
        self._counts = RuleCounts(self.path)
        self._tell = tell
        self._unmatched = unmatched
        self._seed = str(seed)
        self._numbers = itertools.count(1)
        self._orders = itertools.count(1)  # since the last `clear`: a test's choices depend on no other test
        self._faults: dict[int, Fault] = {}
        self._recorders: dict[int, tuple[dict[str, Any], Callable[[], object]]] = {}

    def add(self, text: str, nodes: Iterable[int] | None, rule: dict[str, Any], *, is_reported: bool = True) -> Fault:
        """Start a fault on the running nodes, and on others when they start; after an error no node has it."""
        number = self._new_number()
        rule.setdefault("seed", f"{self._seed}/{next(self._orders)}")
        fault = Fault(self, number, text, nodes, rule)
        self._faults[number] = fault
        if not is_reported:
            fault.rule["is_reported"] = False
        try:
            self._tell(fault.nodes, "add_rule", _sent(fault))
        except BaseException:
            with suppress(KafkalogError):
                fault._end()
            raise
        return fault

    def add_recorder(self, path: str, peers: bool, on_end: Callable[[], object]) -> int:
        """Start a recorder into a file and return its number; `on_end` is called once nothing more is written.

        After an error there is no recorder.
        """
        number = self._new_number()
        given = {"number": number, "path": path, "peers": peers}
        self._recorders[number] = given, on_end
        try:
            self._tell(None, "record", given)
        except BaseException:
            del self._recorders[number]
            with suppress(KafkalogError):
                self._tell(None, "end_record", {"number": number})
            raise
        return number

    def end_recorder(self, number: int) -> None:
        """End a recorder."""
        found = self._recorders.pop(number, None)
        if found is not None:
            try:
                self._tell(None, "end_record", {"number": number})
            finally:
                found[1]()

    def commands_for(self, node_id: int) -> list[tuple[str, dict[str, Any]]]:
        """Return the commands that give a starting node the active faults and recorders."""
        faults = [one for one in self._faults.values() if one.nodes is None or node_id in one.nodes]
        rules: list[tuple[str, dict[str, Any]]] = [("add_rule", _sent(one)) for one in faults]
        return rules + [("record", one) for one, _ in self._recorders.values()]

    def counts_of(self, number: int) -> tuple[int, int]:
        """Return how many calls a fault matched, and how many it changed."""
        return self._counts.read(number)

    @contextmanager
    def none_counting(self) -> Iterator[None]:
        """Keep all nodes from counting during the block: one paused inside a count would block the others."""
        with self._counts.change():
            yield

    def end(self, fault: Fault) -> None:
        """End a fault on all nodes."""
        self._faults.pop(fault.number, None)
        self._tell(fault.nodes, "remove_rule", {"number": fault.number})

    def clear(self, *, reports: bool = True) -> None:
        """End all faults and recorders; with `reports`, report the faults that never matched."""
        ended = list(self._faults.values())
        self._orders = itertools.count(1)
        with ExitStack() as ending:  # all of them, even if a server does not answer
            if reports:
                ending.callback(self.report, ended)
            for number in self._recorders:
                ending.callback(self.end_recorder, number)
            for fault in reversed(ended):
                ending.callback(fault._end)

    def report(self, faults: Iterable[Fault]) -> None:
        """Warn of faults that never matched, or raise FaultNeverMatched."""
        texts = [repr(one) for one in faults if not one.matched and one.rule.get("is_reported", True)]
        if not texts or self._unmatched == "ignore":
            return
        text = f"no call matched: {', '.join(texts)}"
        if self._unmatched == "error":
            raise FaultNeverMatched(text, hint="check the names of API, topic, group and client id")
        warnings.warn(text, FaultNeverMatchedWarning, stacklevel=4)

    def close(self) -> None:
        """Remove the file of counts."""
        self._counts.close()
        with suppress(FileNotFoundError):
            os.unlink(self.path)

    def _new_number(self) -> int:
        number = next(self._numbers)
        if number >= SLOTS:
            raise IllegalState(f"at most {SLOTS - 1} faults fit one server", hint="start another server")
        return number


def _sent(fault: Fault) -> dict[str, Any]:
    return {name: value for name, value in fault.rule.items() if name != "is_reported"}


def rule_of(
    api: str | Iterable[str],
    *,
    error: str | int | None,
    way: str,
    applied: bool,
    nth: int | None,
    times: int | None,
    share: float,
    **more: Any,
) -> dict[str, Any]:
    """Check the arguments of a fault and return the rule to send. IllegalArgument."""
    if nth is not None and nth < 1 or times is not None and times < 1:
        raise IllegalArgument(f"nth={nth}, times={times}", hint="calls are counted from 1")
    if not 0 < share <= 1:
        raise IllegalArgument(f"share={share!r}", hint="use a number above 0, at most 1")
    if error is not None and way:
        raise IllegalArgument(f"a call is answered with an error or by {way}=True, not both", hint="add two faults")
    if error is None and not way and not more.get("delay_ms") and not more.get("throttle_ms"):
        raise IllegalArgument("the fault does nothing", hint="give error, delay_ms, throttle_ms, cut, silent or close")
    return {
        "keys": keys_of(api), "error": 0 if error is None else code_of(error), "way": way, "applied": applied,
        "nth": nth or 1, "times": 1 if nth is not None and times is None else times, "share": share, **more,
    }  # fmt: skip
