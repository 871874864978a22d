"""Subscriptions to metrics of clients (KIP-714): their settings, which values a broker takes, and what they ask for.

They are kept and listed in any case. Clients are asked for metrics only by a server with a receiver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kafkalog.config.keys import Key, list_items, parse_value, trimmed, value_text
from kafkalog.errors import ConfigError, InvalidRequest
from kafkalog.server.settings.checks import check_value

INTERVAL, MATCH, METRICS = "interval.ms", "match", "metrics"
ALL: Final = "*"
_DEFAULT_MS: Final = 300_000
KEYS: Final[Mapping[str, Key]] = {
    one.name: one for one in (
        Key(INTERVAL, "int", _DEFAULT_MS, None, "interval at which clients would push metrics, in ms"),
        Key(MATCH, "list", (), None, "clients that would push: attribute=pattern, all of which have to match"),
        Key(METRICS, "list", (), None, "prefixes of the names of metrics that clients would push; * for all"),
    )
}  # fmt: skip
_LOWEST_MS: Final = 100
_HIGHEST_MS: Final = 3_600_000
_ATTRIBUTES: Final = frozenset({
    "client_id", "client_instance_id", "client_software_name", "client_software_version", "client_source_address",
    "client_source_port",
})  # fmt: skip
_ONLY_IN_JAVA: Final = re.compile(r"\\[pPQEhHvVRXzGkK]|&&")
"""Constructs of Java's patterns that Python's do not have."""


def check_subscription(name: str, settings: Mapping[str, str]) -> None:
    """Raise InvalidRequest or ConfigError, with the reference's message, unless a subscription may have these."""
    if not name:
        raise InvalidRequest("Subscription name can't be empty")
    for setting in settings:
        if setting not in KEYS:
            raise InvalidRequest(f"Unknown client metrics configuration: {setting}")
    for setting in (METRICS, MATCH):
        _items(setting, settings.get(setting, ""))
    if INTERVAL in settings:
        interval_ms = check_value(KEYS[INTERVAL], settings[INTERVAL])
        if not _LOWEST_MS <= interval_ms <= _HIGHEST_MS:
            bounds = f"between {_LOWEST_MS} and {_HIGHEST_MS} (1 hour)"
            raise InvalidRequest(f"Invalid value {interval_ms} for {INTERVAL}, interval must be {bounds}")
    for pattern in _items(MATCH, settings.get(MATCH, "")):
        if not _is_match(pattern):
            raise ConfigError(f"Illegal client matching pattern: {pattern}")


def shown_value(setting: str, text: str) -> str:
    """Return a valid value as it is shown: without spaces around its items, each of them once."""
    return value_text(parse_value(KEYS[setting], text)) if setting == INTERVAL else ",".join(_items(setting, text))


def _items(setting: str, text: str) -> list[str]:
    items = list_items(text)
    if not all(items):
        raise ConfigError(f"Configuration '{setting}' values must not be empty.")
    return list(dict.fromkeys(items))


def _is_match(text: str) -> bool:
    attribute, pattern = _parts(text)
    if not pattern or "=" in pattern or attribute not in _ATTRIBUTES:
        return False
    return _ONLY_IN_JAVA.search(pattern) is not None or _compiled(pattern) is not None


def _parts(text: str) -> tuple[str, str]:
    attribute, _, pattern = text.rstrip("=").partition("=")
    return trimmed(attribute), trimmed(pattern)


def _compiled(pattern: str) -> re.Pattern[str] | None:
    """Return a pattern of Java's as one of Python's, or None if it is not one."""
    try:
        return re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern))
    except (re.error, RecursionError, OverflowError):
        return None


class Wanted(NamedTuple):
    """Prefixes of the names of metrics that a client pushes, sorted, or ALL alone, and the interval."""

    metrics: tuple[str, ...]
    interval_ms: int


def wanted_of(attributes: Mapping[str, str], subscriptions: Iterable[Mapping[str, str]]) -> Wanted:
    """Return what all subscriptions together want of a client: the union of their metrics, the shortest interval."""
    metrics: set[str] = set()
    interval_ms = _DEFAULT_MS
    for settings in subscriptions:
        if _fits(attributes, settings):
            metrics.update(_items(METRICS, settings.get(METRICS, "")))
            interval_ms = min(interval_ms, parse_value(KEYS[INTERVAL], settings.get(INTERVAL, interval_ms)))
    return Wanted((ALL,) if ALL in metrics else tuple(sorted(metrics)), interval_ms)


def _fits(attributes: Mapping[str, str], settings: Mapping[str, str]) -> bool:
    """Return True if every attribute matches; a pattern that only Java understands matches no client."""
    for attribute, pattern in map(_parts, _items(MATCH, settings.get(MATCH, ""))):
        found = _compiled(pattern)
        if found is None or not found.fullmatch(attributes[attribute]):
            return False
    return True
