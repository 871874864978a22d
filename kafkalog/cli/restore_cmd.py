"""`kafkalog restore`: the same as `kafkalog backup restore`."""

from __future__ import annotations

from kafkalog.cli.backup_cmd import restore as command

__all__ = ["command"]
