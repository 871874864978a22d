"""The report of a handover, as text and as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kafkalog.tools.handover.plan import HandoverPlan, TopicPlan


@dataclass(frozen=True)
class HandoverReport:
    """The result of a handover, or of its dry run if not `applied`."""

    plan: HandoverPlan
    applied: bool

    @property
    def ok(self) -> bool:
        """True if there is no problem and nothing is left to do."""
        return not self.plan.problems and (self.applied or self.plan.is_done)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Yield the report as text, line by line."""
        plan = self.plan
        state = "no metadata log yet" if plan.metadata.is_fresh else f"log ends at {plan.metadata.end_offset}"
        node = f"node {plan.node.node_id} of cluster {plan.node.cluster_id}"
        yield f"broker   {node}, metadata in {plan.metadata.path} ({state})"
        for topic in plan.topics:
            yield f"{topic.action:<8} {_describe(topic)}"
        if plan.next_producer_id is not None:
            yield f"ids      the broker assigns producer ids from {plan.next_producer_id} on"
        for note in plan.notes:
            yield f"note     {note}"
        for problem in plan.problems:
            yield f"refused  {problem.what}"
        for hint in dict.fromkeys(problem.hint for problem in plan.problems if problem.hint):
            yield f"hint     {hint}"
        yield self.summary()

    def summary(self) -> str:
        """Return one line with the number of topics."""
        count = sum(1 for topic in self.plan.topics if topic.action != "known")
        topics = f"{count} topic{'' if count == 1 else 's'}"
        if self.plan.problems:
            reasons = f"{len(self.plan.problems)} reason{'' if len(self.plan.problems) == 1 else 's'}"
            return f"refused for {reasons}, nothing was changed"
        if self.plan.is_done:
            return "nothing to hand over: the broker knows everything"
        if not self.applied:
            return f"{topics} to hand over, nothing was changed: give --apply"
        return f"{topics} handed over: start the broker (before that, `kafkalog handover --undo` reverts it)"

    def as_json(self) -> dict[str, Any]:
        """Return the verdict as plain values."""
        plan = self.plan
        return {
            "type": "handover", "ok": self.ok, "applied": self.applied,
            "cluster_id": plan.node.cluster_id, "node_id": plan.node.node_id, "metadata": plan.metadata.path,
            "topics": [_as_json(topic) for topic in plan.topics], "next_producer_id": plan.next_producer_id,
            "notes": list(plan.notes), "problems": [one._asdict() for one in plan.problems],
        }  # fmt: skip


def _describe(topic: TopicPlan) -> str:
    settings = ",".join(f"{name}={value}" for name, value in sorted(topic.settings.items()))
    partitions = f"{topic.partitions} partition{'' if topic.partitions == 1 else 's'}"
    text = f"{topic.name} {topic.topic_id}, {partitions}, {topic.records:,} offsets"
    return f"{text}, {settings}" if settings else text


def _as_json(topic: TopicPlan) -> dict[str, Any]:
    return {
        "topic": topic.name, "action": topic.action, "id": topic.topic_id, "partitions": topic.partitions,
        "settings": dict(topic.settings), "offsets": topic.records,
    }  # fmt: skip
