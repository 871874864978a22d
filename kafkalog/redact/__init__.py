"""Redaction: records emptied in place, or made tombstones, by key, by condition or by offset."""

from kafkalog.redact.backups.redact import redact_backups
from kafkalog.redact.directories import redact
from kafkalog.redact.report import Copy, RedactedSegment, RedactReport

__all__ = ["Copy", "RedactReport", "RedactedSegment", "redact", "redact_backups"]
