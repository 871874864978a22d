"""Errors of the registry's REST interface: an HTTP status, and a code that its clients know."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

INVALID_SCHEMA: Final = 42201


class RestError(Exception):
    """A request that is answered with an error. The status is the first three digits of the code."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    @property
    def status(self) -> HTTPStatus:
        """HTTP status of the response."""
        return HTTPStatus(int(str(self.code)[:3]))


def no_subject(subject: str) -> RestError:
    """Return the error for a subject that does not exist."""
    return RestError(40401, f"Subject '{subject}' not found.")


def no_version(version: object) -> RestError:
    """Return the error for a version that does not exist."""
    return RestError(40402, f"Version {version} not found.")


def no_schema(what: str = "Schema") -> RestError:
    """Return the error for a schema that is not registered."""
    return RestError(40403, f"{what} not found")


def invalid_schema(reason: object) -> RestError:
    """Return the error for text that is no schema."""
    return RestError(INVALID_SCHEMA, f"Invalid schema: {reason}")
