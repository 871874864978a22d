"""Kafka servers and clusters for tests, which can be made to fail on purpose.

    with kafka_cluster(nodes=3, topics={"orders": 3}) as cluster:
        with cluster.fault("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1):
            ...

Servers run in separate processes: they do not share the interpreter or the memory of the test, and can be killed to
simulate a crash. They end when the test's process ends for any reason, and their temporary directories are removed.
`kafkalog.pytest_plugin` has fixtures.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafkalog.testing.aio import AsyncCluster as AsyncCluster
    from kafkalog.testing.aio import async_kafka_cluster as async_kafka_cluster
    from kafkalog.testing.cluster import KafkaCluster as KafkaCluster
    from kafkalog.testing.cluster import kafka_cluster as kafka_cluster
    from kafkalog.testing.errors import ConditionNotMet as ConditionNotMet
    from kafkalog.testing.errors import FaultNeverMatched as FaultNeverMatched
    from kafkalog.testing.errors import FaultNeverMatchedWarning as FaultNeverMatchedWarning
    from kafkalog.testing.errors import ServerDidNotStart as ServerDidNotStart
    from kafkalog.testing.faults import Fault as Fault
    from kafkalog.testing.recorder import Recorder as Recorder
    from kafkalog.testing.recorder import Request as Request
    from kafkalog.testing.server import DEFAULTS as DEFAULTS
    from kafkalog.testing.server import KafkaServer as KafkaServer
    from kafkalog.testing.server import kafka_server as kafka_server

_NAMES = {
    "AsyncCluster": "aio", "ConditionNotMet": "errors", "DEFAULTS": "server", "Fault": "faults",
    "FaultNeverMatched": "errors", "FaultNeverMatchedWarning": "errors", "KafkaCluster": "cluster",
    "KafkaServer": "server", "Recorder": "recorder", "Request": "recorder", "ServerDidNotStart": "errors",
    "async_kafka_cluster": "aio", "kafka_cluster": "cluster", "kafka_server": "server",
}  # fmt: skip

__all__ = [
    "DEFAULTS", "AsyncCluster", "ConditionNotMet", "Fault", "FaultNeverMatched", "FaultNeverMatchedWarning",
    "KafkaCluster", "KafkaServer", "Recorder", "Request", "ServerDidNotStart", "async_kafka_cluster", "kafka_cluster",
    "kafka_server",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Import a public name at its first use: a server process needs none of them."""
    if name not in _NAMES:
        raise AttributeError(f"module 'kafkalog.testing' has no attribute {name!r}")
    value = getattr(import_module(f"kafkalog.testing.{_NAMES[name]}"), name)
    globals()[name] = value
    return value
