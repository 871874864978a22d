"""Checks of topic settings from clients, with the reference's error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from kafkalog.config.keys import (
    Check,
    Key,
    OrderedNames,
    at_least,
    has_empty_item,
    parse_value,
    typed_value,
    value_text,
)
from kafkalog.config.topic import SEGMENT_REFERENCE_FLOOR, LogConfig, key_for
from kafkalog.errors import ConfigError, UnknownConfig

_POLICIES: Final = ("compact", "delete")
_BETWEEN: Final = re.compile(r"(-?[0-9]+) to (-?[0-9]+)")


def checked_topic_settings(
    settings: Mapping[str, str | None], defaults: Mapping[str, object] | None = None
) -> dict[str, str]:
    """Check and return the settings of a topic. Raise ConfigError.

    `defaults` are the node's. `segment.bytes` has the reference's lower bound, the only one that clients know.
    """
    if not settings:
        return {}
    for name in settings:
        topic_key(name)
    nulls = [name for name, value in settings.items() if value is None]
    if nulls:
        raise ConfigError(f"Null value not supported for topic configs: {','.join(nulls)}")
    given = {name: value for name, value in settings.items() if value is not None}
    for name, value in given.items():
        check_value(key_for(name), value)
    return check_together(given, defaults)


def check_together(settings: Mapping[str, str], defaults: Mapping[str, object] | None) -> dict[str, str]:
    """Return valid settings in stored form. Raise ConfigError if they contradict each other or the node's."""
    try:
        return LogConfig.from_stored(settings, defaults).overrides()
    except ConfigError:
        values = {name: parse_value(key_for(name), value) for name, value in {**(defaults or {}), **settings}.items()}
        low, high = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        ) from None


def topic_key(name: str) -> Key:
    """Return the definition of a topic's setting by its dotted name. Raise ConfigError if it is unknown."""
    with suppress(UnknownConfig):
        key = key_for(name)
        if key.name == name:
            return key
    raise ConfigError(f"Unknown topic config name: {name}")


def check_value(key: Key, value: str) -> Any:
    """Return the parsed value of a setting. Raise ConfigError unless the text is a valid one."""
    try:
        parsed = typed_value(key, value)
    except ConfigError:
        expected = "Expected value to be either true or false" if key.kind == "bool" else (
            f"Not a number of type {key.kind.upper()}"
        )
        raise ConfigError(f"Invalid value {value} for configuration {key.name}: {expected}") from None
    if has_empty_item(key, parsed):
        raise ConfigError(f"Configuration '{key.name}' values must not be empty.")
    check = at_least(SEGMENT_REFERENCE_FLOOR) if key.name == "segment.bytes" else key.check
    if check is None or check.passes(parsed):
        return parsed
    reason = _reason(key, check, parsed)
    raise ConfigError(f"Invalid value {_shown(key, parsed)} for configuration {key.name}: {reason}")


def _shown(key: Key, parsed: Any) -> str:
    """Return a value that is out of range as a broker shows it."""
    if isinstance(parsed, OrderedNames):
        return next(one for one in parsed.order if one not in _POLICIES)
    return f"[{', '.join(parsed)}]" if key.kind == "list" else value_text(parsed)


def _reason(key: Key, check: Check, parsed: Any) -> str:
    between = _BETWEEN.fullmatch(check.text)
    if between is not None:
        return f"Value must be at least {between[1]}" if parsed < float(between[1]) else (
            f"Value must be no more than {between[2]}"
        )
    if check.text.startswith("one of "):
        return f"String must be one of: {check.text.removeprefix('one of ')}"
    if key.name.endswith("cleanup.policy"):
        return f"String must be one of: {check.text}"
    return f"Value must be {check.text}"
