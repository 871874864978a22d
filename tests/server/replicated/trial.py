"""One trial of a replica set: clients write and read while nodes and links fail, and the checker looks at all of it.

What happens is drawn from the seed; when it happens to a client is up to the machine, so a finding is replayed by its
history (`soak.py --check DIRECTORY`), and sought again by its seed.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.server.replicated.apart import Apart
from tests.server.replicated.checker import (
    OK,
    UNKNOWN,
    Fault,
    Key,
    Operation,
    Poll,
    Position,
    check,
    from_line,
    to_line,
)
from tests.server.replicated.clients import (
    LIBRDKAFKA,
    AioKafkaReader,
    AioKafkaWriter,
    Client,
    LibrdkafkaReader,
    LibrdkafkaWriter,
)
from tests.server.replicated.cluster import NODES, Cluster, complaints, copies_of
from tests.server.replicated.proxy import CLIENT, Condition
from tests.server.replicated.transacting import GroupReader, TransactionalWriter

SAFE, QUICK, WHOLE = "safe", "quick", "whole"
TOPICS: Final = {SAFE: 2, QUICK: 2, WHOLE: 2}
"""`whole` has transactions."""
MIN_ISR: Final = {SAFE: 2, QUICK: 1, WHOLE: 2}
PROGRESS: Final = 15
"""Records that each topic's writers must have acknowledged after each heal."""
DEADLINE_S: Final = 240
HISTORY: Final = "history.jsonl"


class Result(NamedTuple):
    """The result of a trial: `findings` are what no promise allows, `counts` the events, `slowest_s` the
    longest time that it took after a heal until all writers went on."""

    seed: int
    findings: list[str]
    counts: Counter[str]
    slowest_s: float = 0

    def __str__(self) -> str:
        outcomes = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        slowest = f"whole again in {self.slowest_s:.1f} s at most"
        return f"seed {self.seed}: {outcomes}; {slowest}; findings: {self.findings or 'none'}"


def is_allowed(fault: Fault, *, is_forced: bool) -> bool:
    """Return True if docs/replication.md allows the fault.

    Without forced leaders, only records acknowledged with acks=1 may be lost, and no record that was read
    vanishes, whatever `min.insync.replicas` is. Replicas never differ at the end, and no read returns an
    unwritten record. A forced leader may lack the end of a transaction, which is then the next one's.
    """
    if fault.kind in ("divergent", "never written"):
        return False
    if fault.kind == "aborted":
        return is_forced and fault.key[0] == WHOLE
    return is_forced or fault.acks == 1


