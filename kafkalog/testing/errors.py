"""Errors and warnings of servers for tests."""

from __future__ import annotations

import logging
from typing import Final

from kafkalog.errors import KafkalogError

_LOG: Final = logging.getLogger(__name__)


class ServerDidNotStart(KafkalogError):
    """The server ended, or did not answer in time; the message has its last line, the log its whole output (DEBUG)."""


class ConditionNotMet(KafkalogError, AssertionError):
    """A condition was not met in time, or requests were not as asserted; the message says what was found."""


class FaultNeverMatched(KafkalogError, AssertionError):
    """A fault ended without a call that matched it."""


class FaultNeverMatchedWarning(UserWarning):
    """A fault ended without a call that matched it."""


def did_not_start(name: str, output: str) -> ServerDidNotStart:
    """Return the error with the last line of the output, and log all of it."""
    lines = output.strip().splitlines()
    if len(lines) > 1:
        _LOG.debug("the output of %s, which did not start: %s", name, output.strip())
    return ServerDidNotStart(f"{name} did not start: {lines[-1] if lines else 'it wrote nothing'}")
