"""Recorded requests sent to our server, its answers laid beside those of the broker.

A scenario's requests go out in the order in which the broker saw them, each over the connection it came on, and not
before the answers that the client had by then. Values that a broker chooses (ids of producers, members, topics and
sessions) are learned from the answers and put into the requests that follow.
"""

import asyncio
import contextlib
import gzip
import json
import random
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import crc32c

from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.wire.definitions import FieldPlan, StructPlan, request_plan, response_plan
from kafkalog.server.wire.header import read_header, response_header
from kafkalog.server.wire.reader import read_response
from kafkalog.server.wire.versions import API_VERSIONS, APIS, METADATA
from kafkalog.server.wire.writer import write_request
from tests.raw_batches import batch
from tests.wire_cases import Frame, as_tree, frames, read_request

BATCH_HEADER_BYTES: Final = 61
PRODUCE, CREATE_TOPICS = 0, 19
ANSWER_S: Final = 30
"""How long an answer may take; the longest wait that a recorded request asks for is 0.5 s."""

# what the recorded broker was set to; the numbers of partitions keep the directories small
SETTINGS: Final = {
    "listeners": "PLAINTEXT://127.0.0.1:0",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "auto.create.topics.enable": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
}
FILLED: Final = {
    "assign", "group", "group848", "txn", "offsets", "admin_topics", "admin_groups", "admin_txns", "console_consumer",
    "consumer_perf", "get_offsets", "consumer_groups", "verifiable_consumer", "delete_records", "share_consumer",
    "console_consumer848",
}  # fmt: skip
"""The scenarios whose topic held records when they began."""

IDS: Final = {
    "member_id": "member", "leader": "member", "topic_id": "topic", "producer_id": "producer", "session_id": "session",
    "v3_and_below_producer_id": "producer", "producer_id_filters": "producer",
}  # fmt: skip
"""Fields whose values the broker chooses; what is equal in the recording is equal in our answers, too."""
NOT_CHOSEN: Final = {"member": ("",), "topic": (None,), "producer": (-1,), "session": (0,)}
OF_THE_MOMENT: Final = {
    "throttle_time", "host", "port", "cluster_id", "log_append_time", "start_timestamp", "transaction_start_time",
    "last_timestamp", "api_keys", "supported_features", "finalized_features", "finalized_features_epoch", "log_dir",
    "total_bytes", "usable_bytes",
}  # fmt: skip
"""Fields that hold another value in each run, and the table of versions, which has a test of its own."""
TEXTS: Final = {"error_message", "documentation"}
NAMING: Final = (
    "name", "topic", "partition_index", "partition", "index", "group_id", "transactional_id", "resource_type",
    "resource_name", "principal", "operation", "broker_id", "node_id", "leader_epoch",
)  # fmt: skip
"""Fields that say which element of an array one is: the order of most arrays is that of a hash table."""
LISTINGS: Final = {3: "topics", 16: "groups", 29: "resources", 48: "entries", 61: "topics", 66: "transaction_states",
                   74: "config_resources", 75: "topics"}  # fmt: skip
"""Calls that tell of all there is, and the array: other scenarios ran on the same broker."""


@dataclass(frozen=True)
class Scenario:
    """The recorded steps of one client."""

    name: str
    topic: str
    records: int
    value_size: int
    seed: int
    connections: dict[int, int]
    """The connection of each request, by its place in the order."""
    answered: dict[int, int]
    """The place in the order of each answer, by that of its request."""
    frames: list[Frame]

    @property
    def prefix(self) -> str:
        """Prefix of the scenario's topics and groups."""
        return self.topic.removesuffix("-t") if self.is_sweep else self.topic

    @property
    def is_sweep(self) -> bool:
        """Return True if the scenario created its topics itself."""
        return self.name.startswith("sweep-")

    @property
    def is_filled(self) -> bool:
        """Return True if its topic held records."""
        return self.name.partition("-")[2] in FILLED


def read_scenario(path: Path) -> Scenario:
    """The scenario of a file."""
    with gzip.open(path) as file:
        raw = json.load(file)
    connections = {one["seq"]: one["conn"] for one in raw["frames"]}
    answered = {one["seq"]: one["rseq"] for one in raw["frames"] if "rseq" in one}
    return Scenario(
        f"{raw['client']}-{raw['scenario']}", raw["topic"], raw["records"] or 0, raw["value_size"] or 0,
        raw["seed"] or 0, connections, answered, list(frames(path)),
    )  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """A place where the server's answer differs from the broker's."""

    frame: Frame
    where: str
    ours: Any
    theirs: Any

    @property
    def call(self) -> str:
        """The call's name, as kio has it."""
        return APIS[self.frame.key].name

    def __str__(self) -> str:
        note = f" ({self.frame.note})" if self.frame.note else ""
        at = f"{self.frame.scenario} #{self.frame.seq} {self.call} v{self.frame.version}{note}{self.where}"
        return f"{at}: {_short(self.ours)}; the broker: {_short(self.theirs)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 160 else text[:157] + "..."


