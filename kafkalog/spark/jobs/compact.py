"""The job `compact`: refused, until the log has a cleaner that it can run."""

from __future__ import annotations

from typing import NoReturn

from kafkalog.errors import IllegalState


def compact() -> NoReturn:
    """IllegalState: logs are compacted by the log cleaner, and this version of kafkalog has none."""
    raise IllegalState(
        "compact is not available: this version of kafkalog has no log cleaner, and nothing was changed",
        hint="let a Kafka broker compact the topics (see `kafkalog handover`), or use `retain` for what is only aged",
    )
