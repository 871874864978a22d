"""DescribeUserScramCredentials: the users and their mechanisms (KIP-554). Keys are never returned."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation
from kafkalog.server.security.scram import NUMBERS

if TYPE_CHECKING:
    from kio.schema.describe_user_scram_credentials.v0.request import DescribeUserScramCredentialsRequest

    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree


async def handle(node: Node, context: RequestContext, request: DescribeUserScramCredentialsRequest) -> Answer:
    """Return the requested users, or all users."""
    node.authorizer.require_cluster(context, Operation.DESCRIBE)
    users = node.credentials.file.state.users
    counts = Counter(user.name for user in request.users or ())
    rows: list[Tree] = []
    for name in counts or sorted(users):
        code, message = ErrorCode.NONE, ""
        if counts[name] > 1:
            code = ErrorCode.DUPLICATE_RESOURCE
            message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        elif name not in users:
            code = ErrorCode.RESOURCE_NOT_FOUND
            message = f"Attempt to describe a user credential that does not exist: {name}"
        mechanisms = {} if code else users[name]
        infos = [{"mechanism": NUMBERS[one], "iterations": keys.iterations} for one, keys in sorted(mechanisms.items())]
        rows.append({"user": name, "error_code": code, "error_message": message, "credential_infos": infos})
    return {"error_code": ErrorCode.NONE, "error_message": "", "results": rows}


def refused(
    node: Node, context: RequestContext, request: DescribeUserScramCredentialsRequest, error: Refused
) -> Answer:
    """Return the error, and once more for each requested user, whose name is left out as by a broker."""
    row = {"user": "", "error_code": error.code, "error_message": error.message, "credential_infos": ()}
    return {"error_code": error.code, "error_message": error.message, "results": [row] * len(request.users or ())}
