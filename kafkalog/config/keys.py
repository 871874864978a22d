"""Building blocks of settings tables: rows, rules, parsing of text, and immutable values.

`config/topic.py` has the settings of a topic, `config/broker.py` those of a whole store.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar, Final, Literal, NamedTuple, Self

from kafkalog.errors import ConfigError, UnknownConfig

_BLANKS: Final = "".join(map(chr, range(ord(" ") + 1)))
"""What a broker removes around a value: Python's own blanks are fewer and more."""
_BLANKS_IN_LIST: Final = " \t\n\v\f\r"
"""What it removes around a comma."""
_INT: Final = re.compile(r"[+-]?0*[0-9]{1,30}")
_DOUBLE: Final = re.compile(r"[+-]?(NaN|Infinity|([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?[fFdD]?)")
MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1

Kind = Literal["bool", "int", "long", "double", "string", "list"]
_LIMITS: Final = {"int": MAX_INT, "long": MAX_LONG}


class Check(NamedTuple):
    """A rule for one value: its text and its test."""

    text: str
    passes: Callable[[Any], bool]


class Key(NamedTuple):
    """One row: dotted name, type, default, rule (None: any value of the type), description.

    `dynamic` is False if a change requires a reopened store; all topic settings are dynamic.
    """

    name: str
    kind: Kind
    default: object
    check: Check | None
    doc: str
    dynamic: bool = True

    @property
    def attribute(self) -> str:
        """The name as an attribute."""
        return self.name.replace(".", "_")


def at_least(low: float) -> Check:
    """Return a rule that accepts numbers of at least `low`."""
    return Check(f"at least {low}", lambda value: bool(value >= low))


def between(low: float, high: float) -> Check:
    """Return a rule that accepts numbers from `low` to `high`, both included."""
    return Check(f"{low} to {high}", lambda value: bool(low <= value <= high))


def one_of(*names: str) -> Check:
    """Return a rule that accepts these words, case-sensitive."""
    return Check("one of " + ", ".join(names), lambda value: value in names)


class Table:
    """Rows by name, and the rejected names with their reasons."""

    def __init__(self, keys: Iterable[Key], refused: Mapping[str, str], noun: str, where: str) -> None:
        self.keys = tuple(keys)
        self.refused = dict(refused)
        self._noun = noun
        self._where = where
        self.defaults = {key.attribute: key.default for key in self.keys}
        """Default of each attribute, in the order of the rows."""
        self._by_name = {key.name: key for key in self.keys} | {key.attribute: key for key in self.keys}

    def find(self, name: str) -> Key:
        """Return the row for a dotted or attribute name; raise UnknownConfig with the reason or similar names."""
        key = self._by_name.get(name)
        if key is not None:
            return key
        if not isinstance(name, str):
            raise UnknownConfig(f"unknown configuration {ascii(name)}", hint="the name of a configuration is a str")
        dotted = name.replace("_", ".")
        reason = self.refused.get(dotted)
        if reason is not None:
            raise UnknownConfig(f"{dotted} is not a {self._noun}: {reason}", hint="remove it")
        from difflib import get_close_matches

        similar = get_close_matches(dotted, [key.name for key in self.keys], n=3, cutoff=0.6)
        hint = f"did you mean {', '.join(similar)}?" if similar else f"`{self._where}` lists them all"
        raise UnknownConfig(f"unknown configuration {ascii(name)}", hint=hint)


class Settings:
    """A value for each row of a table, as plain attributes (dots become underscores); immutable.

    Keywords are attribute names; `from_mapping` accepts dotted names and text as well. ConfigError names the value and
    what is accepted; UnknownConfig lists similar names.
    """

    TABLE: ClassVar[Table]
    _set: dict[str, object]
    __slots__ = ("_set",)

    def __init__(self, **values: object) -> None:
        self._fill(self._named(values))

    @classmethod
    def from_mapping(cls, values: Mapping[str, object] | None = None, **more: object) -> Self:
        """Return these settings, by dotted or attribute name, as text or as values."""
        created = cls.__new__(cls)
        created._fill(cls._named({**(values or {}), **more}))
        return created

    @classmethod
    def _named(cls, values: Mapping[str, object]) -> dict[str, object]:
        return {cls.TABLE.find(name).name: value for name, value in values.items()}

    def _fill(self, values: dict[str, object]) -> None:
        """Set every attribute to its value, or to the default if it is missing or None."""
        given = {name: parse_value(self.TABLE.find(name), value) for name, value in values.items() if value is not None}
        put = object.__setattr__
        for attribute, default in self.TABLE.defaults.items():
            put(self, attribute, default)
        for name, value in given.items():
            put(self, self.TABLE.find(name).attribute, value)
        put(self, "_set", given)

    def _merged(self, values: Mapping[str, object]) -> dict[str, object]:
        """Return the explicit settings, updated with `values`; None removes a setting."""
        changed = self._named(values)
        return {**{name: value for name, value in self._set.items() if name not in changed}, **changed}

    def overrides(self) -> dict[str, str]:
        """Return the explicit settings: dotted name to text, sorted by name, as `from_mapping` accepts them."""
        return {name: value_text(value) for name, value in sorted(self._set.items())}

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable: use replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a {type(self).__name__} is immutable")

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.TABLE.defaults)

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self.TABLE.defaults))

    def __reduce__(self) -> tuple[object, ...]:
        return type(self).from_mapping, (self.overrides(),)

    def __repr__(self) -> str:
        settings = ", ".join(f"{self.TABLE.find(name).attribute}={value!r}" for name, value in self.overrides().items())
        return f"{type(self).__name__}({settings})"


