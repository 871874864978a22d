"""What goes wrong where a node does not lead its replica set, with Kafka's codes."""

from __future__ import annotations

from kafkalog.errors import ApiError


class NotCoordinator(ApiError):
    """This node does not lead, and so coordinates no groups and no transactions."""

    code = 16
    retriable = True


class NotController(ApiError):
    """This node does not lead, and so changes no topics and no settings."""

    code = 41
    retriable = True


class ElectionFailed(ApiError):
    """Too few nodes of the replica set gave their vote, or another one leads meanwhile."""

    code = 83
