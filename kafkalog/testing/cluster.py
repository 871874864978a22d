"""A cluster of Kafka servers for tests, whose nodes can be stopped, killed, paused and cut off.

    with kafka_cluster(nodes=3, topics={"orders": 3}) as cluster:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
        cluster.kill(cluster.leader)

The nodes are a replica set: one of them leads all partitions and coordinates all groups and transactions.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, Self

from kafkalog.errors import ConfigError, IllegalArgument, IllegalState, KafkalogError
from kafkalog.server.packages import check_packages
from kafkalog.testing.control import Control
from kafkalog.testing.controlled import Controlled
from kafkalog.testing.errors import ConditionNotMet, did_not_start
from kafkalog.testing.faults import Fault, Unmatched
from kafkalog.testing.hosting import HOST, HostProcess, Ports
from kafkalog.testing.names import PEER_PREFIX
from kafkalog.testing.nodes import CutOff, Node, know
from kafkalog.testing.server import DEFAULTS, END_S, STOP_S, counts_of

_OWN_SETTINGS: Final = ("log.dirs", "log.dir", "listeners", "advertised.listeners", "node.id", "kafkalog.replicas")
MAX_NODES: Final = 9
ELECT_S: Final = 30
_POLL_S: Final = 0.005


class KafkaCluster(Controlled):
    """A cluster started by `kafka_cluster`. Nodes have the numbers from 1 on.

    `bootstrap` has the addresses of all nodes for clients.

    >>> with kafka_cluster(nodes=3, topics="orders") as cluster:
    ...     first = cluster.leader
    ...     cluster.kill(first)
    ...     cluster.leader != first, first in cluster.running, cluster.address(first) in cluster.bootstrap
    ...     cluster.start(first)
    ...     cluster.restart(first)
    ...     cluster.pause(first)
    ...     cluster.resume(first)
    ...     cluster.stop(first)
    ...     cluster.heal()
    ...     with cluster.cut_off(first, silent=True):
    ...         cluster.pid(first) > 1, cluster.directory(first).is_dir(), "ERROR" in cluster.log(first)
    ...     cluster.move_leader() in cluster.nodes
    (True, False, True)
    (True, True, False)
    True
    >>> with kafka_cluster(nodes=1, registry=True) as cluster:
    ...     cluster.registry_url == cluster.registry_url_of(1)
    True
    """

    def __init__(
        self,
        nodes: int,
        directory: Path,
        settings: Mapping[str, object],
        topics: Mapping[str, int],
        *,
        is_temporary: bool = False,
        unmatched: Unmatched = "warn",
        seed: object = 0,
        registry: bool = False,
        telemetry: bool = False,
    ) -> None:
        check_packages()
        if not 1 <= nodes <= MAX_NODES:
            raise IllegalArgument(f"nodes={nodes}", hint=f"use a number from 1 to {MAX_NODES}")
        for name in _OWN_SETTINGS:
            if name in settings:
                raise ConfigError(f"{name} cannot be set here", hint="the cluster sets it for each node")
        self._settings = dict(settings)
        self._topics = dict(topics)
        self._is_temporary = is_temporary
        self._directory = directory
        self._last_leader = 0
        self._cut: dict[object, int] = {}  # nodes cut off from the others, by a key of each cut
        super().__init__(directory if is_temporary else None, unmatched=unmatched, seed=seed, telemetry=telemetry)
        self._ports = Ports(2 * nodes if registry else nodes)
        numbered = enumerate(self._ports.numbers[:nodes], 1)
        self._nodes = {number: Node(number, port, directory / f"node-{number}") for number, port in numbered}
        self._registry_ports = dict(enumerate(self._ports.numbers[nodes:], 1))
        self._host_log = tempfile.TemporaryFile()
        self._host: HostProcess | None = None

    def __repr__(self) -> str:
        return f"<KafkaCluster {self.bootstrap}>"

    @property
    def bootstrap(self) -> str:
        """Addresses of all nodes, "HOST:PORT,...", in the order of their numbers."""
        return ",".join(f"{HOST}:{node.port}" for node in self._nodes.values())

    @property
    def registry_url(self) -> str:
        """Addresses of all nodes' schema registries, "http://HOST:PORT,...". IllegalState without `registry=True`."""
        return ",".join(self.registry_url_of(node) for node in self._nodes)

    def registry_url_of(self, node: int) -> str:
        """Return the address of the schema registry of one node. IllegalState without `registry=True`."""
        if not self._registry_ports:
            raise IllegalState("the cluster has no schema registry", hint="use kafka_cluster(registry=True)")
        return f"http://{HOST}:{self._registry_ports[self._node(node).node_id]}"

    @property
    def nodes(self) -> tuple[int, ...]:
        """Numbers of all nodes."""
        return tuple(self._nodes)

    @property
    def running(self) -> tuple[int, ...]:
        """Numbers of the nodes that were started and not stopped or killed; a paused node is among them."""
        return tuple(number for number, node in self._nodes.items() if node.is_running)

    @property
    def leader(self) -> int:
        """Node that leads all partitions and coordinates all groups. IllegalState while there is none."""
        return self._leader()

    @property
    def data(self) -> Path:
        """Data directory of the leader, or of the last one while there is none."""
        with suppress(IllegalState):
            self._last_leader = self._leader()
        return self._nodes[self._last_leader or 1].directory

    def address(self, node: int) -> str:
        """Return the address of one node for clients, "HOST:PORT"."""
        return f"{HOST}:{self._node(node).port}"

    def directory(self, node: int) -> Path:
        """Return the data directory of a node."""
        return self._node(node).directory

    def log(self, node: int) -> str:
        """Return a node's log so far, warnings and errors; after the cluster's `with` block, the whole log."""
        return self._node(node).log()

    def pid(self, node: int) -> int:
        """Return the process id of a running node. IllegalState if it does not run."""
        return self._running(node).pid

    # Nodes

    def start(self, *nodes: int) -> None:
        """Start these nodes, or all that do not run, on their directories and ports.

        Raises ServerDidNotStart with the cause in one line; no node of the call is left running then. A setting whose
        name looks like a typo causes a warning (`warnings`).
        """
        chosen = [self._node(one) for one in nodes] or [one for one in self._nodes.values() if not one.is_running]
        for node in chosen:
            if node.is_running:
                raise IllegalState(f"node {node.node_id} is already running", hint="call stop() or kill() first")
        begun: list[Node] = []
        try:
            for node in chosen:
                begun.append(node)
                self._spawn(node)
            for node in chosen:
                self._finish_start(node)
        except BaseException:
            for node in begun:
                self._kill(node)
            raise

    def stop(self, node: int, *, elect: bool = True) -> None:
        """Stop a node as SIGTERM does; another one leads afterwards if it led, unless `elect` is False."""
        found = self._running(node)
        if found.is_paused:
            raise IllegalState(f"node {node} is paused", hint="call resume() first, or kill()")
        self._after(lambda: self._stop(found), node, elect=elect)

    def kill(self, node: int, *, elect: bool = True) -> None:
        """End a node with SIGKILL; another one leads afterwards if it led, unless `elect` is False."""
        found = self._running(node)
        self._after(lambda: self._kill(found), node, elect=elect)

    def restart(self, node: int, *, elect: bool = True) -> None:
        """Stop and start a node."""
        self.stop(node, elect=elect)
        self.start(node)

    def pause(self, node: int, *, elect: bool = True) -> None:
        """Suspend a node with SIGSTOP: it keeps its connections and answers nothing until `resume`."""
        found = self._running(node)

        def suspend() -> None:
            assert self._host is not None
            with self._rules.none_counting():
                self._host.pause(found.pid)
            found.is_paused = True

        self._after(suspend, node, elect=elect)

    def resume(self, node: int) -> None:
        """Resume a paused node."""
        found = self._running(node)
        os.kill(found.pid, signal.SIGCONT)
        found.is_paused = False
        missed, found.missed = found.missed, []
        for command, given in missed:
            assert found.control is not None
            found.control.call(command, **given)

    def cut_off(
        self, node: int, *, clients: bool = True, peers: bool = True, silent: bool = False, elect: bool = True
    ) -> CutOff:
        """Cut a node off from clients, from the other nodes, or both, in both directions; its connections end.

        With `silent` requests stay unanswered, as when packets are lost; else their connections are closed.
        """
        self._running(node)
        way = "silent" if silent else "close"
        faults: list[Fault] = []
        key = object()

        def cut() -> None:
            others = [one for one in self._nodes if one != node]
            if clients:
                faults.append(self._add_cut(f"cut {node} from clients", [node], way=way))
            if peers:
                names = {node: f"{PEER_PREFIX}*", **dict.fromkeys(others, f"{PEER_PREFIX}{node}")}
                for one, client_id in names.items():
                    faults.append(self._add_cut(f"cut {node}", [one], way=way, client_id=client_id, peers=True))
            controls = self._controls()
            if clients and node in controls:
                controls[node].call("drop_connections")
            for one, control in controls.items() if peers else ():
                ends = [self._nodes[other].port for other in (others if one == node else [node])]
                control.call("drop_links", ports=ends)

        if peers:
            self._cut[key] = node
        self._after(cut, node, elect=elect and peers)
        return CutOff(faults, lambda: self._cut.pop(key, None))

    def _add_cut(self, text: str, nodes: list[int], **rule: Any) -> Fault:
        return self._rules.add(text, nodes, {"keys": None, **rule}, is_reported=False)

    def move_leader(self, to: int | None = None) -> int:
        """Make a node the leader and coordinator, by default the next one, and return its number.

        A leader that answers hands over: no acknowledged record is lost. KafkalogError with the cause if it fails.
        """
        before = self._leader()
        others = [one for one in self._controls() if one != before]
        if to is None and not others:
            raise IllegalState("no other node runs", hint="start one")
        chosen = to if to is not None else min(others, key=lambda one: (one < before, one))
        self._elect([chosen])
        return chosen

    def heal(self) -> None:
        """Resume paused nodes, start those that do not run, and let one lead. Faults stay: see `reset`."""
        self._forget_ended()
        for node in self._nodes.values():
            if node.is_paused:
                self.resume(node.node_id)
        if len(self.running) < len(self._nodes):
            self.start()
        if len(self._nodes) > 1:
            try:
                self._leader()
            except IllegalState:
                self._elect(self._nodes)

    def reset(self) -> None:
        """End all faults, cuts and recorders, free disks and accept connections. Reports faults that never matched."""
        self._cut.clear()
        super().reset()

    # Leadership

    def _leader(self) -> int:
        mine = [(state["term"], node) for node, state in self._states().items() if state["leads"]]
        if not mine:
            raise IllegalState("no node leads", hint="move_leader(to=...) after starting a majority of the nodes")
        return max(mine)[1]

    def _states(self) -> dict[int, dict[str, Any]]:
        return {node: control.call("state") for node, control in self._controls().items()}

    def _elect(self, candidates: Iterable[int]) -> None:
        """Make one of these nodes the leader, the first that gets the votes, and wait until the others know it."""
        deadline = time.monotonic() + ELECT_S
        chosen = list(candidates)
        failure: KafkalogError | None = None
        while time.monotonic() < deadline:
            for one in chosen:
                control = self._controls().get(one)
                if control is None:
                    raise IllegalState(f"node {one} does not run", hint="start it, or resume it")
                try:
                    control.call("promote", timeout_ms=ELECT_S * 1000, silent=self._silent())
                except KafkalogError as error:
                    failure = error
                    continue
                self._last_leader = one
                while not know(self._states(), one, self._silent()) and time.monotonic() < deadline:
                    time.sleep(_POLL_S)
                return
            time.sleep(_POLL_S)
        raise failure or ConditionNotMet("no node could become the leader")

    def _after(self, change: Callable[[], object], node: int, *, elect: bool) -> None:
        """Make a change that takes a node away, then let another node lead if this one did."""
        was_leader = False
        if elect:
            with suppress(IllegalState):
                was_leader = self._leader() == node
        change()
        others = [one for one in self._controls() if one != node]
        if was_leader and 2 * len(others) > len(self._nodes):
            self._elect(others)

    def _silent(self) -> list[int]:
        """Return the nodes that answer nothing, for which no call needs to wait."""
        return sorted({*self._cut.values(), *(number for number, node in self._nodes.items() if node.is_paused)})

    def _all_nodes(self) -> Sequence[int]:
        return self.nodes

    def _lead(self, node: int) -> None:
        if len(self._nodes) > 1:
            self._elect([node, *(one for one in self._nodes if one != node)])

    # Processes

    def _controls(self) -> Mapping[int, Control]:
        return {
            number: node.control for number, node in self._nodes.items()
            if node.control is not None and not node.is_paused
        }  # fmt: skip

    def _defer(self, node_ids: frozenset[int] | None, command: str, given: dict[str, Any]) -> None:
        for node in self._nodes.values():
            if node.is_paused and (node_ids is None or node.node_id in node_ids):
                node.missed.append((command, given))

    def _forget_ended(self) -> None:
        """Update the state of nodes whose processes ended on their own."""
        for node in self._nodes.values():
            is_ending = node.control is not None and node.control.is_broken
            if node.pid and self._host is not None and self._host.wait(node.pid, END_S if is_ending else 0) is not None:
                node.forget()

    def _node(self, number: int) -> Node:
        if number not in self._nodes:
            raise IllegalArgument(f"there is no node {number}", hint=f"nodes are 1 to {len(self._nodes)}")
        return self._nodes[number]

    def _running(self, number: int) -> Node:
        node = self._node(number)
        if not node.is_running:
            raise IllegalState(f"node {number} does not run", hint="call start() first")
        return node

    def _spawn(self, node: Node) -> None:
        if self._host is None:
            raise IllegalState("the cluster's with block has ended", hint="create another cluster")
        node.control = Control()
        node.pid = self._host.spawn(node.control.server_end, node.log_file)
        node.control.send_configuration(self._configuration(node))

    def _finish_start(self, node: Node) -> None:
        assert node.control is not None
        started = node.control.read_started()
        if started is None:
            assert self._host is not None
            if self._host.wait(node.pid, END_S) is not None:  # the last log lines come after the socket's end
                node.pid = 0
            raise did_not_start(f"node {node.node_id}", node.log())
        for slip in started["slips"] if node is self._nodes[1] else ():  # the other nodes report the same
            warnings.warn(slip, stacklevel=3)

    def _configuration(self, node: Node) -> dict[str, Any]:
        count = len(self._nodes)
        settings: dict[str, object] = {
            **DEFAULTS, "min.insync.replicas": count // 2 + 1, "replica.lag.time.max.ms": 2000, **self._settings,
            "node.id": node.node_id, "listeners": f"PLAINTEXT://{HOST}:{node.port}",
        }  # fmt: skip
        if count > 1:
            settings["kafkalog.replicas"] = ",".join(f"{one.node_id}@{HOST}:{one.port}" for one in self._nodes.values())
        return {
            "directory": str(node.directory), "directories": [str(node.directory)], "settings": settings,
            "topics": {}, "users": {}, "worker_ports": {}, "pushed": self._pushed.path,
            "home": "", "syncs": not self._is_temporary, "counts": self._rules.path,
            "commands": self._commands_for(node.node_id), "ahead_ms": self._ahead_ms,
            "registry_port": self._registry_ports.get(node.node_id), "registry_ports": self._registry_ports,
        }  # fmt: skip

    def _stop(self, node: Node) -> None:
        assert node.control is not None and self._host is not None
        node.control.send_stop()
        status = self._host.wait(node.pid, STOP_S)
        if status is None:
            self._kill(node)
            raise KafkalogError(f"node {node.node_id} did not stop within {STOP_S} s: {node.log()[-3000:]}")
        node.forget()
        if status:
            raise KafkalogError(f"node {node.node_id} ended with status {status}: {node.log()[-3000:]}")

    def _kill(self, node: Node) -> None:
        if node.pid and self._host is not None:
            with suppress(ProcessLookupError):
                os.kill(node.pid, signal.SIGKILL)
            with suppress(KafkalogError):
                self._host.wait(node.pid, STOP_S)
        node.forget()

    # The block

    def __enter__(self) -> Self:
        try:
            self._host = HostProcess(self._host_log)
            self._host.remove_at_end(str(self._home))
            self.start()
            if len(self._nodes) > 1:
                self._elect(self._nodes)
            if self._topics:
                self.create_topics(self._topics)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._end_faults(reports=kind is None)
        finally:
            self._close()

    def _close(self) -> None:
        """End all nodes and free everything."""
        for node in self._nodes.values():
            if self._is_temporary or node.is_paused:
                self._kill(node)  # no one reads the directory now
        try:
            for node in self._nodes.values():
                if node.is_running:
                    self._stop(node)
        finally:
            if self._host is not None:
                self._host.close()
                self._host = None
            for node in self._nodes.values():
                node.forget()
                node.close_log()
            self._host_log.close()
            self._ports.close()
            self._remove_files()


