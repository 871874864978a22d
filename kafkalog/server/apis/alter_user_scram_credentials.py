"""AlterUserScramCredentials: set and delete users' SCRAM keys (KIP-554). The password itself is never received."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.errors import StorageError
from kafkalog.server.error_codes import ErrorCode, Refused, code_of
from kafkalog.server.requests.context import Answer, RequestContext
from kafkalog.server.security.acls import Operation
from kafkalog.server.security.scram import NUMBERS, keys_of_salted
from kafkalog.server.security.state import MAX_ITERATIONS, MIN_ITERATIONS, SecurityState

if TYPE_CHECKING:
    from kio.schema.alter_user_scram_credentials.v0.request import (
        AlterUserScramCredentialsRequest,
        ScramCredentialDeletion,
        ScramCredentialUpsertion,
    )

    from kafkalog.server.node.node import Node

    _Row = ScramCredentialDeletion | ScramCredentialUpsertion

_MECHANISMS = {number: mechanism for mechanism, number in NUMBERS.items()}
_Result = tuple[ErrorCode | int, str | None]


async def handle(node: Node, context: RequestContext, request: AlterUserScramCredentialsRequest) -> Answer:
    """Change every user whose rows in the request are all valid; leave a user with an error unchanged."""
    node.authorizer.require_cluster(context, Operation.ALTER, explains=True)
    results = _check_rows(request, node.credentials.file.state)

    def apply_changes(state: SecurityState) -> SecurityState:
        users = {user: dict(mechanisms) for user, mechanisms in state.users.items()}
        for row in request.deletions:
            if not results[row.name][0]:
                users.get(row.name, {}).pop(_MECHANISMS[row.mechanism], None)
        for new in request.upsertions:
            if not results[new.name][0]:
                mechanism = _MECHANISMS[new.mechanism]
                keys = keys_of_salted(mechanism, bytes(new.salted_password), bytes(new.salt), new.iterations)
                users.setdefault(new.name, {})[mechanism] = keys
        return state._replace(users={user: keys for user, keys in users.items() if keys})

    try:
        await node.credentials.file.change(node.run, apply_changes)
    except StorageError as error:
        failed = code_of(error), error.message
        results = {user: result if result[0] else failed for user, result in results.items()}
    return _tree(results)


def refused(node: Node, context: RequestContext, request: AlterUserScramCredentialsRequest, error: Refused) -> Answer:
    """Return the error for each user."""
    rows: tuple[_Row, ...] = (*request.deletions, *request.upsertions)
    return _tree({row.name: (error.code, error.message) for row in rows})


def _check_rows(request: AlterUserScramCredentialsRequest, state: SecurityState) -> dict[str, _Result]:
    """Return each user's error code and message, or NONE and None if its change is valid.

    A valid change has to be the only one of its user, as in a broker, even if the mechanisms differ.
    """
    rows: tuple[_Row, ...] = (*request.deletions, *request.upsertions)
    results: dict[str, _Result] = {}
    for row in rows:
        if row.name not in results:
            results[row.name] = _problem(row, state)
        elif not results[row.name][0]:
            message = "A user credential cannot be altered twice in the same request"
            results[row.name] = (ErrorCode.DUPLICATE_RESOURCE, message)
    return results


def _problem(row: Any, state: SecurityState) -> _Result:
    if not row.name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    mechanism = _MECHANISMS.get(row.mechanism)
    if mechanism is None:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    if not hasattr(row, "iterations"):
        if mechanism not in state.users.get(row.name, {}):
            return ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
        return ErrorCode.NONE, None
    if row.iterations < MIN_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations"
    if row.iterations > MAX_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations"
    if not row.salt or not row.salted_password:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Salt and salted password must not be empty"
    return ErrorCode.NONE, None


def _tree(results: dict[str, _Result]) -> Answer:
    rows = [{"user": user, "error_code": code, "error_message": text} for user, (code, text) in results.items()]
    return {"results": rows}
