"""Parser of RE2's regular expressions into a tree; unknown syntax raises PatternError."""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

MAX_REPEATS: Final = 1000
MAX_DEPTH: Final = 100
_LAST: Final = 0x10FFFF
_DIGIT: Final = ((48, 57),)
_WORD: Final = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE: Final = ((9, 10), (12, 13), (32, 32))
_CLASSES: Final = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX: Final = {
    "alnum": ((48, 57), (65, 90), (97, 122)), "alpha": ((65, 90), (97, 122)), "ascii": ((0, 127),),
    "blank": ((9, 9), (32, 32)), "cntrl": ((0, 31), (127, 127)), "digit": _DIGIT, "graph": ((33, 126),),
    "lower": ((97, 122),), "print": ((32, 126),), "punct": ((33, 47), (58, 64), (91, 96), (123, 126)),
    "space": ((9, 13), (32, 32)), "upper": ((65, 90),), "word": _WORD, "xdigit": ((48, 57), (65, 70), (97, 102)),
}  # fmt: skip
_LETTERS: Final = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_COUNT_CHARACTERS: Final = 12
"""Length of the longest repetition, such as {1000,1000}, plus one."""
_FLAGS: Final = frozenset("imsU")
Ranges = tuple[tuple[int, int], ...]


class PatternError(ValueError):
    """An invalid regular expression, or one with unsupported syntax."""


class AssertionKind(Enum):
    """Kinds of assertions, which match at a place without consuming a character."""

    TEXT_START = "\\A"
    TEXT_END = "\\z"
    LINE_START = "^"
    LINE_END = "$"
    WORD_EDGE = "\\b"
    NO_WORD_EDGE = "\\B"


class CharacterSet(NamedTuple):
    """One character in these ranges, or outside of them; `folds` ignores case."""

    ranges: Ranges
    is_negated: bool = False
    folds: bool = False

    def has(self, character: str) -> bool:
        """Return True if the character is in the set."""
        found = self._has(character) or (self.folds and any(map(self._has, (character.lower(), character.upper()))))
        return found != self.is_negated

    def _has(self, character: str) -> bool:
        if len(character) != 1:
            return False
        code = ord(character)
        return any(low <= code <= high for low, high in self.ranges)


class Assertion(NamedTuple):
    """An assertion at a place in the text."""

    kind: AssertionKind


class Sequence(NamedTuple):
    """Parts one after the other."""

    parts: tuple[Node, ...]


class Alternatives(NamedTuple):
    """One of several parts."""

    parts: tuple[Node, ...]


class Repeated(NamedTuple):
    """A part repeated `least` to `most` times; `most` None is any number."""

    part: Node
    least: int
    most: int | None


Node = CharacterSet | Assertion | Sequence | Alternatives | Repeated


def parse(text: str) -> Node:
    """Return the tree of a pattern; raise PatternError if it is invalid."""
    parser = _Parser(text)
    node = parser.alternatives("", 0)
    if parser.position < len(text):
        raise PatternError("unmatched )")
    return node


