"""The levels of the process's loggers as a config resource (KIP-412).

Changes last until the process ends; nothing is kept on disk.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from kafkalog.errors import ConfigError, InvalidRequest
from kafkalog.server.settings.kinds import Change, RequestedChange

ROOT: Final = "root"
LEVELS: Final[Mapping[str, int]] = {
    "DEBUG": logging.DEBUG, "ERROR": logging.ERROR, "FATAL": logging.CRITICAL, "INFO": logging.INFO,
    "TRACE": 5, "WARN": logging.WARNING,
}  # fmt: skip
"""Levels by the reference's names; Python itself has none below DEBUG."""


def logger_levels() -> dict[str, str]:
    """Return the effective level of each existing logger, sorted by name; `root` is the root logger."""
    known = logging.root.manager.loggerDict
    found = {name: one for name, one in known.items() if isinstance(one, logging.Logger)}
    levels = {name: _level_name(found[name].getEffectiveLevel()) for name in sorted(found)}
    return {**levels, ROOT: _level_name(logging.root.getEffectiveLevel())}


def _level_name(level: int) -> str:
    """Return the lowest named level that is at least `level`; FATAL if there is none."""
    fitting = [(number, name) for name, number in LEVELS.items() if number >= level]
    return min(fitting)[1] if fitting else "FATAL"


def set_levels(changes: Iterable[RequestedChange], validate_only: bool) -> None:
    """Set the levels of existing loggers, all or none: `changes` have name, config_operation, value.

    A logger whose level is removed inherits its parent's. Raises InvalidRequest, ConfigError.
    """
    known, new_levels = logger_levels(), {}
    for one in changes:
        if one.config_operation in (Change.APPEND, Change.SUBTRACT):
            operation = Change(one.config_operation).name
            raise InvalidRequest(f"{operation} operation is not allowed for the BROKER_LOGGER resource")
        if one.config_operation not in (Change.SET, Change.DELETE):
            raise InvalidRequest(f"Unknown operation type {one.config_operation}")
        if one.name not in known:
            raise ConfigError(f"Logger {one.name} does not exist!")
        if one.config_operation == Change.SET and one.value not in LEVELS:
            raise ConfigError(
                f"Cannot set the log level of {one.name} to {one.value} as it is not a supported log level. "
                f"Valid log levels are {', '.join(LEVELS)}"
            )
        if one.config_operation == Change.DELETE and one.name == ROOT:
            raise InvalidRequest("Removing the log level of the root logger is not allowed")
        new_levels[one.name] = LEVELS[one.value or ""] if one.config_operation == Change.SET else logging.NOTSET
    if not validate_only:
        for name, level in new_levels.items():
            logging.getLogger(None if name == ROOT else name).setLevel(level)
