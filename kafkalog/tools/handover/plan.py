"""The plan of a handover: topics to add, problems that prevent it, and notes.

    new      no topic of that name is in the broker's metadata: it gets ours, with our id
    grown    the broker knows the topic, and we have more partitions of it
    adopted  the broker has a topic of that name with another id: our partitions take that id (only if requested)
    known    nothing is left to do
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from kafkalog.config.topic import SEGMENT_REFERENCE_FLOOR, LogConfig
from kafkalog.errors import KafkalogError
from kafkalog.manager.cluster_image import MetadataPartition, MetadataTopic
from kafkalog.manager.cluster_metadata import ClusterMetadata
from kafkalog.manager.topics import TopicEntry
from kafkalog.storage.names import collides_with
from kafkalog.storage.partition_metadata import new_topic_id
from kafkalog.tools.handover.node import Metadata, Node
from kafkalog.tools.handover.records import NewPartition
from kafkalog.tools.handover.survey import Open, PartitionSurvey

Action = Literal["new", "grown", "adopted", "known"]
PRODUCER_ID_BLOCK: Final = 1000
MAX_PRODUCER_ID: Final = 2**63 - 1 - 2 * PRODUCER_ID_BLOCK
_COMPACTED: Final = {"cleanup.policy": "compact", "segment.bytes": "104857600"}
INTERNAL_SETTINGS: Final = {
    "__consumer_offsets": {**_COMPACTED, "compression.type": "producer"},
    "__transaction_state": {
        **_COMPACTED, "compression.type": "uncompressed", "min.insync.replicas": "1",
        "unclean.leader.election.enable": "false",
    },
    "__share_group_state": {"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "104857600"},
}  # fmt: skip
"""Settings that a broker gives its own topics when it creates them: without them their records would expire."""


class Problem(NamedTuple):
    """A reason why a handover is refused, and a hint."""

    what: str
    hint: str


@dataclass(frozen=True)
class TopicPlan:
    """One topic: the action, its id and own settings in the broker's names, and its partition directories.

    `add` are the partitions to add; `id_writes` the directories whose partition.metadata is written, with their present
    id (None: the file is missing).
    """

    name: str
    action: Action
    topic_id: str
    partitions: int
    settings: Mapping[str, str]
    add: tuple[NewPartition, ...] = ()
    id_writes: tuple[tuple[str, str | None], ...] = ()
    found: tuple[PartitionSurvey, ...] = ()

    @property
    def records(self) -> int:
        """Number of offsets that the partitions hold."""
        return sum(one.end_offset - one.start_offset for one in self.found)


@dataclass
class HandoverPlan:
    """All topics, in order of their names; a handover with a problem is refused.

    Everything written to `metadata` is also written to `twins`: bootstrap files that the broker may begin with instead.
    """

    node: Node
    metadata: ClusterMetadata
    twins: tuple[ClusterMetadata, ...] = ()
    topics: list[TopicPlan] = field(default_factory=list)
    next_producer_id: int | None = None
    problems: list[Problem] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def is_done(self) -> bool:
        """True if nothing is left to do."""
        return (
            self.next_producer_id is None
            and all(one.action == "known" and not one.id_writes for one in self.topics)
            and all(one.image.contains(self.metadata.image) for one in self.twins)
        )

    def refuse(self, what: str, hint: str) -> None:
        """Add a problem."""
        self.problems.append(Problem(what, hint))


class Found(NamedTuple):
    """One topic in the data directories: its entry in a topics file, and its partition directories."""

    entry: TopicEntry | None
    partitions: Sequence[PartitionSurvey]


def make_plan(
    node: Node,
    metadata: Metadata,
    found: Mapping[str, Found],
    *,
    home: str,
    adopt: bool = False,
    next_producer_id: int = 0,
    ended: frozenset[Open] = frozenset(),
) -> HandoverPlan:
    """Return the plan for the topics `found`; the broker is to create partitions without a directory in `home`.

    Producer ids below `next_producer_id` were assigned to clients, which may not have written yet. The broker's
    coordinator ends the transactions in `ended`.
    """
    plan = HandoverPlan(node, metadata.main, metadata.twins)
    _check_controller(plan)
    if metadata.main.rank == 0:
        plan.notes.append(
            "no broker has started on this metadata yet: give each directory of its log.dirs, and its metadata.log.dir"
        )
    for name in sorted(found):
        _plan_topic(plan, name, found[name], home, adopt, ended)
    _plan_producer_ids(plan, found, next_producer_id)
    return plan


def _check_controller(plan: HandoverPlan) -> None:
    """Refuse unless one controller votes and runs in this node: only then do our writes become the cluster's."""
    image, node_id = plan.metadata.image, plan.node.node_id
    start_once = "start the broker, wait until it is up, stop it, and hand over again"
    if image.voters is not None and image.voters != {node_id}:
        plan.refuse(
            f"the metadata of the cluster belongs to the controllers {', '.join(map(str, sorted(image.voters)))}, "
            f"not to node {node_id} alone",
            "a handover needs one node with process.roles=broker,controller: hand over there, and reassign the "
            "partitions, or produce the records to the cluster (`kafkalog consume -J`, or a mirror)",
        )
    if plan.metadata.problem is not None:
        plan.refuse(f"the metadata log ends in damage: {plan.metadata.problem.message}", start_once)
    if image.open_transaction:
        plan.refuse("the controller has an unfinished metadata transaction", start_once)
    if not image.metadata_version:
        plan.refuse(
            "the metadata has no metadata.version, so no broker can start on it",
            "`kafkalog handover --undo` reverts a handover that wrote it; otherwise format the directory again",
        )


