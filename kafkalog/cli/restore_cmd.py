"""`kafkalog restore`: what `kafkalog backup restore` does."""

from __future__ import annotations

from kafkalog.cli.backup_cmd import restore as command

__all__ = ["command"]