@dataclass
class Chosen:
    """Values that the broker chose in the recording, mapped to the server's."""

    ours: dict[tuple[str, Any], Any] = field(default_factory=dict)

    def agrees(self, kind: str, ours: Any, theirs: Any) -> bool:
        """Return True if the server's value stands for the broker's; the first pair is accepted as it comes."""
        if theirs in NOT_CHOSEN[kind] or ours in NOT_CHOSEN[kind]:
            return bool(ours == theirs)
        return bool(self.ours.setdefault((kind, theirs), ours) == ours)

    def of(self, kind: str, theirs: Any) -> Any:
        """Ours for theirs, which stays what it is where it was not chosen by the broker."""
        return self.ours.get((kind, theirs), theirs)


class Replay:
    """One scenario, sent to the server on a port of this machine."""

    def __init__(self, recorded: Scenario, port: int) -> None:
        self._recorded = recorded
        self._port = port
        self._chosen = Chosen()
        self._links: dict[int, Link] = {}
        self.differences: list[Difference] = []
        self.compared = 0

    async def run(self) -> None:
        """Sends and compares everything."""
        recorded = self._recorded
        steps: list[tuple[int, Callable[[Frame], Any], Frame]] = []
        for frame in recorded.frames:
            steps.append((frame.seq, self._send, frame))
            if frame.seq in recorded.answered:
                steps.append((recorded.answered[frame.seq], self._compare, frame))
        try:
            for _, step, frame in sorted(steps, key=lambda one: one[0]):
                await step(frame)
        finally:
            for link in self._links.values():
                await link.close()

    async def _send(self, frame: Frame) -> None:
        number = self._recorded.connections[frame.seq]
        link = self._links.get(number)
        if link is not None and link.is_closed:
            await link.close()
        if link is None or link.is_closed:
            self._links[number] = link = await Link.to(self._port)
        link.send(frame.correlation_id, rewrite_request(frame, self._chosen))
        if frame.closed:
            self.compared += 1
            if not await link.ends():
                self.differences.append(Difference(frame, "", "the connection stays", "closes the connection"))

    async def _compare(self, frame: Frame) -> None:
        assert frame.response is not None
        self.compared += 1
        answer = await self._answer(frame)
        if answer is None:
            self.differences.append(Difference(frame, "", "no answer", "answers"))
            return
        if not frame.is_served:
            if answer != frame.response:
                self.differences.append(Difference(frame, "", answer.hex(), frame.response.hex()))
            return
        theirs = read_response(frame.key, frame.version, frame.response, frame.response_start)
        try:
            ours = read_response(frame.key, frame.version, answer, frame.response_start)
        except Exception as problem:
            self.differences.append(Difference(frame, "", problem, "a response of that version"))
            return
        head = len(response_header(frame.key, frame.version, 0))
        assert answer[:head] == frame.response[:head], frame
        plan = response_plan(frame.key, frame.version)
        for where, our_value, their_value in self._differences(frame, plan, ours, theirs):
            self.differences.append(Difference(frame, where, our_value, their_value))

    async def _answer(self, frame: Frame) -> bytes | None:
        """Return the answer. Retry while the coordinator loads, as clients do, unless the broker's had that error.

        Retry also while the server creates a topic that the broker had created.
        """
        link, until = self._links[self._recorded.connections[frame.seq]], time.monotonic() + ANSWER_S
        while True:
            answer = await link.answer(frame.correlation_id)
            is_early = any(one(frame, answer) and not one(frame, frame.response) for one in (_is_loading, _is_making))
            if not is_early or time.monotonic() > until:
                return answer
            await asyncio.sleep(0.05)
            link.send(frame.correlation_id, rewrite_request(frame, self._chosen))

    def _differences(self, frame: Frame, plan: StructPlan, ours: Any, theirs: Any) -> Iterator[tuple[str, Any, Any]]:
        listing = LISTINGS.get(frame.key)
        if listing is not None:
            own = [one for one in getattr(theirs, listing) if self._is_own(one)]
            mine = [one for one in getattr(ours, listing) if self._is_own(one)]
            theirs, ours = theirs._replace(**{listing: tuple(own)}), ours._replace(**{listing: tuple(mine)})
        yield from find_differences(plan, ours, theirs, self._chosen, "")

    def _is_own(self, one: Any) -> bool:
        # an element without a name is one that was asked for by its id
        names = [getattr(one, name, None) for name in ("name", "group_id", "resource_name", "transactional_id")]
        names += [part.entity_name for part in getattr(one, "entity", ())]
        named = [name for name in names if name is not None]
        return not named or any(name.startswith(self._recorded.prefix) for name in named) or names[0] == ""