def _plan_topic(
    plan: HandoverPlan, name: str, found: Found, home: str, adopt: bool, ended: frozenset[Open]
) -> None:
    known = plan.metadata.image.topics.get(name)
    own_id = _own_id(plan, name, found, known if adopt else None)
    if own_id is None:
        return
    count = max([found.entry.partitions if found.entry else 0, *(_number(one) + 1 for one in found.partitions)])
    existing = {_number(one): one for one in found.partitions}
    home_id = plan.node.directory_ids[home]
    settings = broker_settings(name, {} if found.entry is None else found.entry.settings)
    topic_id = own_id or (known.topic_id if known else new_topic_id())
    action: Action = "new"
    if known is not None:
        adopted = bool(own_id) and own_id != known.topic_id
        if adopted and not adopt:
            plan.refuse(
                f"the broker has its own topic {name}: its id is {known.topic_id}, ours is {own_id}",
                "delete it there, or give --adopt: our partitions then take its id, and its settings stay",
            )
            return
        if not _is_ours(plan, known):
            return
        topic_id, action = known.topic_id, "adopted" if adopted else "known"
        count = max(count, len(known.partitions))
        if found.entry is not None:
            _note_settings(plan, name, settings)
    elif found.entry is None:
        plan.notes.append(f"no topics file has the settings of {name}: it gets the broker's defaults")
    _note_collisions(plan, name)
    add = []
    for number in range(count):
        one = existing.get(number)
        before = None if known is None else known.partitions.get(number)
        if before is not None and action != "adopted" and (one is None or one.leader_epoch <= before.leader_epoch):
            continue
        if one is None and before is not None:
            continue
        if one is None:
            plan.notes.append(f"{name}-{number} has no directory: the broker creates it, empty")
        add.append(_partition(number, one, before, plan.node.directory_ids.get(one.directory) if one else home_id))
    if action == "known" and add:
        action = "grown"
    id_writes = tuple((one.path, one.topic_id) for one in found.partitions if one.topic_id != topic_id)
    if action != "known":
        _note_partitions(plan, found.partitions, ended)
    plan.topics.append(
        TopicPlan(name, action, topic_id, count, settings, tuple(add), id_writes, tuple(found.partitions))
    )


def _own_id(plan: HandoverPlan, name: str, found: Found, adopted: MetadataTopic | None) -> str | None:
    """Return the topic's id in our files, "" if none has any; if they differ, add a problem and return None.

    An interrupted adoption has left some with the id of `adopted`: those do not count as different.
    """
    ids = {one.topic_id for one in found.partitions if one.topic_id is not None}
    if found.entry is not None:
        ids.add(found.entry.topic_id)
    if adopted is not None and len(ids) > 1:
        ids.discard(adopted.topic_id)
    if len(ids) <= 1:
        return ids.pop() if ids else ""
    plan.refuse(
        f"the partitions of {name} belong to different topics: {', '.join(sorted(ids))}",
        "move away those that do not belong to this topic (partition.metadata in each has its id)",
    )
    return None


