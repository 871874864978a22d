"""Conversion of ACLs and filters between requests and entries, and validation of new entries."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, TypeVar

from kafkalog.errors import InvalidRequest
from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.security.acls import (
    CLUSTER_NAME,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from kafkalog.util.hosts import network_of

if TYPE_CHECKING:
    from kio.schema.create_acls.v3.request import AclCreation
    from kio.schema.delete_acls.v3.request import DeleteAclsFilter
    from kio.schema.describe_acls.v3.request import DescribeAclsRequest

    from kafkalog.server.node.node import Node
    from kafkalog.server.requests.context import RequestContext

E = TypeVar("E", bound=IntEnum)


def filter_of(row: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """Return the filter of a request row. InvalidRequest for unknown numbers."""
    return AclFilter(
        _known(ResourceType, row.resource_type_filter),
        row.resource_name_filter,
        _known(PatternType, row.pattern_type_filter),
        row.principal_filter,
        row.host_filter,
        _known(Operation, row.operation),
        _known(Permission, row.permission_type),
    )


def acl_of(row: AclCreation) -> Acl:
    """Return the entry to be created by a request row. InvalidRequest if it is invalid."""
    acl = Acl(
        _known(ResourceType, row.resource_type),
        row.resource_name,
        _known(PatternType, row.resource_pattern_type),
        row.principal,
        row.host,
        _known(Operation, row.operation),
        _known(Permission, row.permission_type),
    )
    if acl.resource_type == ResourceType.ANY:
        raise InvalidRequest("Invalid resourceType ANY")
    if acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidRequest(f"Invalid patternType {acl.pattern_type.name}")
    if acl.operation == Operation.ANY:
        raise InvalidRequest("Invalid operation ANY")
    if acl.permission not in (Permission.ALLOW, Permission.DENY):
        raise InvalidRequest(f"Invalid permissionType {acl.permission.name}")
    if not acl.resource_name:
        raise InvalidRequest("Resource name should not be empty")
    if not acl.host:
        raise InvalidRequest("Host pattern cannot be null or empty")
    if "/" in acl.host and network_of(acl.host) is None:
        raise InvalidRequest(f"Invalid CIDR notation '{acl.host}'")
    if acl.resource_type == ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        raise InvalidRequest(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if ":" not in acl.principal:
        raise InvalidRequest(
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from "
            "the principal name)"
        )
    return acl


def acl_fields(acl: Acl) -> dict[str, object]:
    """Return an entry's fields in responses, without its resource."""
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }


def resource_fields(acl: Acl) -> dict[str, object]:
    """Return the fields of an entry's resource in responses."""
    return {
        "resource_type": int(acl.resource_type),
        "resource_name": acl.resource_name,
        "pattern_type": int(acl.pattern_type),
    }


def _known(kind: type[E], number: int) -> E:
    try:
        found = kind(number)
    except ValueError:
        found = kind(0)
    if not found:
        raise InvalidRequest(f"{number} is not a valid {kind.__name__}")
    return found


def require(
    node: Node, context: RequestContext, operation: Operation, disabled: str = "No Authorizer is configured."
) -> None:
    """Raise Refused, with `disabled` if no authorizer is configured, unless the client may see or change ACLs."""
    if not node.authorizer.is_enabled:
        raise Refused(ErrorCode.SECURITY_DISABLED, disabled)
    node.authorizer.require_cluster(context, operation, explains=True)