class Trial:
    """Three nodes, their clients, and what befalls them; `run` is all of it."""

    def __init__(self, directory: Path, seed: int, *, is_forced: bool = False) -> None:
        self.directory = directory
        self.seed = seed
        self.is_forced = is_forced
        self.history: list[Operation] = []
        self.counts: Counter[str] = Counter()
        self.findings: list[str] = []
        self._chance = random.Random(seed)
        self._begin = time.monotonic()
        self._slowest_s = 0.0
        self._cluster = Cluster(directory, seed)
        self._clients: list[Client] = []

    def run(self, seconds: float) -> Result:
        with self._cluster as cluster:
            try:
                self._begin_work()
                end = time.monotonic() + seconds
                while time.monotonic() < end and not self.findings:
                    self._step()
                self._settle()
                self._end_clients()
                self._catch_up()
            except Stuck as stuck:
                self.findings.append(str(stuck))
                self._end_clients(is_patient=False)
            self.counts["kills"] = cluster.kills
            for node in NODES:
                self._end_node(node)
        self._judge()
        return Result(self.seed, self.findings, self.counts, self._slowest_s)

    def _note(self, words: str) -> None:
        with (self.directory / "trial.log").open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%H:%M:%S')} {time.monotonic() - self._begin:8.3f} {words}\n")

    # Clients

    def _begin_work(self) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        self._until(lambda: len(self._cluster.states()) == len(NODES), "the nodes do not start")
        self._lead(self._chance.choice(NODES))
        admin = AdminClient({**LIBRDKAFKA, "bootstrap.servers": self._cluster.bootstrap})
        made = admin.create_topics([
            NewTopic(name, count, 3, config={"min.insync.replicas": str(MIN_ISR[name])})
            for name, count in TOPICS.items()
        ], request_timeout=DEADLINE_S)  # fmt: skip
        for future in made.values():
            future.result()
        # followers have a topic a moment after it was made; what is promoted before may have none
        there = [self._cluster.data_of(node) / f"{name}-{index}" for node in NODES for name in TOPICS
                 for index in range(TOPICS[name])]  # fmt: skip
        self._until(lambda: all(path.is_dir() for path in there), "the topics do not come")
        safe, quick = {SAFE: TOPICS[SAFE]}, {QUICK: TOPICS[QUICK]}
        self._clients = [
            self._client(LibrdkafkaWriter, "librdkafka", safe, acks=-1, is_idempotent=True),
            self._client(AioKafkaWriter, "aiokafka", safe),
            self._client(LibrdkafkaWriter, "one-ack", safe, acks=1, is_idempotent=False),
            self._client(LibrdkafkaWriter, "no-ack", quick, acks=0, is_idempotent=False),
            self._client(LibrdkafkaWriter, "quick", quick, acks=-1, is_idempotent=True),
            self._client(TransactionalWriter, "transactions", {WHOLE: TOPICS[WHOLE]}),
            self._client(LibrdkafkaReader, "reader", TOPICS),
            self._client(GroupReader, "group", {SAFE: TOPICS[SAFE], WHOLE: TOPICS[WHOLE]}),
            self._client(AioKafkaReader, "aioreader", safe),
        ]

    def _client(self, kind: type[Client], name: str, topics: Mapping[str, int], **options: Any) -> Client:
        where = self._cluster.bootstrap
        client = Apart(kind, name, where, topics, self.history, self.directory, **options)
        client.start()
        return client

    def _end_clients(self, *, is_patient: bool = True) -> None:
        for some in ([one for one in self._clients if one.is_writer is is_writer] for is_writer in (True, False)):
            for client in some:
                client.is_over.set()
            for client in some:
                client.join(DEADLINE_S * 2 if is_patient else 5)
                if client.is_alive() and is_patient:
                    self.findings.append(f"{client.name} does not end")
        for client in self._clients:
            if client.failure is not None:
                self.findings.append(f"{client.name} failed: {client.failure!r}")
            for what, count in client.outcomes.items():
                self.counts[f"{client.name} {what}"] += count
            if not self.is_forced and any("refused" in what or "fatal" in what for what in client.outcomes):
                self.findings.append(f"{client.name} got {dict(client.outcomes)}")

    # What befalls the set

    def _step(self) -> None:
        does = self._chance.choices(*zip(*STEPS, strict=True))[0]
        self.counts[does.__name__] += 1
        does(self)
        if self._chance.random() < 0.7:
            self._settle()

    def _hold(self, least_s: float, most_s: float) -> None:
        time.sleep(self._chance.uniform(least_s, most_s))

    def kill(self) -> None:
        """One node ends at once, and comes back."""
        node = self._chance.choice(NODES)
        self._note(f"kill {node}")
        self._cluster.kill(node)
        self._hold(0, 1.5)
        self._cluster.start(node)

    def kill_all(self) -> None:
        """All nodes end at once."""
        self._note("kill all")
        for node in self._chance.sample(NODES, 3):
            self._cluster.kill(node)
        for node in self._chance.sample(NODES, 3):
            self._hold(0, 0.5)
            self._cluster.start(node)

    def leader_dies(self) -> None:
        """The leader ends, another one is promoted, and the old one comes back."""
        old = self._cluster.leader() or self._chance.choice(NODES)
        self._note(f"the leader {old} dies")
        self._cluster.kill(old)
        self._hold(0, 1)
        for node in self._chance.sample([one for one in NODES if one != old], 2):
            if self._promote(node):
                break
        self._hold(0, 2)
        self._cluster.start(old)

    def isolate(self) -> None:
        """No other node reaches one, and it reaches none; clients do, as they will."""
        node = self._cluster.leader() if self._chance.random() < 0.6 else 0
        node = node or self._chance.choice(NODES)
        how = Condition(self._chance.choice(["reset", "hole"]))
        self._note(f"isolate {node} by {how.cut}")
        for other in NODES:
            if other != node:
                self._cut(node, other, how)
                self._cut(other, node, how)
        if self._chance.random() < 0.3:
            self._cut(CLIENT, node, how)
        self._hold(0.2, 4)
        if self._chance.random() < 0.7:
            self._promote(self._chance.choice([one for one in NODES if one != node]))
            self._hold(0, 2)

    def _cut(self, source: int, target: int, how: Condition) -> None:
        self.counts["links cut"] += 1
        self._cluster.proxy.set(source, target, how)

    def cut_links(self) -> None:
        """Some links are cut, each in its own way."""
        for source in (CLIENT, *NODES):
            for target in NODES:
                if source != target and self._chance.random() < 0.3:
                    how = Condition(self._chance.choice(["reset", "hole", "mute"]))
                    self._note(f"cut {source} to {target}: {how.cut}")
                    self._cut(source, target, how)
        self._hold(0.2, 4)

    def delay(self) -> None:
        """Some links are slow."""
        for source in (CLIENT, *NODES):
            for target in NODES:
                if source != target and self._chance.random() < 0.5:
                    slow = Condition("", self._chance.uniform(0, 0.1), self._chance.uniform(0, 0.2),
                                     self._chance.choice([0, 20_000, 200_000]))  # fmt: skip
                    self._cluster.proxy.set(source, target, slow)
        self._note("delay")
        self._hold(0.5, 3)

    def pause(self) -> None:
        """A node stands still; perhaps another one is promoted meanwhile."""
        node = self._cluster.leader() if self._chance.random() < 0.6 else 0
        node = node or self._chance.choice(NODES)
        self._note(f"pause {node}")
        self._cluster.pause(node)
        self._hold(0.2, 4)
        if self._chance.random() < 0.5:
            self._promote(self._chance.choice([one for one in NODES if one != node]))

    def slow_disk(self) -> None:
        """The disk of a node is slow."""
        node = self._chance.choice(NODES)
        self._note(f"slow disk of {node}")
        self._cluster.slow(node, self._chance.choice([0.005, 0.03, 0.2]))
        self._hold(0.5, 3)

    def promote(self) -> None:
        """Another node is to lead."""
        self._promote(self._chance.choice(NODES))

    def promote_again_and_again(self) -> None:
        """Leaders follow each other quickly."""
        for _ in range(self._chance.randrange(2, 6)):
            self._promote(self._chance.choice(NODES))
            self._hold(0, 0.3)

    def _promote(self, node: int) -> bool:
        is_forced = self.is_forced and self._chance.random() < 0.5
        why = self._cluster.promote(node, is_forced=is_forced)
        self._note(f"promote {node}{' by force' if is_forced else ''}: {why or 'done'}")
        self.counts["promotions" if not why else "promotions refused"] += 1
        return not why

    # Peace

    def _until(self, holds: Callable[[], bool], words: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while not holds():
            if time.monotonic() > end:
                raise Stuck(f"{words}: {self._cluster.states()}")
            if dead := self._cluster.dead():
                raise Stuck(f"nodes {dead} ended by themselves")
            time.sleep(0.05)

    def _lead(self, wanted: int) -> None:
        """Somebody leads at the end, with the votes of the others."""

        def leads() -> bool:
            candidates = [wanted, *(one for one in NODES if one != wanted)]
            return any(not self._cluster.promote(node) for node in candidates)

        self._until(leads, "no node can lead")

    def _settle(self) -> None:
        """All is whole, and all writers go on."""
        self._note("heal")
        self._cluster.heal()
        writers = [one for one in self._clients if one.is_writer and one.reports_outcome]
        goals = {one.name: one.acknowledged.total() + PROGRESS for one in writers}
        begin = time.monotonic()
        patience = begin + 5

        def go_on() -> bool:
            nonlocal patience
            if all(one.acknowledged.total() >= goals[one.name] for one in writers):
                return True
            if any(one.failure is not None for one in self._clients):
                raise Stuck("a client failed")
            if time.monotonic() > patience:
                patience = time.monotonic() + 5
                if not self._cluster.leader():
                    self._promote(self._chance.choice(NODES))
            return False

        self._until(go_on, "writers do not go on")
        self._slowest_s = max(self._slowest_s, time.monotonic() - begin)
        self._note("settled")

    def _catch_up(self) -> None:
        """All replicas are in sync, and have a last record that all of them acknowledged."""
        self._until(lambda: self._cluster.in_sync(TOPICS) == len(NODES), "not all replicas come back in sync")
        last = self._client(LibrdkafkaWriter, "last", TOPICS, acks=-1, is_idempotent=True)
        self._until(lambda: last.acknowledged.total() >= 4 * len(last.keys), "the last records are not taken")
        last.is_over.set()
        last.join()
        self._until(lambda: self._cluster.in_sync(TOPICS) == len(NODES), "not all replicas stay in sync")

    def _end_node(self, node: int) -> None:
        if node in self._cluster.dead() or not self._cluster.is_running(node):
            return
        status = self._cluster.stop(node)
        if status not in (0, 143):  # by the signal, where it had only begun to start
            self.findings.append(f"node {node} stopped with status {status}")

    # What is to be said of it

    def _judge(self) -> None:
        with (self.directory / HISTORY).open("w", encoding="utf-8") as file:
            file.writelines(to_line(one) + "\n" for one in self.history)
        self._count()
        faults = check(self.history, copies_in(self.directory))
        for fault in faults:
            self.counts[f"{fault.kind} in {fault.key[0]}"] += 1
        wrong = [fault for fault in faults if not is_allowed(fault, is_forced=self.is_forced)]
        self.findings += [f"{fault.kind} in {fault.key}, acks={fault.acks}: {fault.words}" for fault in wrong[:20]]
        if len(wrong) > 20:
            self.findings.append(f"and {len(wrong) - 20} more")
        self.findings += [
            f"node {node} says: {words}" for node in NODES
            for words in sorted(set(complaints(self._cluster.log_of(node))))[:3]
        ]  # fmt: skip


    def _count(self) -> None:
        for one in self.history:
            if isinstance(one, Poll):
                self.counts["records read"] += len(one.records)
            elif isinstance(one, Position):
                self.counts["positions found" if not one.is_commit else "positions committed"] += one.outcome == OK
            elif one.outcome == UNKNOWN:
                self.counts["records sent"] += 1
            elif one.outcome == OK:
                self.counts["records acknowledged"] += 1


class Stuck(AssertionError):
    """An awaited condition did not come true."""


STEPS: Final[list[tuple[Callable[[Trial], Any], int]]] = [
    (Trial.kill, 3), (Trial.kill_all, 1), (Trial.leader_dies, 3), (Trial.isolate, 4), (Trial.cut_links, 3),
    (Trial.delay, 2), (Trial.pause, 3), (Trial.slow_disk, 2), (Trial.promote, 2), (Trial.promote_again_and_again, 2),
]  # fmt: skip


def copies_in(directory: Path) -> Mapping[Key, Any]:
    """Return the logs that the nodes of a trial left."""
    return copies_of({node: directory / f"data-{node}" for node in NODES}, TOPICS)


def checked_again(directory: Path) -> list[Fault]:
    """The faults of a trial whose directory was kept."""
    with (directory / HISTORY).open(encoding="utf-8") as file:
        return check([from_line(line) for line in file], copies_in(directory))
