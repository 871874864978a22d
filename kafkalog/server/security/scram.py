"""The server's side of SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), and the keys stored for a password.

Comparisons take constant time. An unknown user gets the same kind of first answer as a known one.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Final

from kafkalog.errors import IllegalArgument
from kafkalog.server.security.state import MAX_ITERATIONS, MECHANISMS, MIN_ITERATIONS, ScramKeys

_FIRST: Final = re.compile(
    r"(?P<header>[ny],(?:a=(?P<authzid>[^,]+))?,)(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[!-+\--~]+)(?:,.*)?)", re.DOTALL
)
_FINAL: Final = re.compile(
    r"(?P<bare>c=(?P<binding>[A-Za-z0-9+/=]+),r=(?P<nonce>[!-+\--~]+)(?:,[a-zA-Z]=[^,]*)*),p=(?P<proof>[A-Za-z0-9+/=]+)",
    re.DOTALL,
)
NUMBERS: Final = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Mechanisms and their numbers in the protocol."""
USUAL_SALT_BYTES: Final = 24
MAX_MESSAGE_BYTES: Final = 2048
"""Limit of a message, since an exchange keeps an unauthenticated client's text in memory."""
_SECRET: Final = secrets.token_bytes(32)


class LoginFailed(Exception):
    """Failed authentication or violation of the protocol; the text is for the log, not for the client."""


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """Return `SaltedPassword` of RFC 5802."""
    return hashlib.pbkdf2_hmac(MECHANISMS[mechanism], password.encode(), salt, iterations)


def keys_of_salted(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramKeys:
    """Return the keys stored for a salted password."""
    digest = MECHANISMS[mechanism]
    client_key = hmac.digest(salted, b"Client Key", digest)
    stored_key = hashlib.new(digest, client_key).digest()
    return ScramKeys(salt, stored_key, hmac.digest(salted, b"Server Key", digest), iterations)


def keys_of_password(mechanism: str, password: str, iterations: int = MIN_ITERATIONS) -> ScramKeys:
    """Return the keys stored for a new password, with a new salt. IllegalArgument for invalid `iterations`."""
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise IllegalArgument(f"{iterations} iterations; must be {MIN_ITERATIONS} to {MAX_ITERATIONS}")
    salt = secrets.token_bytes(USUAL_SALT_BYTES)
    return keys_of_salted(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def password_matches(mechanism: str, password: str, keys: ScramKeys) -> bool:
    """Return True if the keys belong to this password."""
    salted = salted_password(mechanism, password, keys.salt, keys.iterations)
    computed = keys_of_salted(mechanism, salted, keys.salt, keys.iterations)
    return hmac.compare_digest(computed.stored_key, keys.stored_key)


class ScramServer:
    """One exchange: call `answer` twice, then `user` is the authenticated user.

    `keys_of` returns a user's keys, or None. `usual` is the salt's size in bytes and the iterations for an unknown
    user, so that the first answer does not reveal which users are known.
    """

    def __init__(
        self,
        mechanism: str,
        keys_of: Callable[[str], ScramKeys | None],
        usual: tuple[int, int] = (USUAL_SALT_BYTES, MIN_ITERATIONS),
    ) -> None:
        self.mechanism = mechanism
        self.user: str | None = None
        self._digest = MECHANISMS[mechanism]
        self._keys_of = keys_of
        self._usual = usual
        self._name = ""
        self._keys: ScramKeys | None = None
        self._is_known = False
        self._header = ""
        self._nonce = ""
        self._auth_message = ""

    def answer(self, message: bytes) -> bytes:
        """Return the answer to a message of the client. LoginFailed ends the exchange."""
        if len(message) > MAX_MESSAGE_BYTES or self.user is not None:
            raise LoginFailed("an extra message, or one that is too long")
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise LoginFailed("the message is not UTF-8") from None
        return self._second(text) if self._keys is not None else self._first(text)

    def _first(self, text: str) -> bytes:
        match = _FIRST.fullmatch(text)
        if match is None:
            raise LoginFailed("the first message is not valid SCRAM without channel binding")
        self._name = _sasl_name(match["user"])
        if match["authzid"] is not None and _sasl_name(match["authzid"]) != self._name:
            raise LoginFailed("the user asks to act as another user")
        keys = self._keys_of(self._name)
        self._is_known = keys is not None
        self._keys = keys or _unknown_user_keys(self._digest, self._name, *self._usual)
        self._header = match["header"]
        self._nonce = match["nonce"] + secrets.token_urlsafe(24)
        first = f"r={self._nonce},s={b64encode(self._keys.salt).decode()},i={self._keys.iterations}"
        self._auth_message = f"{match['bare']},{first}"
        return first.encode()

    def _second(self, text: str) -> bytes:
        match = _FINAL.fullmatch(text)
        if match is None or self._keys is None:
            raise LoginFailed("the final message is not valid SCRAM")
        if not hmac.compare_digest(match["nonce"], self._nonce) or _decoded(match["binding"]) != self._header.encode():
            raise LoginFailed("the final message has another nonce or header than the first")
        auth_message = f"{self._auth_message},{match['bare']}".encode()
        signature = hmac.digest(self._keys.stored_key, auth_message, self._digest)
        proof = _decoded(match["proof"])
        client_key = bytes(one ^ other for one, other in zip(proof, signature, strict=False))
        stored_key = hashlib.new(self._digest, client_key).digest()
        matches = hmac.compare_digest(stored_key, self._keys.stored_key)
        if not (matches and self._is_known and len(proof) == len(signature)):
            raise LoginFailed("wrong password or unknown user")
        self.user = self._name
        return b"v=" + b64encode(hmac.digest(self._keys.server_key, auth_message, self._digest))


def _unknown_user_keys(digest: str, name: str, salt_bytes: int, iterations: int) -> ScramKeys:
    """Return keys for an unknown user, the same at each try; no password matches them."""
    computed = hmac.digest(_SECRET, name.encode(), digest)
    salt = b"".join(hmac.digest(computed, bytes([part]), digest) for part in range(salt_bytes // len(computed) + 1))
    return ScramKeys(salt[:salt_bytes], computed, computed, iterations)


def _sasl_name(text: str) -> str:
    """Unescape a name: `=2C` is a comma, `=3D` an equals sign. LoginFailed for other escapes."""
    if re.search("=(?!2C|3D)", text):
        raise LoginFailed("the name has an invalid escape")
    return text.replace("=2C", ",").replace("=3D", "=")


def _decoded(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise LoginFailed("a field is not base64") from None
