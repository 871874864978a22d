"""CreateAcls: add each ACL independently; an existing ACL is not duplicated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.errors import InvalidRequest, StorageError
from kafkalog.server.error_codes import ErrorCode, Refused, code_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acl_requests import acl_of, require
from kafkalog.server.security.acls import Acl, Operation

if TYPE_CHECKING:
    from kio.schema.create_acls.v3.request import CreateAclsRequest

    from kafkalog.server.node.node import Node


async def handle(node: Node, context: RequestContext, request: CreateAclsRequest) -> Answer:
    """Save the valid ACLs and return a result for each."""
    require(node, context, Operation.ALTER)
    created: list[Acl] = []
    results: list[tuple[int, str | None]] = []
    for row in request.creations:
        try:
            created.append(acl_of(row))
        except InvalidRequest as error:
            results.append((code_of(error), error.message))
        else:
            results.append((ErrorCode.NONE, ""))
    try:
        await node.credentials.file.change(
            node.run, lambda state: state._replace(acls=tuple(dict.fromkeys([*state.acls, *created])))
        )
    except StorageError as error:
        results = [(code or code_of(error), message or error.message) for code, message in results]
    return _tree(results)


def refused(node: Node, context: RequestContext, request: CreateAclsRequest, error: Refused) -> Answer:
    """Return the error for each ACL."""
    return _tree([(error.code, error.message)] * len(request.creations))


def _tree(results: list[tuple[int, str | None]]) -> Answer:
    rows = [{"error_code": code, "error_message": message} for code, message in results]
    return {"results": rows}
