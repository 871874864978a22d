"""Topics and partitions of a read: subscribe, subscribePattern, assign."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kafkalog.errors import IllegalArgument
from kafkalog.spark.offsets import parse_assignment
from kafkalog.storage.names import INTERNAL_TOPICS, validate_topic
from kafkalog.types import TopicPartition

_KINDS: Final = ("assign", "subscribe", "subscribePattern")


@dataclass(frozen=True, slots=True)
class Subscribe:
    """All partitions of these topics, each of which must exist."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubscribePattern:
    """All partitions of topics whose name contains a match of the pattern, as in Spark; Kafka's own are left out."""

    pattern: str

    def matches(self, topic: str) -> bool:
        """Return True if the topic is one of them."""
        # internal topics are read by name only
        return topic not in INTERNAL_TOPICS and re.search(self.pattern, topic) is not None


@dataclass(frozen=True, slots=True)
class Assign:
    """These partitions, each of which must exist."""

    partitions: tuple[TopicPartition, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics of the partitions, each once."""
        return tuple(dict.fromkeys(one.topic for one in self.partitions))


Subscription = Subscribe | SubscribePattern | Assign


def subscription_of(given: Mapping[str, str]) -> Subscription | None:
    """Return the subscription in the options (lower-case names); None without one.

    Raises IllegalArgument for several of them and for a value that names nothing.
    """
    named = [kind for kind in _KINDS if kind.lower() in given]
    if not named:
        return None
    if len(named) > 1:
        raise IllegalArgument(f"{' and '.join(named)} are given", hint=f"give one of {', '.join(_KINDS)}")
    kind, text = named[0], given[named[0].lower()].strip()
    if kind == "subscribe":
        return Subscribe(tuple(_topics(text)))
    if kind == "assign":
        return Assign(parse_assignment(text))
    if not text:
        raise IllegalArgument("subscribePattern is empty", hint="give a regular expression, such as 'orders.*'")
    try:
        re.compile(text)
    except re.error as error:
        raise IllegalArgument(f"subscribePattern {text!r} is not a regular expression: {error}") from None
    return SubscribePattern(text)


def _topics(text: str) -> Iterable[str]:
    names = [name for part in text.split(",") if (name := part.strip())]
    if not names:
        raise IllegalArgument(f"subscribe is {text!r}, which names no topic", hint="give topics: 'orders,payments'")
    return dict.fromkeys(validate_topic(name) for name in names)
