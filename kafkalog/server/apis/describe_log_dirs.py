"""DescribeLogDirs: the data directories, and the size of each partition in them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from kafkalog.manager.data_directory import DataDirectory
from kafkalog.server.error_codes import ErrorCode
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation
from kafkalog.storage.log import UnifiedLog
from kafkalog.types import TopicPartition

if TYPE_CHECKING:
    from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest

    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree

_NO_LAG: Final = -1


async def handle(node: Node, context: RequestContext, request: DescribeLogDirsRequest) -> Answer:
    """Return all directories with the requested partitions, or with all partitions."""
    node.authorizer.require_cluster(context, Operation.DESCRIBE)
    requested = None
    if request.topics is not None:
        requested = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
    cordoned = {one if one == "*" else os.path.realpath(one) for one in node.store.config.cordoned_log_dirs}
    logs = node.store.logs
    rows = []
    for directory in node.store.directories:
        is_cordoned = "*" in cordoned or directory.path in cordoned
        rows.append(await node.run(_directory_row, directory, logs, requested, is_cordoned))
    return {"error_code": ErrorCode.NONE, "results": rows}


def _directory_row(
    directory: DataDirectory,
    logs: Mapping[TopicPartition, UnifiedLog],
    requested: set[TopicPartition] | None,
    is_cordoned: bool,
) -> Tree:
    row = {"log_dir": directory.path, "is_cordoned": is_cordoned, "topics": (), "total_bytes": -1, "usable_bytes": -1}
    if not directory.is_online:
        return {**row, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}
    try:
        disk = os.statvfs(directory.path)
    except OSError:
        return {**row, "error_code": ErrorCode.KAFKA_STORAGE_ERROR}
    by_topic: dict[str, list[Tree]] = {}
    for key, partition in sorted(_partition_rows(directory, logs), key=lambda pair: pair[0]):
        if requested is None or key in requested:
            by_topic.setdefault(key.topic, []).append(partition)
    return {
        **row,
        "error_code": ErrorCode.NONE,
        "topics": [{"name": name, "partitions": rows} for name, rows in by_topic.items()],
        "total_bytes": disk.f_blocks * disk.f_frsize,
        "usable_bytes": disk.f_bavail * disk.f_frsize,
    }


def _partition_rows(
    directory: DataDirectory, logs: Mapping[TopicPartition, UnifiedLog]
) -> Iterable[tuple[TopicPartition, Tree]]:
    """Yield a row for each current and future log. A future log's lag is measured against the current log elsewhere."""
    for key, log in directory.logs.items():
        yield key, _partition_row(key, log, max(log.high_watermark - log.log_end_offset, 0), is_future=False)
    for key, log in directory.future_logs.items():
        lag = logs[key].log_end_offset - log.log_end_offset if key in logs else _NO_LAG
        yield key, _partition_row(key, log, lag, is_future=True)


def _partition_row(key: TopicPartition, log: UnifiedLog, lag: int, *, is_future: bool) -> Tree:
    return {
        "partition_index": key.partition,
        "partition_size": log.size,
        "offset_lag": lag,
        "is_future_key": is_future,
    }
