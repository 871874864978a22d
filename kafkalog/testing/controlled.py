"""Control and observation of a server or cluster: faults, the clock, requests, conditions, contents, snapshots."""

from __future__ import annotations

import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kafkalog.errors import IllegalArgument, IllegalState, KafkalogError
from kafkalog.testing.errors import ConditionNotMet
from kafkalog.testing.faults import Fault, Rules, Unmatched, rule_of
from kafkalog.testing.names import keys_of
from kafkalog.testing.pushed import PushedFile, wait_for_subscription
from kafkalog.testing.recorder import Recorder

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from kafkalog._core.batch.record import Record
    from kafkalog.dirs.log_dirs import LogDirs
    from kafkalog.server.requests.telemetry import PushedMetrics
    from kafkalog.testing.control import Control

WAIT_S: Final = 30
_POLL_S: Final = 0.01
_API_VERSIONS: Final = "ApiVersions"


class Snapshot(NamedTuple):
    """The data of all nodes: a file for each node in `folder`, named by its number; and the node that led."""

    folder: Path
    leader: int


class Controlled(ABC):
    """The common part of `KafkaServer` and `KafkaCluster`. Threads: one, except where a method says otherwise."""

    _workers = 1

    def __init__(
        self, home: Path | None, *, unmatched: Unmatched = "warn", seed: object = 0, telemetry: bool = False
    ) -> None:
        """`home` is the temporary directory of a server or cluster that has one; else one is made for its own files."""
        self._own_home = None if home is not None else tempfile.TemporaryDirectory(prefix="kafkalog-testing-")
        self._home = home or Path(self._own_home.name if self._own_home else "")
        self._rules = Rules(self._tell, str(self._home), unmatched, seed)
        self._pushed = PushedFile(self._home, exists=telemetry)
        self._ahead_ms = 0
        self._lasting: dict[tuple[str, int], dict[str, Any]] = {}  # by command and node

    @abstractmethod
    def _controls(self) -> Mapping[int, Control]:
        """Return the channels of the nodes that run, by node id."""

    @abstractmethod
    def _defer(self, node_ids: frozenset[int] | None, command: str, given: dict[str, Any]) -> None:
        """Keep a command for nodes that are paused."""

    @abstractmethod
    def _leader(self) -> int:
        """Return the node that leads. IllegalState if none does."""

    @property
    @abstractmethod
    def data(self) -> Path:
        """Data directory with all records: the leader's."""

    # Faults

    def fault(
        self,
        api: str | Iterable[str],
        *,
        error: str | int | None = None,
        delay_ms: float = 0,
        throttle_ms: int = 0,
        cut: bool = False,
        silent: bool = False,
        close: bool = False,
        applied: bool = False,
        nth: int | None = None,
        times: int | None = None,
        share: float = 1.0,
        client_id: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        group: str | None = None,
        transactional_id: str | None = None,
        nodes: Iterable[int] | None = None,
    ) -> Fault:
        """Change the answers to calls of an API from now on, until the fault's `remove()` or the end of its block.

        api: Kafka's names, or "*" for all. The effect is one of: error: answer with this error, by name or number; cut:
        send half of the response, then close the connection; silent: never answer; close: close the connection. Each
        can be combined with delay_ms and throttle_ms, which also work alone. An error, silent and close replace the
        call; with `applied` they follow its effect.

        Calls must match all filters; client_id, topic, group and transactional_id may have the wildcards `*` and `?`.
        Of the matching calls, the fault changes only the `nth`, counted from 1 over all nodes; or `times` calls from
        the `nth` on; or that `share` of them, chosen by the server's seed. An error applies to the whole request; in a
        Fetch, to the matching partitions. IllegalArgument for an unknown name or node, and for a fault that does
        nothing.

        >>> from kafkalog.testing import kafka_server
        >>> with kafka_server(topics="orders", unmatched="ignore") as server:
        ...     with server.fault("Metadata", error="LEADER_NOT_AVAILABLE", times=1) as fault:
        ...         pass  # clients run here
        ...     older = server.older_versions({"Produce": 8, "DescribeCluster": -1})
        ...     server.full_disk()
        ...     server.refuse_connections()
        ...     server.drop_connections()
        ...     server.advance(seconds=3600)
        ...     server.reset()
        ...     fault.matched, older.is_active
        (0, False)
        """
        names = [api] if isinstance(api, str) else list(api)
        ways = [name for name, is_given in (("cut", cut), ("silent", silent), ("close", close)) if is_given]
        if len(ways) > 1:
            raise IllegalArgument(f"{' and '.join(ways)} exclude each other", hint="add two faults")
        rule = rule_of(
            names, error=error, delay_ms=delay_ms, throttle_ms=throttle_ms, way="".join(ways), applied=applied, nth=nth,
            times=times, share=share, client_id=client_id, topic=topic, partition=partition, group=group,
            transactional_id=transactional_id,
        )  # fmt: skip
        return self._rules.add("+".join(names), self._chosen(nodes), rule)

    def older_versions(self, newest: Mapping[str, int], *, nodes: Iterable[int] | None = None) -> Fault:
        """Offer calls only up to these versions, -1 for not at all, to clients that ask from now on."""
        limits = {str(key): version for name, version in newest.items() for key in keys_of(name) or ()}
        if not limits:
            raise IllegalArgument("no call is named", hint='as in older_versions({"Produce": 8})')
        return self._rules.add(f"older versions of {', '.join(newest)}", self._chosen(nodes), {
            "keys": keys_of(_API_VERSIONS), "newest": limits,
        })  # fmt: skip

    def full_disk(self, is_full: bool = True, *, nodes: Iterable[int] | None = None) -> None:
        """Make every write of the server fail with ENOSPC; `full_disk(False)` ends this."""
        self._set("full_disk", nodes, is_full, is_full=is_full)

    def refuse_connections(self, is_refusing: bool = True, *, nodes: Iterable[int] | None = None) -> None:
        """Refuse new connections; `refuse_connections(False)` accepts them again. Open ones stay."""
        self._set("refuse", nodes, is_refusing, is_refusing=is_refusing)

    def drop_connections(self, *, nodes: Iterable[int] | None = None) -> None:
        """Close all open connections."""
        self._tell(self._chosen(nodes), "drop_connections", {})

    def advance(self, *, seconds: float = 0, ms: int = 0) -> None:
        """Move the servers' clocks ahead and run everything due by then, such as session timeouts and retention.

        Timestamps set by clients follow the machine's clock, so these records appear older by that much. Clocks never
        go back.
        """
        gain_ms = ms + round(seconds * 1000)
        if gain_ms < 0:
            raise IllegalArgument(f"the clock cannot go back by {-gain_ms} ms", hint="start another server")
        self._check_alone()
        self._ahead_ms += gain_ms
        self._tell(None, "advance", {"ms": gain_ms})

    def reset(self) -> None:
        """End all faults and recorders, free the disk and accept connections. Reports faults that never matched."""
        with ExitStack() as ending:
            ending.callback(self.refuse_connections, False)
            ending.callback(self.full_disk, False)
            ending.callback(self._rules.clear)

    def _end_faults(self, *, reports: bool) -> None:
        """End what disturbs the servers' end: faults, and a full disk, on which they could not close their logs."""
        try:
            self._rules.clear(reports=reports)
        finally:
            if any(command == "full_disk" for command, _ in self._lasting):
                with suppress(KafkalogError, OSError):  # a server that does not answer ends in another way
                    self.full_disk(False)

    def _set(self, command: str, nodes: Iterable[int] | None, is_on: bool, **given: Any) -> None:
        """Send a command whose effect lasts, also to nodes that start later."""
        self._check_alone()
        chosen = self._chosen(nodes)
        for node in self._all_nodes() if chosen is None else chosen:
            if is_on:
                self._lasting[command, node] = given
            else:
                self._lasting.pop((command, node), None)
        self._tell(chosen, command, given)

    def _chosen(self, nodes: Iterable[int] | None) -> frozenset[int] | None:
        """Return the numbers of nodes, None for all. IllegalArgument for a node that there is not."""
        if nodes is None:
            return None
        chosen, known = frozenset(nodes), self._all_nodes()
        for node in chosen.difference(known):
            raise IllegalArgument(f"there is no node {node!r}", hint=f"nodes are 1 to {len(known)}")
        return chosen

    def _check_alone(self) -> None:
        """Raise IllegalState with several workers: the first one has neither the rules nor the logs of the others."""
        if self._workers > 1:
            raise IllegalState(
                "faults, recorders, the clock, lags, counts and snapshots need a server with one worker",
                hint="omit workers=...",
            )

    def _commands_for(self, node_id: int) -> list[tuple[str, dict[str, Any]]]:
        """Return the commands for a node that starts."""
        lasting = [(command, given) for (command, node), given in self._lasting.items() if node == node_id]
        return [*self._rules.commands_for(node_id), *lasting]

    def _tell(self, nodes: frozenset[int] | None, command: str, given: dict[str, Any]) -> None:
        """Send a command to these nodes or to all, to paused ones when they continue; then raise the first error."""
        self._defer(nodes, command, given)
        failure: KafkalogError | None = None
        for node_id, control in self._controls().items():
            if nodes is None or node_id in nodes:
                try:
                    control.call(command, **given)
                except KafkalogError as error:
                    failure = failure or error
        if failure is not None:
            raise failure

    # Snapshots

    def snapshot(self) -> Snapshot:
        """Copy the data of all nodes, for `restore`: records, topics, settings, groups and transactions.

        The processes and connections stay; requests wait meanwhile. IllegalState unless all nodes run.
        """
        leader = self._leader()
        controls = self._controls_of_all()
        folder = Path(tempfile.mkdtemp(prefix="snapshot-", dir=self._home))
        followers = {node: control for node, control in controls.items() if node != leader}
        # the leader last: then no follower's copy has more than the leader's
        for each in (followers, {leader: controls[leader]}):
            led = _call_together(each, "snapshot", lambda node: {"path": str(folder / str(node))})
        if not led[leader]:
            raise IllegalState("another node began to lead during the snapshot", hint="take it again")
        return Snapshot(folder, leader)

    def restore(self, snapshot: Snapshot) -> None:
        """Restore the data of all nodes from the snapshot. Members of groups join again."""
        controls, (folder, leader) = self._controls_of_all(), snapshot
        least = 1 + max(control.call("state")["term"] for control in controls.values())
        term = least + (leader - 1 - least) % len(controls)  # the next one in which this node may lead
        first = {leader: controls[leader], **controls}  # before another one is open and asks it
        given = {"term": term, "leader": leader}
        try:
            _call_together(first, "restore", lambda node: {"path": str(folder / str(node)), **given})
        except BaseException:
            self._lead(leader)
            raise

    def _controls_of_all(self) -> Mapping[int, Control]:
        self._check_alone()
        controls = self._controls()
        if len(controls) < len(self._all_nodes()):
            raise IllegalState("a node does not run", hint="start all nodes, and resume paused ones")
        return controls

    @abstractmethod
    def _all_nodes(self) -> Sequence[int]:
        """Return the numbers of all nodes."""

    @abstractmethod
    def _lead(self, node: int) -> None:
        """Make a node the leader if it is not, or another one."""

    def _remove_files(self) -> None:
        """Remove the test's own temporary files."""
        self._rules.close()
        if self._own_home is not None:
            self._own_home.cleanup()

    # Requests, contents and snapshots

    def record(self, *, peers: bool = False) -> Recorder:
        """Record the requests of clients until the end of the recorder's `with` block; `peers`: those of nodes, too."""
        return Recorder(self._rules, peers=peers)

    def subscribe_metrics(
        self, metrics: str = "*", *, name: str = "metrics", interval_ms: int = 1000, match: str = ""
    ) -> None:
        """Ask clients for metrics (KIP-714), as `kafka-client-metrics --alter` does. Replaces the subscription `name`.

        metrics: prefixes of names, separated by commas; match: clients that push, as in "client_id=a.*", by default
        all. IllegalState without `telemetry=True`; ConfigError, InvalidRequest for values that a broker refuses.

        >>> from kafkalog.testing import kafka_server
        >>> with kafka_server(telemetry=True) as server:
        ...     server.subscribe_metrics("org.apache.kafka.producer.", interval_ms=100)
        ...     server.pushed_metrics()  # after clients ran here
        []
        """
        self._pushed.check()
        settings = {"metrics": metrics, "interval.ms": str(interval_ms), **({"match": match} if match else {})}
        self._leader_control().call("subscribe", subscription=name, settings=settings)
        wait_for_subscription(self._controls, name, settings)

    def pushed_metrics(self, client_id: str | None = None) -> list[PushedMetrics]:
        """Return the metrics that clients have pushed to all nodes, in order of arrival: of one client, or of all.

        IllegalState without `telemetry=True`.
        """
        return [one for one in self._pushed.read() if client_id in (None, one.client_id)]

    def lag(self, group: str, topic: str | None = None) -> int | None:
        """Return the records after a group's committed offsets; None if it has committed nothing (of the topic)."""
        self._check_alone()
        control = self._leader_control()
        committed: dict[str, dict[int, int]] = {}
        for name, partition, offset in control.call("committed", group=group):
            committed.setdefault(name, {})[partition] = offset
        if topic is not None:
            committed = {name: offsets for name, offsets in committed.items() if name == topic}
        if not committed:
            return None
        total = 0
        for name, offsets in committed.items():
            for index, (start, _, stable) in self._ends(name).items():
                total += max(0, stable - max(start, offsets.get(index, start)))
        return total

    def record_count(self, topic: str) -> int:
        """Return the number of offsets between start and high watermark in all partitions of a topic."""
        return sum(mark - start for start, mark, _ in self._ends(topic).values())

    def wait_for(
        self,
        *,
        group: str | None = None,
        lag: int | None = None,
        topic: str | None = None,
        records: int | None = None,
        until: Callable[[], object] | None = None,
        timeout_s: float = WAIT_S,
    ) -> None:
        """Wait until a group has at most this lag, a topic at least that many records, and `until()` is true.

        Raises ConditionNotMet, an AssertionError, after `timeout_s`; IllegalArgument without a condition.

        >>> from kafkalog.testing import kafka_server
        >>> with kafka_server(topics="orders") as server, server.record() as seen:
        ...     before = server.snapshot()
        ...     server.create_topics({"another": 1})
        ...     server.delete_topics(["orders"])
        ...     server.restore(before)
        ...     server.wait_for(topic="orders", records=0, until=lambda: server.lag("g") is None)
        ...     server.record_count("another"), server.records("orders"), len(server.frame("orders"))
        ...     server.table("orders").num_rows, server.data.is_dir(), seen.count("Produce", topic="orders")
        (0, [], 0)
        (0, True, 0)
        """
        if (group is None) != (lag is None) or (records is not None and topic is None):
            raise IllegalArgument("lag is that of a group, records are those of a topic", hint="give both")
        if group is None and records is None and until is None:
            raise IllegalArgument("there is nothing to wait for", hint='as in wait_for(group="g", lag=0)')
        if group is not None or records is not None:
            self._check_alone()
        deadline = time.monotonic() + timeout_s
        while (missing := self._missing(group, lag, topic, records, until)) is not None:
            if time.monotonic() >= deadline:
                raise ConditionNotMet(f"after {timeout_s:g} s {missing}")
            time.sleep(_POLL_S)

    def _missing(
        self, group: str | None, lag: int | None, topic: str | None, records: int | None,
        until: Callable[[], object] | None,
    ) -> str | None:  # fmt: skip
        """Return the first condition that is not met, or None."""
        try:
            if group is not None and lag is not None:
                found = self.lag(group, topic)
                if found is None or found > lag:
                    return f"group {group} has " + ("committed nothing" if found is None else f"a lag of {found}")
            if topic is not None and records is not None and (count := self.record_count(topic)) < records:
                return f"topic {topic} has {count} records, not {records}"
        except KafkalogError as error:  # such as while no node leads
            return str(error)
        return None if until is None or until() else "the condition is not true"

    def records(self, topic: str, partition: int | None = None) -> list[Record]:
        """Return the records of a topic, or of one partition, in the order of partitions and offsets."""
        with self._open_data() as dirs:
            logs = dirs.logs(topic) if partition is None else [dirs[topic, partition]]
            return [record for log in logs for record in log]

    def table(self, topic: str, columns: Iterable[str] | None = None) -> pyarrow.Table:
        """Return the records of a topic as an Arrow table."""
        import pyarrow

        with self._open_data() as dirs:
            return pyarrow.table(dirs.scan(topic, columns).table())

    def frame(self, topic: str, columns: Iterable[str] | None = None) -> pandas.DataFrame:
        """Return the records of a topic as a pandas frame."""
        with self._open_data() as dirs:
            return dirs.scan(topic, columns).to_pandas()

    def _data_dirs(self) -> Sequence[Path]:
        return (self.data,)

    def _open_data(self) -> LogDirs:
        import kafkalog

        return kafkalog.open_dirs(self._data_dirs())

    def _ends(self, topic: str) -> dict[int, tuple[int, int, int]]:
        self._check_alone()
        rows = self._leader_control().call("ends", topic=topic)
        return {int(index): tuple(row) for index, row in rows.items()}

    # Topics

    def create_topics(self, topics: Mapping[str, int], settings: Mapping[str, object] | None = None) -> None:
        """Create the missing ones of these topics; `topics` has names and numbers of partitions."""
        self._leader_control().call("create_topics", topics=dict(topics), settings=dict(settings or {}))

    def delete_topics(self, topics: Iterable[str]) -> None:
        """Delete topics; missing ones are ignored."""
        self._leader_control().call("delete_topics", topics=list(topics))

    def _leader_control(self) -> Control:
        leader = self._leader()
        found = self._controls().get(leader)
        if found is None:
            raise IllegalState(f"node {leader} leads but is not running", hint="call start(), or move_leader()")
        return found


def _call_together(
    controls: Mapping[int, Control], command: str, given: Callable[[int], dict[str, Any]]
) -> dict[int, Any]:
    """Send a command to all nodes at the same time and return the answers; raise the first error once all answered."""
    from concurrent.futures import ThreadPoolExecutor

    if len(controls) < 2:
        return {node: control.call(command, **given(node)) for node, control in controls.items()}
    with ThreadPoolExecutor(len(controls)) as threads:
        answers = {node: threads.submit(control.call, command, **given(node)) for node, control in controls.items()}
    return {node: answer.result() for node, answer in answers.items()}