@contextmanager
def kafka_cluster(
    nodes: int = 3,
    *,
    topics: Mapping[str, int] | Iterable[str] = (),
    settings: Mapping[str, object] | None = None,
    directory: str | os.PathLike[str] | None = None,
    unmatched: Unmatched = "warn",
    seed: object = 0,
    registry: bool = False,
    telemetry: bool = False,
) -> Iterator[KafkaCluster]:
    """Run a cluster for the duration of a `with` block.

    topics: a name, names, or names and numbers of partitions, created before the block begins; settings: as in a
    broker's `server.properties`, for all nodes; directory: parent of the nodes' directories, by default a
    temporary one, which is never synced; unmatched: "warn", "error" or "ignore", for faults that never matched; seed:
    for faults with `share`; registry: run a schema registry at each node, all with the same content; telemetry:
    enable `subscribe_metrics` and `pushed_metrics`. Raises ServerDidNotStart with the cause; no process is left then.

    >>> with kafka_cluster(nodes=3, topics={"orders": 3}) as cluster:
    ...     cluster.nodes, cluster.record_count("orders")
    ((1, 2, 3), 0)
    """
    is_temporary = directory is None
    with ExitStack() as stack:
        if directory is None:
            temporary = tempfile.TemporaryDirectory(prefix="kafkalog-cluster-", ignore_cleanup_errors=True)
            directory = stack.enter_context(temporary)
        cluster = KafkaCluster(
            nodes, Path(directory), settings or {}, counts_of(topics), is_temporary=is_temporary, unmatched=unmatched,
            seed=seed, registry=registry, telemetry=telemetry,
        )  # fmt: skip
        yield stack.enter_context(cluster)
