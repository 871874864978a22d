"""Records of Kafka's own topics in readable form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kafkalog.tools.dump.record_readers import (
    RecordReader,
    cluster_metadata_reader,
    offsets_reader,
    remote_log_metadata_reader,
    share_state_reader,
    transaction_log_reader,
)

__all__ = ["internal_reader"]

_READERS: Final[dict[str, Callable[[], RecordReader]]] = {
    "__consumer_offsets": offsets_reader,
    "__transaction_state": transaction_log_reader,
    "__share_group_state": share_state_reader,
    "__cluster_metadata": cluster_metadata_reader,
    "__remote_log_metadata": remote_log_metadata_reader,
}


def internal_reader(topic: str) -> RecordReader | None:
    """Return the function that decodes the records of one of Kafka's own topics; None for any other topic."""
    make = _READERS.get(topic)
    return None if make is None else make()
