"""Work queues: several workers share the records of a topic, each of which is acknowledged by itself (docs/queues.md).

A queue is a share group (KIP-932), the same that Kafka's clients and brokers know. `log.queue(name)` and
`dirs[topic].queue(name)` run its share partitions in this process, on open data directories; `connect` uses those of a
server or a broker, for workers in several processes.
"""

from kafkalog.queue.item import Item
from kafkalog.queue.opening import connect
from kafkalog.queue.queue import WorkQueue

__all__ = ["Item", "WorkQueue", "connect"]