class _Parser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def peek(self, prefix: str) -> bool:
        return self.text.startswith(prefix, self.position)

    def take(self, prefix: str) -> bool:
        if not self.peek(prefix):
            return False
        self.position += len(prefix)
        return True

    def next(self) -> str:
        if self.position == len(self.text):
            raise PatternError("the pattern ends unexpectedly")
        self.position += 1
        return self.text[self.position - 1]

    def alternatives(self, flags: str, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise PatternError(f"more than {MAX_DEPTH} nested groups")
        parts: list[Node] = []
        while True:
            part, flags = self.sequence(flags, depth)
            parts.append(part)
            if not self.take("|"):
                return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def sequence(self, flags: str, depth: int) -> tuple[Node, str]:
        """Parse the parts up to a | or ); return them and the flags in effect after them."""
        parts: list[Node] = []
        while self.position < len(self.text) and self.text[self.position] not in "|)":
            if self.take("(?"):
                group, flags = self.special_group(flags, depth)
                if group is None:
                    continue
                part = group
            elif self.take("\\Q"):
                end = self.text.find("\\E", self.position)
                end = len(self.text) if end < 0 else end
                parts += [_literal(character, flags) for character in self.text[self.position : end]]
                self.position = min(end + 2, len(self.text))
                continue
            else:
                part = self.atom(flags, depth)
            parts.append(self.repeated(part))
        return Sequence(tuple(parts)), flags

    def special_group(self, flags: str, depth: int) -> tuple[Node | None, str]:
        """Parse the text after `(?`: return a group, or None for flags that apply from here on."""
        if self.take("P<") or (self.peek("<") and not self.peek("<=") and not self.peek("<!") and self.take("<")):
            name = self.up_to(">")
            if not (name.isascii() and name.replace("_", "a").isalnum()):
                raise PatternError(f"{name!r} is not a valid group name")
            return self.group(flags, depth), flags
        changed, is_on = set(flags), True
        while (character := self.next()) not in ":)":
            if character == "-" and is_on:
                is_on = False
            elif character not in _FLAGS:
                raise PatternError(f"unknown group syntax (?{character}")
            elif is_on:
                changed.add(character)
            else:
                changed.discard(character)
        after = "".join(sorted(changed))
        return (None, after) if character == ")" else (self.group(after, depth), flags)

    def group(self, flags: str, depth: int) -> Node:
        inner = self.alternatives(flags, depth + 1)
        if not self.take(")"):
            raise PatternError("unmatched (")
        return inner

    def up_to(self, end: str) -> str:
        stop = self.text.find(end, self.position)
        if stop < 0:
            raise PatternError(f"missing {end}")
        found = self.text[self.position : stop]
        self.position = stop + len(end)
        return found

    def repeated(self, part: Node) -> Node:
        count = self.count()
        if count is None:
            return part
        self.take("?")  # greedy or not makes no difference if all of a text is matched
        if self.count() is not None:
            raise PatternError("a repetition is repeated")
        return Repeated(part, *count)

    def count(self) -> tuple[int, int | None] | None:
        """Parse a repetition; return None if there is none. A `{` that starts none is a character."""
        for sign, found in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self.take(sign):
                return found
        if not self.peek("{"):
            return None
        stop = self.text.find("}", self.position, self.position + _COUNT_CHARACTERS)
        low, comma, high = self.text[self.position + 1 : max(stop, 0)].partition(",")
        if stop < 0 or not _is_number(low) or (high and not _is_number(high)):
            return None
        self.position = stop + 1
        least = int(low)
        most = least if not comma else int(high) if high else None
        if least > MAX_REPEATS or (most is not None and not least <= most <= MAX_REPEATS):
            raise PatternError(f"{low}{comma}{high} is not a valid number of repetitions: 0 to {MAX_REPEATS}")
        return least, most

    def atom(self, flags: str, depth: int) -> Node:
        character = self.next()
        if character == "(":
            return self.group(flags, depth)
        if character == "[":
            return self.character_class(flags)
        if character == ".":
            return CharacterSet(() if "s" in flags else ((10, 10),), is_negated=True)
        if character == "^":
            return Assertion(AssertionKind.LINE_START if "m" in flags else AssertionKind.TEXT_START)
        if character == "$":
            return Assertion(AssertionKind.LINE_END if "m" in flags else AssertionKind.TEXT_END)
        if character in "*+?":
            raise PatternError(f"{character} has nothing to repeat")
        if character != "\\":
            return _literal(character, flags)
        for kind in AssertionKind:
            if kind.value.startswith("\\") and self.take(kind.value[1:]):
                return Assertion(kind)
        ranges, is_negated = self.escape()
        return CharacterSet(ranges, is_negated, "i" in flags)

    def escape(self) -> tuple[Ranges, bool]:
        """Parse the text after a backslash; return ranges, and True if they are negated."""
        character = self.next()
        if character.lower() in _CLASSES:
            return _CLASSES[character.lower()], character.isupper()
        if character in _LETTERS:
            code = _LETTERS[character]
        elif character == "x":
            digits = self.up_to("}") if self.take("{") else self.next() + self.next()
            if not digits or len(digits) > 6 or set(digits) - set("0123456789abcdefABCDEF") or int(digits, 16) > _LAST:
                raise PatternError(f"\\x{digits} is not a character")
            code = int(digits, 16)
        elif character.isascii() and not character.isalnum():
            code = ord(character)
        else:
            raise PatternError(f"unknown escape \\{character}")
        return ((code, code),), False

    def character_class(self, flags: str) -> Node:
        is_negated = self.take("^")
        ranges: list[tuple[int, int]] = []
        is_first = True
        while is_first or not self.take("]"):
            is_first = False
            if self.take("[:"):
                without = self.take("^")
                name = self.up_to(":]")
                if name not in _POSIX:
                    raise PatternError(f"unknown class [:{name}:]")
                ranges += _without(_POSIX[name]) if without else _POSIX[name]
                continue
            low = self.class_item(ranges)
            if low is None:
                continue
            high = low
            if self.peek("-") and not self.peek("-]"):
                self.position += 1
                end = self.class_item([])
                if end is None or end < low:
                    raise PatternError("a character range ends before it starts")
                high = end
            ranges.append((low, high))
        return CharacterSet(tuple(ranges), is_negated, "i" in flags)

    def class_item(self, ranges: list[tuple[int, int]]) -> int | None:
        """Parse an item in [ ]: return a character's code, or None for a class, which is added to `ranges`."""
        character = self.next()
        if character != "\\":
            return ord(character)
        found, is_negated = self.escape()
        if not is_negated and len(found) == 1 and found[0][0] == found[0][1]:
            return found[0][0]
        ranges += _without(found) if is_negated else found
        return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def _literal(character: str, flags: str) -> Node:
    return CharacterSet(((ord(character), ord(character)),), folds="i" in flags)


def _without(ranges: Ranges) -> Ranges:
    """Return all characters except those of the sorted `ranges`."""
    found = []
    low = 0
    for first, last in ranges:
        if low < first:
            found.append((low, first - 1))
        low = last + 1
    return (*found, (low, _LAST))
