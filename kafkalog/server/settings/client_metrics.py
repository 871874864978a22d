"""Subscriptions to metrics of clients (KIP-714): their settings, and which values a broker takes.

They are kept and listed as by a broker without a plug-in that receives metrics: no client is asked for any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kafkalog.config.keys import Key
from kafkalog.errors import ConfigError, InvalidRequest
from kafkalog.server.settings.checks import check_value

INTERVAL, MATCH, METRICS = "interval.ms", "match", "metrics"
KEYS: Final[Mapping[str, Key]] = {
    one.name: one for one in (
        Key(INTERVAL, "int", 300_000, None, "interval at which clients would push metrics, in ms"),
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
        check_value(KEYS[INTERVAL], settings[INTERVAL])
        interval_ms = int(settings[INTERVAL])
        if not _LOWEST_MS <= interval_ms <= _HIGHEST_MS:
            bounds = f"between {_LOWEST_MS} and {_HIGHEST_MS} (1 hour)"
            raise InvalidRequest(f"Invalid value {interval_ms} for {INTERVAL}, interval must be {bounds}")
    for pattern in _items(MATCH, settings.get(MATCH, "")):
        if not _is_match(pattern):
            raise ConfigError(f"Illegal client matching pattern: {pattern}")


def shown_value(setting: str, text: str) -> str:
    """Return a valid value as it is shown: without spaces around its items, each of them once."""
    return text.strip() if setting == INTERVAL else ",".join(_items(setting, text))


def _items(setting: str, text: str) -> list[str]:
    if not text.strip():
        return []
    items = [one.strip() for one in text.split(",")]
    if not all(items):
        raise ConfigError(f"Configuration '{setting}' values must not be empty.")
    return list(dict.fromkeys(items))


def _is_match(text: str) -> bool:
    attribute, _, pattern = text.rstrip("=").partition("=")
    if not pattern or "=" in pattern or attribute.strip() not in _ATTRIBUTES:
        return False
    if _ONLY_IN_JAVA.search(pattern):
        return True
    try:
        re.compile(re.sub(r"\(\?<(?=[A-Za-z])", "(?P<", pattern.strip()))
    except (re.error, RecursionError, OverflowError):
        return False
    return True
