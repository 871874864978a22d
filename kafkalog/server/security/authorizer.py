"""Authorization by ACLs, with the rules of the reference's authorizer (KIP-11, KIP-290, KIP-679, KIP-1276).

A super user may do everything. DENY takes precedence over ALLOW. A resource without any entry is open to everyone with
`allow.everyone.if.no.acl.found`, else to no one. An ALLOW for READ, WRITE, DELETE or ALTER also allows DESCRIBE, and
one for ALTER_CONFIGS also allows DESCRIBE_CONFIGS; a DENY implies nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kafkalog.server.error_codes import ErrorCode, Refused
from kafkalog.server.node.parts import Part
from kafkalog.server.requests.context import RequestContext
from kafkalog.server.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    bit_field,
)
from kafkalog.util.hosts import is_in_network

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node

_LOG: Final = logging.getLogger(__name__)
EVERYBODY: Final = "User:*"
_IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
_DENIED: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_MAX_CACHED_NAME: Final = 255
_ANY_NAME: Final = "hardcode"
"""A name that no entry contains; a principal that is allowed an operation on it is allowed it on any resource."""


class Authorizer(Part):
    """Authorizes requests by the entries that `acls` returns. Only for the event loop's thread.

    If `is_enabled` is False, everything is allowed. `super_users` are principals (`User:name`).
    """

    def __init__(
        self,
        acls: Callable[[], Iterable[Acl]],
        *,
        is_enabled: bool = False,
        super_users: Iterable[str] = (),
        allows_if_no_acl: bool = False,
    ) -> None:
        self.is_enabled = is_enabled
        self._acls = acls
        self._super_users = frozenset(super_users)
        self._allows_if_no_acl = allows_if_no_acl
        self._indexed: Iterable[Acl] = ()
        self._by_type: dict[ResourceType, list[Acl]] = {}
        self._decisions: dict[tuple[str, str, Operation, ResourceType, str], bool] = {}

    def allows(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return True if the requesting principal may perform the operation."""
        if not self.is_enabled:
            return True
        principal, host = context.principal, context.connection.peer_host
        return self.is_allowed(principal, host, operation, resource_type, name)

    def is_allowed(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Return True if the principal may perform the operation from this host."""
        if not self.is_enabled or principal in self._super_users:
            return True
        self._index_acls()
        key = (principal, host, operation, resource_type, name)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(*key)
            if len(name) <= _MAX_CACHED_NAME:  # a client may send names 100 times as long
                if len(self._decisions) >= 10_000:
                    self._decisions.clear()
                self._decisions[key] = decision
            if not decision and name != _ANY_NAME:
                message = "%s is denied %s on %s %s, from %s"
                _LOG.info(message, principal, operation.name, resource_type.name, ascii(name[:80]), host)
        return decision

    def allows_cluster(self, context: RequestContext, operation: Operation) -> bool:
        """Return True if the requesting principal may perform the operation on the cluster."""
        return self.allows(context, operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def require(self, context: RequestContext, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raise Refused unless the requesting principal may perform the operation."""
        if not self.allows(context, operation, resource_type, name):
            raise Refused(_DENIED[resource_type])

    def require_cluster(self, context: RequestContext, operation: Operation, *, explains: bool = False) -> None:
        """Raise Refused, if asked with a message, unless the principal may perform the operation on the cluster."""
        if not self.allows_cluster(context, operation):
            code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            raise Refused(code, code.message if explains else None)

    def allows_any(self, context: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
        """Return True if the requesting principal may perform the operation on any resource of the type (KIP-679)."""
        if self.allows(context, operation, resource_type, _ANY_NAME):
            return True
        principal, host = context.principal, context.connection.peer_host
        candidates = [acl for acl in self._by_type.get(resource_type, ()) if _applies_to(acl, principal, host)]
        candidates = [acl for acl in candidates if acl.operation in (operation, Operation.ALL)]
        denied = [acl for acl in candidates if acl.permission == Permission.DENY]
        if any(acl.pattern_type == PatternType.LITERAL and acl.resource_name == WILDCARD for acl in denied):
            return False
        return any(acl.permission == Permission.ALLOW and not _is_denied(acl, denied) for acl in candidates)

    def allowed_operations(self, context: RequestContext, resource_type: ResourceType, name: str) -> int:
        """Return the operations that the requesting principal may perform on a resource, as a response's bit field."""
        return bit_field(
            operation for operation in SUPPORTED[resource_type] if self.allows(context, operation, resource_type, name)
        )

    def _index_acls(self) -> None:
        acls = self._acls()
        if acls is not self._indexed:
            by_type: dict[ResourceType, list[Acl]] = {}
            for acl in acls:
                by_type.setdefault(acl.resource_type, []).append(acl)
            self._indexed, self._by_type = acls, by_type
            self._decisions.clear()

    def _decide(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        found = [acl for acl in self._by_type.get(resource_type, ()) if acl.covers(resource_type, name)]
        if not found:
            return self._allows_if_no_acl
        relevant = [acl for acl in found if _applies_to(acl, principal, host) and _covers_operation(acl, operation)]
        if any(acl.permission == Permission.DENY for acl in relevant):
            return False
        return any(acl.permission == Permission.ALLOW for acl in relevant)


def _applies_to(acl: Acl, principal: str, host: str) -> bool:
    if acl.principal not in (principal, EVERYBODY):
        return False
    return acl.host in (host, WILDCARD) or ("/" in acl.host and is_in_network(host, acl.host))


def _covers_operation(acl: Acl, operation: Operation) -> bool:
    if acl.operation == Operation.ALL:
        return True
    if acl.permission == Permission.ALLOW and operation in _IMPLIED_BY:
        return acl.operation in _IMPLIED_BY[operation]
    return acl.operation == operation


def _is_denied(allowed: Acl, denied: Iterable[Acl]) -> bool:
    """Return True if an entry of `denied` covers all that `allowed` allows: the same name, or a prefix of it."""
    for acl in denied:
        if acl.pattern_type == PatternType.PREFIXED:
            if allowed.resource_name != WILDCARD and allowed.resource_name.startswith(acl.resource_name):
                return True
        elif allowed.pattern_type == PatternType.LITERAL and allowed.resource_name == acl.resource_name:
            return True
    return False


def split_principals(text: str) -> frozenset[str]:
    """Parse the principals of `super.users`, separated by semicolons."""
    return frozenset(part.strip() for part in text.split(";") if part.strip())


def make(node: Node) -> Authorizer:
    """Create the authorizer of a node from its `config` and the security file of its credentials."""
    config = node.config
    return Authorizer(
        lambda: node.credentials.file.state.acls,
        is_enabled=bool(config["authorizer.class.name"]),
        super_users=split_principals(config["super.users"]),
        allows_if_no_acl=config["allow.everyone.if.no.acl.found"],
    )
