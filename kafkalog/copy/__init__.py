"""Copies of topics, with offsets, between clusters, data directories, backups and tiered stores (docs/copy.md)."""

from kafkalog.copy.copy import copy_topics, follow_topics
from kafkalog.copy.report import CopiedPartition, CopyReport, NotKept

__all__ = ["CopiedPartition", "CopyReport", "NotKept", "copy_topics", "follow_topics"]
