"""DescribeLogDirs: the data directories, and the size of each partition in them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kafkalog.manager.data_directory import DataDirectory
from kafkalog.server.context import Answer, RequestContext
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.security.acls import Operation
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kafkalog.server.node import Node
    from kafkalog.server.wire.writer import Tree


async def handle(node: Node, context: RequestContext, request: Any) -> Answer:
    """All directories, with the partitions that were asked for, or all."""
    if not node.authorizer.allows_cluster(context, Operation.DESCRIBE):
        return refused(node, context, request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
    cordoned = node.store.config.cordoned_log_dirs
    rows = []
    for directory in node.store.directories:
        is_cordoned = "*" in cordoned or directory.path in cordoned
        rows.append(await node.run(_directory_row, directory, wanted, is_cordoned))
    return {"throttle_time": context.throttle_ms, "error_code": ErrorCode.NONE, "results": rows}


def refused(node: Node, context: RequestContext, request: Any, error_code: int, message: str | None) -> Answer:
    """The error, and no directory."""
    return {"throttle_time": context.throttle_ms, "error_code": error_code, "results": ()}


def _directory_row(directory: DataDirectory, wanted: set[TopicPartition] | None, is_cordoned: bool) -> Tree:
    row = {"log_dir": directory.path, "is_cordoned": is_cordoned, "topics": (), "total_bytes": -1, "usable_bytes": -1}
    if not directory.is_online:
        return {**row, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}
    try:
        disk = os.statvfs(directory.path)
    except OSError:
        return {**row, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}
    by_topic: dict[str, list[Tree]] = {}
    for key, partition in sorted(_partition_rows(directory), key=lambda pair: pair[0]):
        if wanted is None or key in wanted:
            by_topic.setdefault(key.topic, []).append(partition)
    return {
        **row,
        "error_code": ErrorCode.NONE,
        "topics": [{"name": name, "partitions": rows} for name, rows in by_topic.items()],
        "total_bytes": disk.f_blocks * disk.f_frsize,
        "usable_bytes": disk.f_bavail * disk.f_frsize,
    }


def _partition_rows(directory: DataDirectory) -> Iterable[tuple[TopicPartition, Tree]]:
    current = directory.logs
    for key, log in current.items():
        yield key, _partition_row(key, log, max(log.high_watermark - log.log_end_offset, 0), is_future=False)
    for key, log in directory.future_logs.items():
        behind = current[key].log_end_offset - log.log_end_offset if key in current else 0
        yield key, _partition_row(key, log, max(behind, 0), is_future=True)


def _partition_row(key: TopicPartition, log: UnifiedLog, lag: int, *, is_future: bool) -> Tree:
    return {
        "partition_index": key.partition,
        "partition_size": log.size,
        "offset_lag": lag,
        "is_future_key": is_future,
    }
