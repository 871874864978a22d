"""ACLs, quotas and users from a broker's metadata, for a server that takes over its directories."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kafkalog.errors import InvalidRecord
from kafkalog.manager.cluster_image import ClusterImage
from kafkalog.server.security.acls import Acl, Operation, PatternType, Permission, ResourceType
from kafkalog.server.security.scram import NUMBERS
from kafkalog.server.security.state import MAX_ITERATIONS, MIN_ITERATIONS, ScramKeys, SecurityState

if TYPE_CHECKING:
    from kafkalog.records.schema import Message

_LOG: Final = logging.getLogger(__name__)
_MECHANISMS: Final = {number: name for name, number in NUMBERS.items()}


def security_of(image: ClusterImage) -> SecurityState:
    """Return the users, ACLs and quotas of a cluster's metadata.

    Unsupported items are skipped and logged. InvalidRecord for an unsupported ACL that denies something, since skipping
    it would grant access.
    """
    users: dict[str, dict[str, ScramKeys]] = {}
    for (name, number), record in image.scram.items():
        mechanism = _MECHANISMS.get(number)
        if mechanism is None or not MIN_ITERATIONS <= record["iterations"] <= MAX_ITERATIONS:
            _LOG.warning("skipped unsupported keys of user %r for mechanism %d", name, number)
            continue
        keys = ScramKeys(record["salt"], record["storedKey"], record["serverKey"], record["iterations"])
        users.setdefault(name, {})[mechanism] = keys
    quotas = {entity: dict(limits) for entity, limits in image.quotas.items() if limits}
    return SecurityState(tuple(_acls(image.acls.values())), quotas, users)


def _acls(records: Iterable[Message]) -> Iterable[Acl]:
    for record in records:
        try:
            yield Acl(
                ResourceType(record["resourceType"]),
                record["resourceName"],
                PatternType(record["patternType"]),
                record["principal"],
                record["host"],
                Operation(record["operation"]),
                Permission(record["permissionType"]),
            )
        except ValueError as error:
            if record["permissionType"] != Permission.ALLOW:
                raise InvalidRecord(
                    f"a deny ACL of {ascii(record['principal'])} is not supported: {error}",
                    hint="remove it with the broker's kafka-acls, and start again",
                ) from None
            _LOG.warning("skipped an unsupported allow ACL of %r: %s", record["principal"], error)
