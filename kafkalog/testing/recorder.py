"""Recorded requests of a server or cluster, and assertions about them."""

from __future__ import annotations

import json
import os
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafkalog.testing.errors import ConditionNotMet
from kafkalog.util.closing import Closing

if TYPE_CHECKING:
    from kafkalog.testing.faults import Rules

_SHOWN = 40
"""Events in the text of a failed assertion, the last ones."""


class Request(NamedTuple):
    """A request when it arrived, or a mark of the test, which has only `api` and `time`.

    `time` is that of `time.monotonic()`; `topics` has each topic's partitions with the offset that was fetched from or
    committed, -1 for none.
    """

    time: float
    api: str
    node: int = -1
    version: int = -1
    client_id: str = ""
    connection: int = -1
    size_bytes: int = 0
    groups: tuple[str, ...] = ()
    transactional_ids: tuple[str, ...] = ()
    topics: dict[str, dict[int, int]] = {}

    def matches(
        self,
        api: str,
        client_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        node: int | None = None,
    ) -> bool:
        """Return True for a request of this API, or a mark of this name, that the other values fit as well."""
        return (
            self.api == api
            and client_id in (None, self.client_id)
            and node in (None, self.node)
            and (group is None or group in self.groups)
            and (topic is None or topic in self.topics)
            and (partition is None or any(partition in self.topics[one] for one in self.topics if topic in (None, one)))
        )

    def __str__(self) -> str:
        named = [f"{topic}-{index}" + (f"@{offset}" if offset >= 0 else "")
                 for topic, rows in self.topics.items() for index, offset in rows.items()]  # fmt: skip
        words = [self.api, *([f"of {self.client_id}"] if self.client_id else []), *self.groups, *named]
        return " ".join(words)


class Recorder(Closing):
    """Requests in the order of their arrival, between the start and the end of a `with` block.

    The nodes' own requests to each other are left out, unless `peers` was asked for.

    >>> from kafkalog.testing import kafka_server
    >>> with kafka_server(topics="orders") as server:
    ...     seen = server.record()
    ...     seen.mark("processed")  # clients run here
    ...     seen.mark("committed")
    ...     seen.assert_order("processed", "committed")
    ...     seen.assert_count("Fetch", 0, topic="orders")
    ...     seen.close()
    >>> seen.count("processed"), seen.of("Produce"), [one.api for one in seen.requests]
    (1, [], ['processed', 'committed'])
    """

    def __init__(self, rules: Rules, *, peers: bool = False) -> None:
        self._rules = rules
        self._marks: list[Request] = []
        self._lock = threading.Lock()
        descriptor, self._path = tempfile.mkstemp(prefix="requests-", dir=rules.folder)
        os.close(descriptor)
        self._kept: list[Request] | None = None
        try:
            self._number = rules.add_recorder(self._path, peers, self._keep)
        except BaseException:
            os.unlink(self._path)
            raise

    @property
    def requests(self) -> list[Request]:
        """Requests and marks so far, in the order of their times."""
        with self._lock:
            marks = list(self._marks)
        return sorted([*self._read(), *marks], key=lambda one: one.time)

    def mark(self, name: str) -> None:
        """Add an event of the test itself, such as "processed", to the requests. Threads: safe."""
        event = Request(time.monotonic(), name)
        with self._lock:
            self._marks.append(event)

    def of(self, api: str, **filters: Any) -> list[Request]:
        """Return the requests of an API, or the marks of a name; filters are those of `Request.matches`."""
        return [one for one in self.requests if one.matches(api, **filters)]

    def count(self, api: str, **filters: Any) -> int:
        """Return the number of such requests."""
        return len(self.of(api, **filters))

    def assert_count(self, api: str, count: int, **filters: Any) -> None:
        """Raise ConditionNotMet, an AssertionError, unless there were exactly that many such requests."""
        found = self.count(api, **filters)
        if found != count:
            raise ConditionNotMet(f"{found} requests {_text(api, filters)}, not {count}; {self._seen()}")

    def assert_order(self, first: str, then: str, **filters: Any) -> None:
        """Raise ConditionNotMet unless there is a `first`, and each `then` comes after one of its own.

        The filters apply to requests, not to marks.
        """
        names = {one.api for one in self._marks}
        ahead = 0
        seen = 0
        for one in self.requests:
            given = {} if one.api in names else filters
            if one.matches(first, **given):
                ahead += 1
                seen += 1
            elif one.matches(then, **given):
                ahead -= 1
            if ahead < 0:
                raise ConditionNotMet(f"a {then} came before its {first}; {self._seen()}")
        if not seen:
            raise ConditionNotMet(f"there was no {first}; {self._seen()}")

    def close(self) -> None:
        """End the recording; the requests stay available."""
        self._rules.end_recorder(self._number)

    def _keep(self) -> None:
        self._kept = self._read()
        os.unlink(self._path)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    def __len__(self) -> int:
        return len(self.requests)

    def _read(self) -> list[Request]:
        if self._kept is not None:
            return self._kept
        lines = Path(self._path).read_bytes().split(b"\n")[:-1]
        return [_request(json.loads(line)) for line in lines]

    def _seen(self) -> str:
        shown: Sequence[Request] = self.requests
        left = f"{len(shown) - _SHOWN} others, then " if len(shown) > _SHOWN else ""
        return f"seen: {left}{'; '.join(map(str, shown[-_SHOWN:])) or 'nothing'}"


def _request(row: dict[str, Any]) -> Request:
    topics = {name: dict(rows) for name, rows in row.pop("topics").items()}
    groups, transactional_ids = tuple(row.pop("groups")), tuple(row.pop("transactional_ids"))
    return Request(topics=topics, groups=groups, transactional_ids=transactional_ids, **row)


def _text(api: str, filters: dict[str, Any]) -> str:
    return " ".join([api, *(f"{name}={value!r}" for name, value in filters.items())])
