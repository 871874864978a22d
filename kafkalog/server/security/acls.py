"""Access control lists (KIP-11, KIP-140, KIP-290): codes, entries, and filters that match entries."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

WILDCARD: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
NOT_ASKED: Final = -(2**31)
"""Value of a field of operations that the client did not request."""


class ResourceType(IntEnum):
    """Type of an entry's resource."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Interpretation of an entry's name; ANY and MATCH are only for filters."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Operation that an entry allows or denies."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Effect of an entry: allow or deny."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


_CONFIGS: Final = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
SUPPORTED: Final[dict[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
        *_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS),
    ResourceType.CLUSTER: (
        Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION, Operation.IDEMPOTENT_WRITE,
        *_CONFIGS,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}  # fmt: skip
"""Valid operations by resource type."""


class Acl(NamedTuple):
    """One entry: it allows or denies a principal (`User:name`) from a host an operation on resources."""

    resource_type: ResourceType
    resource_name: str
    pattern_type: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission

    def covers(self, resource_type: ResourceType, name: str) -> bool:
        """Return True if the entry applies to this resource."""
        if self.resource_type != resource_type:
            return False
        if self.pattern_type == PatternType.PREFIXED:
            return name.startswith(self.resource_name)
        return self.resource_name in (name, WILDCARD)


class AclFilter(NamedTuple):
    """A filter of entries; None matches any name, principal or host."""

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def matches(self, acl: Acl) -> bool:
        """Return True if an entry passes the filter; MATCH accepts every pattern that covers the name."""
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
            and self._matches_name(acl)
        )

    def _matches_name(self, acl: Acl) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
            return False
        if self.resource_name is None or acl.resource_name == self.resource_name:
            return True
        return self.pattern_type == PatternType.MATCH and acl.covers(acl.resource_type, self.resource_name)


def bit_field(operations: Iterable[Operation]) -> int:
    """Return operations as the 32-bit field of a response."""
    field = 0
    for operation in operations:
        field |= 1 << operation
    return field