class OrderedNames(frozenset[str]):
    """A set of names that keeps the order in which they were given, for its text."""

    __slots__ = ("order",)
    order: tuple[str, ...]

    def __new__(cls, names: Iterable[str]) -> Self:
        """Create the set; names given twice count once."""
        order = tuple(dict.fromkeys(names))
        created = super().__new__(cls, order)
        created.order = order
        return created

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.order,)


def parse_value(key: Key, value: object) -> Any:
    """Return the value, parsed if it is text, and checked against its type, range and rule.

    Raises ConfigError if a check fails.
    """
    parsed = typed_value(key, value)
    if has_empty_item(key, parsed):
        raise ConfigError(f"{key.name}={value!r} is not a list: an item of the list is empty")
    if key.check is not None and not key.check.passes(parsed):
        raise ConfigError(f"{key.name}={value!r} is not accepted", hint=f"it takes {key.check.text}")
    return parsed


def typed_value(key: Key, value: object) -> Any:
    """Return the value, parsed if it is text, as its type. Raises ConfigError for a value that is none of the type."""
    try:
        parsed = _PARSERS[key.kind](trimmed(value) if isinstance(value, str) else value)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"{key.name}={value!r} is not {_TYPE_NAMES[key.kind]}: {error}") from None
    if isinstance(key.default, frozenset):
        parsed = OrderedNames(parsed)
    limit = _LIMITS.get(key.kind)
    if limit is not None and not -limit - 1 <= parsed <= limit:
        raise ConfigError(f"{key.name}={value!r} does not fit the type {key.kind}")
    return parsed


def has_empty_item(key: Key, parsed: Any) -> bool:
    """Return True for a list with an empty item, unless the setting's rule takes it."""
    return key.kind == "list" and "" in parsed and (key.check is None or not key.check.passes(parsed))


def trimmed(text: str) -> str:
    """Return a text without the blanks and control characters around it, as a broker reads a value."""
    return text.strip(_BLANKS)


def list_items(text: str) -> list[str]:
    """Return the items of a list's text as a broker splits it, empty ones too; none for a blank text."""
    text = trimmed(text)
    return [item.strip(_BLANKS_IN_LIST) for item in text.split(",")] if text else []


def value_text(value: object) -> str:
    """Return a value as text for a properties file: true/false, items joined by commas, None as empty text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, OrderedNames):
        return ",".join(value.order)
    if isinstance(value, frozenset):
        return ",".join(sorted(value))
    if isinstance(value, tuple):
        return ",".join(value)
    return "" if value is None else str(value)


def _double_text(value: float) -> str:
    """Return a number as Java writes it: 0.5, 1.0E-4, Infinity."""
    if not math.isfinite(value):
        return str(value).replace("inf", "Infinity").replace("nan", "NaN")
    if not value or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    from decimal import Decimal

    digits, _, exponent = f"{Decimal(repr(value)).normalize():E}".partition("E")
    return f"{digits}{'' if '.' in digits else '.0'}E{int(exponent)}"


def _parse_bool(value: object) -> bool:
    if isinstance(value, str):
        value = {"true": True, "false": False}.get(value.lower(), value)
    if not isinstance(value, bool):
        raise ValueError("give true or false")
    return value


def _parse_int(value: Any) -> int:
    if isinstance(value, str):
        if not _INT.fullmatch(value):
            raise ValueError("give a whole number")
        return int(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ValueError("give a whole number")
    return int(value)


def _parse_double(value: Any) -> float:
    if isinstance(value, bool):
        raise ValueError("give a number")
    if isinstance(value, str):
        if not _DOUBLE.fullmatch(value):
            raise ValueError("give a number")
        value = value.rstrip("fFdD")
    return float(value)


def _parse_string(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("give text")
    return value


def _parse_list(value: Any) -> tuple[str, ...]:
    items: Iterable[Any] = value
    if isinstance(value, str):
        items = list_items(value)
    elif isinstance(value, frozenset):
        items = value.order if isinstance(value, OrderedNames) else sorted(value)
    listed = tuple(dict.fromkeys(items))
    if not all(isinstance(item, str) for item in listed):
        raise ValueError("a list of give text")
    return listed


_PARSERS: Final[dict[str, Callable[[Any], Any]]] = {
    "bool": _parse_bool,
    "int": _parse_int,
    "long": _parse_int,
    "double": _parse_double,
    "string": _parse_string,
    "list": _parse_list,
}
_TYPE_NAMES: Final = {
    "bool": "a bool", "int": "an int", "long": "a long",
    "double": "a number", "string": "text", "list": "a list",
}  # fmt: skip
