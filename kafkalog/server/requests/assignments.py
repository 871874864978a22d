"""Checks of replica assignments for new partitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.errors import InvalidReplicaAssignment, InvalidReplicationFactor

if TYPE_CHECKING:
    from kio.schema.create_topics.v7.request import CreatableReplicaAssignment

    from kafkalog.server.node.node import Node

GIVEN: Final = "The manual partition assignment includes"


def check_factor(factor: int) -> None:
    """Raise InvalidReplicationFactor unless `factor` is at least 1, or -1 for the default."""
    if factor == 0 or factor < -1:
        raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")


def check_nodes(factor: int, nodes: int) -> None:
    """Raise InvalidReplicationFactor for more replicas than nodes.

    In a replica set every node has a copy, even if fewer are requested.
    """
    if factor > nodes:
        raise InvalidReplicationFactor(
            f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
            f"reached because only {nodes} broker(s) are registered or some brokers have all their log directories "
            "cordoned."
        )


def nodes_of(node: Node) -> tuple[int, ...]:
    """Return the nodes that have a copy of every partition: all of the replica set, or this one."""
    replicas = node.quorum.replica_set
    return (node.node_id,) if replicas is None else replicas.ids


def check_may_assign(node: Node) -> None:
    """Raise InvalidReplicaAssignment if a client cannot place partitions, since workers have them."""
    if node.workers is not None:
        raise InvalidReplicaAssignment(
            "The server places partitions among its workers itself: leave out the manual assignment."
        )


def check_replicas(
    nodes: Sequence[int], by_partition: Mapping[int, Sequence[int]], rows: Sequence[CreatableReplicaAssignment]
) -> None:
    """Raise InvalidReplicaAssignment unless each partition from 0 on is given once, with all nodes as replicas."""
    given: set[int] = set()
    for row in rows:
        if row.partition_index in given:
            raise InvalidReplicaAssignment(
                f"Found multiple manual partition assignments for partition {row.partition_index}"
            )
        given.add(row.partition_index)
    for replicas in by_partition.values():
        check_replica_list(nodes, replicas)
    if sorted(by_partition) != list(range(len(by_partition))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")


def check_replica_list(nodes: Sequence[int], replicas: Sequence[int]) -> None:
    """Raise InvalidReplicaAssignment unless the replicas are all nodes, in any order."""
    problem = replica_problem(nodes, replicas)
    if problem is None and len(replicas) < len(nodes):
        problem = (
            f"{GIVEN} {len(replicas)} of the {len(nodes)} nodes of the replica set, which keeps a copy of every "
            f"partition on each of them: {', '.join(map(str, nodes))}."
        )
    if problem is not None:
        raise InvalidReplicaAssignment(problem)


def replica_problem(nodes: Sequence[int], replicas: Sequence[int]) -> str | None:
    """Return why the replicas cannot be different nodes, None if they can."""
    if not replicas:
        return f"{GIVEN} an empty replica list."
    for replica in sorted(replicas):
        if replica not in nodes:
            return f"{GIVEN} broker {replica}, but no such broker is registered."
        if replicas.count(replica) > 1:
            return f"{GIVEN} the broker {replica} more than once."
    return None
