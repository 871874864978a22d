"""Errors of a node that does not lead its replica set, with Kafka's codes."""

from __future__ import annotations

from kafkalog.errors import ApiError


class NotCoordinator(ApiError):
    """This node does not lead, so it coordinates no groups and no transactions."""

    code = 16
    retriable = True


class NotController(ApiError):
    """This node does not lead, so it changes no topics and no settings."""

    code = 41
    retriable = True


class ElectionFailed(ApiError):
    """Too few nodes of the replica set voted for this node, or another one leads by now."""

    code = 83