def _is_loading(frame: Frame, answer: bytes | None) -> bool:
    if answer is None or not frame.is_served:
        return False
    with contextlib.suppress(Exception):  # an unreadable answer is compared and reported there
        read = read_response(frame.key, frame.version, answer, frame.response_start)
        return getattr(read, "error_code", 0) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return False


def _is_making(frame: Frame, answer: bytes | None) -> bool:
    if answer is None or not frame.is_served or frame.key != METADATA:
        return False
    with contextlib.suppress(Exception):
        topics = read_response(frame.key, frame.version, answer, frame.response_start).topics
        return any(one.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in topics)
    return False


class Link:
    """A connection; answers are found by the number of their request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answers: dict[int, bytes] = {}
        self.is_closed = False

    @classmethod
    async def to(cls, port: int) -> "Link":
        """Connects to a port of this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    def send(self, correlation_id: int, request: bytes) -> None:
        """Sends a request, header and all. An answer to an earlier one of that number is forgotten."""
        self._answers.pop(correlation_id, None)
        self._writer.write(struct.pack(">i", len(request)) + request)

    async def answer(self, correlation_id: int) -> bytes | None:
        """The answer to a request; None where it does not come in time or the connection ends."""
        try:
            async with asyncio.timeout(ANSWER_S):
                while correlation_id not in self._answers:
                    (size,) = struct.unpack(">i", await self._reader.readexactly(4))
                    one = await self._reader.readexactly(size)
                    self._answers[struct.unpack_from(">i", one)[0]] = one
        except (asyncio.IncompleteReadError, ConnectionError):
            self.is_closed = True
        except TimeoutError:
            pass
        return self._answers.pop(correlation_id, None)

    async def ends(self) -> bool:
        """Return True if the server closes the connection; skip what it still sends."""
        with contextlib.suppress(TimeoutError, ConnectionError):
            async with asyncio.timeout(ANSWER_S):
                while await self._reader.read(1 << 16):
                    pass
        self.is_closed = self._reader.at_eof() or self._reader.exception() is not None
        return self.is_closed

    async def close(self) -> None:
        """Gives it up."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()


def rewrite_request(frame: Frame, chosen: Chosen) -> bytes:
    """A request with our server's choices in the place of the broker's; the bytes as they were where none is in it."""
    if frame.request_decoded is None or not frame.is_served or frame.key == API_VERSIONS:
        return bytes(frame.request)
    start = read_header(frame.request).body
    message = read_request(frame.key, frame.version, frame.request, start)
    tree = _with_ours(request_plan(frame.key, frame.version), message, chosen)
    if tree == as_tree(message):
        return bytes(frame.request)
    return bytes(frame.request[:start]) + write_request(frame.key, frame.version, tree)


def _with_ours(plan: StructPlan, message: Any, chosen: Chosen) -> Any:
    tree = {}
    for one in (*plan.plain, *plan.tagged):
        value = getattr(message, one.name)
        if one.struct is not None and value is not None:
            struct_ = one.struct
            value = [_with_ours(struct_, item, chosen) for item in value] if one.is_array else _with_ours(
                struct_, value, chosen)  # fmt: skip
        elif one.is_array and value is not None:
            value = [chosen.of(IDS.get(one.name, ""), item) for item in value]
        elif one.name in IDS:
            value = chosen.of(IDS[one.name], value)
        elif one.kind == "records" and value is not None:
            value = with_our_producers(bytes(value), chosen)
        tree[one.name] = value
    return tree


def with_our_producers(records: bytes, chosen: Chosen) -> bytes:
    """Batches with the ids of producers that our server gave; what is no whole batch stays as it is."""
    out, position = bytearray(records), 0
    while position + BATCH_HEADER_BYTES <= len(out) and out[position + 16] == 2:
        size = 12 + struct.unpack_from(">i", out, position + 8)[0]
        (theirs,) = struct.unpack_from(">q", out, position + 43)
        ours = chosen.of("producer", theirs)
        if ours != theirs and position + size <= len(out):
            struct.pack_into(">q", out, position + 43, ours)
            struct.pack_into(">I", out, position + 17, crc32c.crc32c(bytes(out[position + 21 : position + size])))
        position += size
    return bytes(out)


def find_differences(
    plan: StructPlan, ours: Any, theirs: Any, chosen: Chosen, where: str
) -> Iterator[tuple[str, Any, Any]]:
    """Place, our value and theirs, wherever two messages differ in more than what each run has of its own."""
    for one in (*plan.plain, *plan.tagged):
        if one.name in OF_THE_MOMENT:
            continue
        mine, other, at = getattr(ours, one.name), getattr(theirs, one.name), f"{where}.{one.name}"
        if mine is None or other is None:
            if mine is not other:
                yield at, mine, other
        elif one.is_array:
            yield from _array(one, mine, other, chosen, at)
        elif one.struct is not None:
            yield from find_differences(one.struct, mine, other, chosen, at)
        elif not _same(one, mine, other, chosen):
            yield at, mine, other


def _same(plan: FieldPlan, ours: Any, theirs: Any, chosen: Chosen) -> bool:
    if plan.name in IDS and plan.kind in ("string", "uuid", "int64", "int32"):
        return chosen.agrees(IDS[plan.name], ours, theirs) if plan.name != "leader" or plan.kind == "string" else (
            bool(ours == theirs))  # fmt: skip
    if plan.kind == "records":
        return (len(ours) > 0) == (len(theirs) > 0)
    return plan.name in TEXTS or bool(ours == theirs)


def _array(plan: FieldPlan, ours: Any, theirs: Any, chosen: Chosen, where: str) -> Iterator[tuple[str, Any, Any]]:
    if plan.struct is None:
        if sorted(ours) != sorted(theirs):
            yield where, list(ours), list(theirs)
        return
    mine = _by_name(ours, lambda kind, value: value)
    others = _by_name(theirs, chosen.of)
    if mine is None or others is None or not mine.keys() & others.keys():
        if len(ours) != len(theirs):
            yield where, f"{len(ours)} elements", f"{len(theirs)} elements"
        for index, (one, other) in enumerate(zip(ours, theirs, strict=False)):
            yield from find_differences(plan.struct, one, other, chosen, f"{where}[{index}]")
        return
    for name in [*others, *(one for one in mine if one not in others)]:
        at = f"{where}[{'/'.join(map(str, name))}]"
        if name not in mine or name not in others:
            yield at, "there" if name in mine else "absent", "there" if name in others else "absent"
        else:
            yield from find_differences(plan.struct, mine[name], others[name], chosen, at)


def _by_name(items: Any, ours: Callable[[str, Any], Any]) -> dict[tuple[Any, ...], Any] | None:
    """The elements by what names them; None where nothing does, or not each of them."""
    found = {}
    for item in items:
        given = {one: getattr(item, one) for one in item._fields}
        name = tuple(given[one] for one in NAMING if given.get(one) is not None)
        chosen = tuple(ours(kind, given[one]) for one, kind in IDS.items() if one in given)
        found[name or chosen] = item
    return found if len(found) == len(items) and () not in found else None


def recorded_records(recorded: Scenario) -> list[tuple[int, int, bytes, bytes]]:
    """Return the topic's records when the scenario began: partition, timestamp, key and value of each."""
    rows = []
    for number in range(recorded.records if recorded.is_filled else 0):
        letters = random.Random(recorded.seed * 1000 + number)
        value = bytes(letters.choice(b"abcdefghij ") for _ in range(recorded.value_size))
        rows.append((number % 2, 1000 * number + 1, b"k%d" % number, value))
    return rows


async def prepare_topic(recorded: Scenario, port: int) -> None:
    """Makes the scenario's topic as it was when the client began; the sweep makes its own."""
    if recorded.is_sweep:
        return
    link = await Link.to(port)
    topic = {"name": recorded.topic, "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    made = await _asked(link, CREATE_TOPICS, 7, {"topics": [topic], "timeout": 5000, "validate_only": False})
    assert made.topics[0].error_code == 0, made
    for index, timestamp, key, value in recorded_records(recorded):
        records = batch(0, [(timestamp, key, value)])
        data = [{"name": recorded.topic, "partition_data": [{"index": index, "records": records}]}]
        tree = {"transactional_id": None, "acks": -1, "timeout": 5000, "topic_data": data}
        answer = await _asked(link, PRODUCE, 9, tree)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
    await link.close()


async def _asked(link: Link, key: int, version: int, tree: dict[str, Any]) -> Any:
    head = struct.pack(">hhih", key, version, 1, -1) + (b"\0" if APIS[key].is_flexible(version) else b"")
    link.send(1, head + write_request(key, version, tree))
    answer = await link.answer(1)
    assert answer is not None, (APIS[key].name, "no answer")
    return read_response(key, version, answer, len(response_header(key, version, 1)))
