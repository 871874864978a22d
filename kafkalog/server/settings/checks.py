"""Checks of topic settings from clients, with the reference's error messages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from kafkalog.config.keys import Key, parse_value
from kafkalog.config.topic import SEGMENT_REFERENCE_FLOOR, LogConfig, key_for
from kafkalog.errors import ConfigError, UnknownConfig

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


def check_value(key: Key, value: str) -> None:
    """Raise ConfigError unless the text is a valid value of the setting."""
    try:
        parsed = parse_value(key, value)
    except ConfigError:
        raise ConfigError(f"Invalid value {value} for configuration {key.name}: {_reason(key, value)}") from None
    if key.name == "segment.bytes" and parsed < SEGMENT_REFERENCE_FLOOR:
        words = f"Value must be at least {SEGMENT_REFERENCE_FLOOR}"
        raise ConfigError(f"Invalid value {value} for configuration {key.name}: {words}")


def _reason(key: Key, value: str) -> str:
    try:
        parsed = parse_value(key._replace(check=None), value)
    except ConfigError:
        if key.kind == "bool":
            return "Expected value to be either true or false"
        if key.kind == "list":
            return "Configuration values must not be empty."
        return f"Not a number of type {key.kind.upper()}"
    text = "" if key.check is None else key.check.text
    between = _BETWEEN.fullmatch(text)
    if between is not None:
        return f"Value must be at least {between[1]}" if parsed < float(between[1]) else (
            f"Value must be no more than {between[2]}"
        )
    if text.startswith("at least "):
        return f"Value must be {text}"
    if text.startswith("one of "):
        return f"String must be one of: {text.removeprefix('one of ')}"
    if key.name.endswith("cleanup.policy"):
        return f"String must be one of: {text}"
    return f"Value must be {text}"
