"""The records to redact and what becomes of them, as values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kafkalog._core.clean.redact_rows import EMPTY, TOMBSTONE
from kafkalog.errors import IllegalArgument
from kafkalog.where.expression import Expression, parse
from kafkalog.where.nodes import And

MODES: Final[Mapping[str, int]] = {"tombstone": TOMBSTONE, "empty": EMPTY}
_OFFSET: Final = re.compile(r"\s*(\d{1,10}):(\d{1,19})\s*")


@dataclass(frozen=True)
class Wanted:
    """The records of a topic to redact: those that a key, an offset of a partition, or a condition names.

    `typed` holds the decoders of the condition, as the keywords of `log.scan`.
    """

    keys: frozenset[bytes] = frozenset()
    offsets: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    where: str | None = None
    typed: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        keys: Iterable[bytes],
        offsets: Mapping[int, Iterable[int]],
        where: str | None,
        typed: Mapping[str, Any],
    ) -> Wanted:
        """Check and return what is wanted; IllegalArgument for nothing, or for something that is invalid."""
        own = frozenset(_key(key) for key in keys)
        rising = {partition: tuple(sorted({_offset(one) for one in found})) for partition, found in offsets.items()}
        if not own and not any(rising.values()) and where is None:
            raise IllegalArgument("no records are named", hint="give keys, offsets or a condition")
        if where is not None:
            parse(where)
        return cls(own, rising, where, dict(typed))

    @property
    def condition(self) -> Expression | None:
        """The condition without the records that have nothing left to decode, so that it can be evaluated again."""
        if self.where is None:
            return None
        given = parse(self.where)
        sizes = {"value": "size", "key": "key_size"}
        held = [
            parse(f"{name} != 0 or {name} is null").node
            for root, name in sizes.items()
            if root in given.typed_roots & self.typed.keys()
        ]
        own = given.node.parts if isinstance(given.node, And) else (given.node,)
        return Expression(And((*held, *own))) if held else given


def _key(given: object) -> bytes:
    if not isinstance(given, bytes | bytearray | memoryview):
        raise IllegalArgument(f"{given!r} is no key", hint='give a list of bytes, such as [b"user-1"]')
    return bytes(given)


def _offset(given: object) -> int:
    if not isinstance(given, int) or not 0 <= given < 1 << 63:
        raise IllegalArgument(f"{given!r} is no offset", hint="give numbers from 0 on, such as {0: [17, 18]}")
    return given


@dataclass(frozen=True)
class Change:
    """The change to each record: `value` is TOMBSTONE or EMPTY, headers go, and `erases_key` empties the key."""

    value: int
    erases_key: bool = False

    @property
    def name(self) -> str:
        """The name of the change, as `--with` takes it."""
        return next(name for name, value in MODES.items() if value == self.value)


def parse_offsets(text: str) -> dict[int, list[int]]:
    """Return the offsets of each partition in `0:17,2:4`, separated by commas, spaces or lines; IllegalArgument.

    >>> parse_offsets("0:17, 2:4 0:18")
    {0: [17, 18], 2: [4]}
    """
    found: dict[int, list[int]] = {}
    for word in re.split(r"[,\s]+", text.strip()):
        matched = _OFFSET.fullmatch(word)
        if matched is None or int(matched[2]) >= 1 << 63:
            raise IllegalArgument(f"{word[:40]!r} is no PARTITION:OFFSET", hint="write 0:17,2:4")
        found.setdefault(int(matched[1]), []).append(int(matched[2]))
    return found
