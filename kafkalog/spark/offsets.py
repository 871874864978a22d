"""Offsets of many partitions in the JSON of Spark's Kafka source: `{"topic":{"0":23,"1":-2}}`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Final

from kafkalog.errors import IllegalArgument, InvalidTopic
from kafkalog.storage.names import MAX_OFFSET, MAX_PARTITION, validate_topic
from kafkalog.types import TopicPartition

LATEST_OFFSET: Final = -1
"""Code for the partition's end in offset JSON."""
EARLIEST_OFFSET: Final = -2
"""Code for the partition's start in offset JSON."""
_MAX_CHARS: Final = 200


def parse_offsets(text: str, option: str) -> dict[TopicPartition, int]:
    """Parse an option's JSON into offsets by partition; -2 is the earliest, -1 the latest.

    Raises IllegalArgument, naming the option, for any other text.
    """
    return _parsed(text, option, '{"a":{"0":23,"1":-1}}', EARLIEST_OFFSET)


def parse_timestamps(text: str, option: str) -> dict[TopicPartition, int]:
    """Parse an option's JSON into times (ms) by partition; raise IllegalArgument as `parse_offsets` does."""
    return _parsed(text, option, '{"a":{"0":1700000000000}}', 0)


def _parsed(text: str, option: str, example: str, least: int) -> dict[TopicPartition, int]:
    try:
        found = _flat(_loaded(text), least)
    except (ValueError, RecursionError, InvalidTopic) as error:
        raise IllegalArgument(f"{option} is {_shorten(text)}: {_reason(error)}", hint=f"give JSON: {example}") from None
    if not found:
        raise IllegalArgument(f"{option} is {_shorten(text)}, which names no partition", hint=f"give JSON: {example}")
    return found


def parse_assignment(text: str) -> tuple[TopicPartition, ...]:
    """Parse `{"topic":[0,1]}` into partitions, each once, in order; raise IllegalArgument for anything else."""
    example = 'give JSON: {"a":[0,1],"b":[2]}'
    try:
        loaded = _loaded(text)
        pairs = [(validate_topic(topic), one) for topic in loaded for one in _list(loaded[topic])]
        found = [TopicPartition(topic, _partition(one)) for topic, one in pairs]
    except (ValueError, RecursionError, InvalidTopic) as error:
        raise IllegalArgument(f"assign is {_shorten(text)}: {_reason(error)}", hint=example) from None
    if not found:
        raise IllegalArgument(f"assign is {_shorten(text)}, which names no partition", hint=example)
    return tuple(dict.fromkeys(found))


def format_offsets(offsets: Mapping[TopicPartition, int]) -> str:
    """Format offsets as the Kafka source's JSON, topics and partitions in order."""
    return json.dumps(offsets_to_dict(offsets), separators=(",", ":"))


def offsets_to_dict(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Return offsets as nested dicts, which a streaming reader passes to Spark and Spark writes as JSON."""
    nested: dict[str, dict[str, int]] = {}
    for one in sorted(offsets):
        nested.setdefault(one.topic, {})[str(one.partition)] = offsets[one]
    return nested


def offsets_from_dict(nested: Mapping[str, object]) -> dict[TopicPartition, int]:
    """Return offsets from nested dicts, as a checkpoint has them; raise IllegalArgument for another shape."""
    try:
        return _flat(dict(nested), EARLIEST_OFFSET)
    except (ValueError, TypeError, InvalidTopic) as error:
        raise IllegalArgument(
            f"offsets are {_shorten(repr(nested))}: {_reason(error)}",
            hint="the checkpoint is damaged, or belongs to another source",
        ) from None


def _loaded(text: str) -> dict[str, object]:
    loaded = json.loads(text, object_pairs_hook=_without_duplicates)
    if not isinstance(loaded, dict):
        raise ValueError("not a JSON object")
    return loaded


def _without_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _flat(nested: dict[str, object], least: int) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for topic, numbers in nested.items():
        validate_topic(topic)
        if not isinstance(numbers, dict):
            raise ValueError(f"{topic} has no offsets by partition")
        for partition, number in numbers.items():
            if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= MAX_OFFSET:
                raise ValueError(f"{topic} {partition} has {number!r}, which is not valid")
            found[TopicPartition(topic, _partition(partition))] = number
    return found


def _list(value: object) -> Iterable[object]:
    if not isinstance(value, list):
        raise ValueError("a topic's partitions must be a list")
    return value


def _partition(number: object) -> int:
    if isinstance(number, str) and number.isascii() and number.isdigit() and len(number) <= 10:
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= MAX_PARTITION:
        raise ValueError(f"{number!r} is not a partition number")
    return number


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, InvalidTopic) else str(error)


def _shorten(text: str) -> str:
    return repr(text if len(text) <= _MAX_CHARS else text[:_MAX_CHARS] + "...")