def _is_ours(plan: HandoverPlan, known: MetadataTopic) -> bool:
    """Return True if all replicas of the broker's topic are on this node; else add a problem and return False."""
    for number, partition in sorted(known.partitions.items()):
        if partition.replicas != (plan.node.node_id,):
            plan.refuse(
                f"the broker has {known.name}-{number} on the nodes {', '.join(map(str, partition.replicas))}",
                f"a handover needs all replicas on node {plan.node.node_id}: reassign the partition to it first",
            )
            return False
    return True


def _partition(
    number: int, one: PartitionSurvey | None, before: MetadataPartition | None, directory_id: str | None
) -> NewPartition:
    """Return the partition to add: its next leader's epoch is above those of its log and of the broker."""
    epoch = -1 if one is None else one.leader_epoch
    if before is not None:
        epoch = max(epoch, before.leader_epoch)
    assert directory_id is not None, "every data directory was read"
    return NewPartition(number, epoch + 1, 0 if before is None else before.partition_epoch + 1, directory_id)


def _number(one: PartitionSurvey) -> int:
    return one.topic_partition.partition


def broker_settings(topic: str, settings: Mapping[str, object]) -> dict[str, str]:
    """Return a topic's settings for a broker: a segment.bytes below its bound gets the internal name without a bound.
    """
    own = LogConfig.from_stored({**INTERNAL_SETTINGS.get(topic, {}), **settings}).overrides()
    if "segment.bytes" in own and int(own["segment.bytes"]) < SEGMENT_REFERENCE_FLOOR:
        size = own.pop("segment.bytes")
        own.setdefault("internal.segment.bytes", size)
    return own


def _note_settings(plan: HandoverPlan, name: str, ours: Mapping[str, str]) -> None:
    theirs = plan.metadata.image.topic_settings(name)
    if theirs != ours:
        changed = sorted(key for key in {**theirs, **ours} if theirs.get(key) != ours.get(key))
        plan.notes.append(f"the broker's settings of {name} stay unchanged; ours differ in {', '.join(changed)}")


def _note_collisions(plan: HandoverPlan, name: str) -> None:
    for other in plan.metadata.image.topics:
        if collides_with(name, other):
            plan.notes.append(f"{name} and {other} collide in the broker's metrics, where '.' and '_' are the same")


def _note_partitions(plan: HandoverPlan, found: Sequence[PartitionSurvey], ended: frozenset[Open]) -> None:
    for one in found:
        if one.torn is not None:
            plan.notes.append(f"{one.topic_partition} ends in a torn batch, which the broker cuts off: {one.torn}")
        if one.is_untrimmed:
            plan.refuse(
                f"{one.path}: reserved space follows the last batch, although the directory was closed cleanly",
                "a broker of Kafka 4.4 refuses such a log: `kafkalog repair --truncate-tail --apply` trims it",
            )
        for producer_id, offset in sorted(one.open_transactions.items(), key=lambda item: item[1]):
            if Open(producer_id, one.topic_partition) not in ended:
                plan.notes.append(
                    f"{one.topic_partition} has an open transaction from offset {offset} on, which no coordinator "
                    "will end: read_committed consumers stop there; once the broker runs, end it with "
                    f"kafka-transactions.sh abort --topic {one.topic_partition.topic} "
                    f"--partition {one.topic_partition.partition} --start-offset {offset}"
                )
        if one.epochs_problem is not None:
            plan.refuse(
                f"{one.path}/leader-epoch-checkpoint: {one.epochs_problem}",
                "a broker would take the whole directory offline: run `kafkalog repair --checkpoints --apply`, which "
                "keeps the readable lines and adds the epochs of the batches",
            )


def _plan_producer_ids(plan: HandoverPlan, found: Mapping[str, Found], next_producer_id: int) -> None:
    """Move the broker's next producer id above all ids in our records, or assigned to clients that may still write."""
    written = (one.largest_producer_id for topic in found.values() for one in topic.partitions)
    largest = max([next_producer_id - 1, *written])
    if largest < plan.metadata.image.next_producer_id:
        return
    if largest > MAX_PRODUCER_ID:
        plan.refuse(
            f"producer id {largest} leaves the broker no ids to assign",
            "such ids come from a program that makes up its producer ids; copy the records into new topics",
        )
        return
    plan.next_producer_id = (largest // PRODUCER_ID_BLOCK + 1) * PRODUCER_ID_BLOCK


def to_problem(error: KafkalogError) -> Problem:
    """Return the problem for an error."""
    where = f"{error.path}: " if error.path else ""
    return Problem(where + error.message, error.hint or "")
