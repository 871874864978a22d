"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the client's side.

Both ends prove that they know the password, and neither sends it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from typing import Final

from kafkalog.errors import MalformedRequest
from kafkalog.server.security.scram import keys_of_salted, salted_password
from kafkalog.server.security.state import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS

_FIRST: Final = re.compile(rb"r=(?P<nonce>[!-+\--~]+),s=(?P<salt>[A-Za-z0-9+/=]+),i=(?P<count>[0-9]{1,9})(?:,.*)?")
_FINAL: Final = re.compile(rb"v=(?P<signature>[A-Za-z0-9+/=]+)(?:,.*)?")
_HEADER: Final = b"n,,"
MAX_MESSAGE_BYTES: Final = 4096


class ScramClient:
    """One exchange: send `first`, answer the server's first message with `second`, check its last one with `verify`."""

    def __init__(self, mechanism: str, user: str, password: str, nonce: str | None = None) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = (secrets.token_urlsafe(24) if nonce is None else nonce).encode()
        name = user.replace("=", "=3D").replace(",", "=2C").encode()
        self._bare = b"n=" + name + b",r=" + self._nonce
        self._expected = b""

    def first(self) -> bytes:
        """Return the client's first message."""
        return _HEADER + self._bare

    def second(self, message: bytes) -> bytes:
        """Return the client's proof.

        Raises MalformedRequest for a nonce that does not extend ours, for a number of iterations outside of the limits,
        and for an invalid SCRAM message."""
        found = _FIRST.fullmatch(message) if len(message) <= MAX_MESSAGE_BYTES else None
        if found is None:
            raise MalformedRequest("the server's first message is not valid SCRAM")
        nonce, iterations = found["nonce"], int(found["count"])
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise MalformedRequest("the server's nonce does not start with ours")
        if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
            raise MalformedRequest(f"{iterations} iterations; must be {MIN_ITERATIONS} to {MAX_ITERATIONS}")
        digest = MECHANISMS[self._mechanism]
        salt = _decoded(found["salt"])
        salted = salted_password(self._mechanism, self._password, salt, iterations)
        keys = keys_of_salted(self._mechanism, salted, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", digest)
        bare = b"c=" + b64encode(_HEADER) + b",r=" + nonce
        auth_message = b",".join((self._bare, message, bare))
        signature = hmac.digest(hashlib.new(digest, client_key).digest(), auth_message, digest)
        self._expected = hmac.digest(keys.server_key, auth_message, digest)
        proof = bytes(one ^ other for one, other in zip(client_key, signature, strict=True))
        return bare + b",p=" + b64encode(proof)

    def verify(self, message: bytes) -> bool:
        """Return True if the server knows the password too. Raise MalformedRequest for an invalid last message."""
        found = _FINAL.fullmatch(message) if len(message) <= MAX_MESSAGE_BYTES else None
        if found is None:
            raise MalformedRequest("the server's final message is not valid SCRAM")
        return bool(self._expected) and hmac.compare_digest(_decoded(found["signature"]), self._expected)


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise MalformedRequest("a SCRAM field is not base64") from None
