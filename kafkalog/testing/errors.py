"""Errors and warnings of servers for tests."""

from __future__ import annotations

from kafkalog.errors import KafkalogError


class ServerDidNotStart(KafkalogError):
    """The server ended, or did not answer in time; the message has its output."""


class ConditionNotMet(KafkalogError, AssertionError):
    """A condition was not met in time, or requests were not as asserted; the message says what was found."""


class FaultNeverMatched(KafkalogError, AssertionError):
    """A fault ended without a call that matched it."""


class FaultNeverMatchedWarning(UserWarning):
    """A fault ended without a call that matched it."""
