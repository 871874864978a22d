"""DeleteAcls: delete all ACLs that match the filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING

from kafkalog.errors import InvalidRequest
from kafkalog.server.error_codes import ErrorCode, Refused, code_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acl_requests import acl_fields, filter_of, require, resource_fields
from kafkalog.server.security.acls import Acl, AclFilter, Operation, PatternType
from kafkalog.server.security.state import SecurityState

if TYPE_CHECKING:
    from kio.schema.delete_acls.v3.request import DeleteAclsRequest

    from kafkalog.server.node.node import Node
    from kafkalog.server.wire.writer import Tree


async def handle(node: Node, context: RequestContext, request: DeleteAclsRequest) -> Answer:
    """Delete the matching ACLs and return them by filter; an ACL that several filters match is under the first."""
    require(node, context, Operation.ALTER)
    filters: list[AclFilter | InvalidRequest] = []
    for row in request.filters:
        try:
            filters.append(filter_of(row))
        except InvalidRequest as error:
            filters.append(error)
    found: list[list[Acl]] = []
    first_match = _first_match(filters)

    def delete_matching(state: SecurityState) -> SecurityState:
        found[:] = [[] for _ in filters]
        remaining: list[Acl] = []
        for acl in state.acls:
            index = first_match(acl)
            (remaining if index is None else found[index]).append(acl)
        return state._replace(acls=tuple(remaining))

    await node.credentials.file.change(node.run, delete_matching)
    rows = [
        _row(code_of(one), one.message, ()) if isinstance(one, InvalidRequest) else _row(ErrorCode.NONE, None, acls)
        for one, acls in zip(filters, found, strict=True)
    ]
    return {"filter_results": rows}


def _first_match(filters: Sequence[AclFilter | InvalidRequest]) -> Callable[[Acl], int | None]:
    """Return a function that finds the first filter that an ACL passes; it tries only those that may have its name."""
    by_name: dict[str, list[tuple[int, AclFilter]]] = {}
    others: list[tuple[int, AclFilter]] = []
    for index, one in enumerate(filters):
        if isinstance(one, AclFilter):
            is_exact = one.resource_name is not None and one.pattern_type != PatternType.MATCH
            (by_name.setdefault(str(one.resource_name), []) if is_exact else others).append((index, one))

    def first_match(acl: Acl) -> int | None:
        named = by_name.get(acl.resource_name, [])
        candidates = merge(named, others, key=itemgetter(0)) if named and others else named or others
        return next((index for index, one in candidates if one.matches(acl)), None)

    return first_match


def refused(node: Node, context: RequestContext, request: DeleteAclsRequest, error: Refused) -> Answer:
    """Return the error for each filter."""
    rows = [_row(error.code, error.message, ()) for _ in request.filters]
    return {"filter_results": rows}


def _row(error_code: int, message: str | None, acls: list[Acl] | tuple[()]) -> Tree:
    matching = [
        {"error_code": ErrorCode.NONE, "error_message": None, **resource_fields(acl), **acl_fields(acl)}
        for acl in acls
    ]
    return {"error_code": error_code, "error_message": message, "matching_acls": matching}
