"""The users of a server: their keys and the check of passwords."""

from __future__ import annotations

import asyncio
import hmac
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkalog.server.node.parts import Part
from kafkalog.server.security.file import SecurityFile, kept_by_broker, security_directory
from kafkalog.server.security.jaas import own_login, plain_users
from kafkalog.server.security.state import MECHANISMS, MIN_ITERATIONS, ScramKeys

if TYPE_CHECKING:
    from kafkalog.server.node.node import Node
    from kafkalog.server.node.pool import Run
    from kafkalog.server.security.scram import ScramServer

_CHECKS: Final = 2
"""Limit of concurrent password checks, so that clients cannot occupy the threads that the log needs."""
_UNKNOWN_USER_KEYS: Final = ScramKeys(bytes(24), bytes(32), bytes(32), MIN_ITERATIONS)


class Credentials(Part):
    """The users in a security file. PLAIN is checked with the keys of SCRAM, so no password is stored in plain text.

    `login` is the user and password in the settings of a replica set's nodes. With it, a node accepts the other nodes
    before it has the leader's users.
    """

    def __init__(self, file: SecurityFile, run: Run, login: tuple[str, str] | None = None) -> None:
        self.file = file
        self._login = login
        self._login_keys: dict[str, ScramKeys] = {}
        self._run = run
        self._checking = asyncio.Semaphore(_CHECKS)
        self._seen_users: object = None
        self._parameters_by_mechanism: dict[str, tuple[int, int]] = {}  # by mechanism, for the users in _seen

    async def start(self) -> None:
        """Read the file. CorruptCheckpoint, StorageError."""
        await self._run(self.file.read)
        if self._login is not None:
            from kafkalog.server.security.scram import keys_of_password

            for mechanism in MECHANISMS:
                self._login_keys[mechanism] = await self._run(keys_of_password, mechanism, self._login[1])

    def keys_of(self, user: str, mechanism: str) -> ScramKeys | None:
        """Return a user's keys for a mechanism, or None."""
        if self._login is not None and user == self._login[0]:
            return self._login_keys.get(mechanism)
        return self.file.state.users.get(user, {}).get(mechanism)

    def scram(self, mechanism: str) -> ScramServer:
        """Begin an exchange."""
        from kafkalog.server.security.scram import ScramServer

        return ScramServer(mechanism, lambda user: self.keys_of(user, mechanism), self._usual_parameters(mechanism))

    def _usual_parameters(self, mechanism: str) -> tuple[int, int]:
        """Return the most common (salt bytes, iterations) of a mechanism's users."""
        users = self.file.state.users
        if users is not self._seen_users:
            self._seen_users = users
            self._parameters_by_mechanism.clear()
        found = self._parameters_by_mechanism.get(mechanism)
        if found is None:
            from kafkalog.server.security.scram import USUAL_SALT_BYTES

            stored = [keys[mechanism] for keys in users.values() if mechanism in keys]
            counts = Counter((len(one.salt), one.iterations) for one in stored)
            found = counts.most_common(1)[0][0] if counts else (USUAL_SALT_BYTES, MIN_ITERATIONS)
            self._parameters_by_mechanism[mechanism] = found
        return found

    async def is_password(self, user: str, password: str) -> bool:
        """Return True if this is the user's password. For an unknown user, a check runs as well."""
        from kafkalog.server.security.scram import password_matches

        if self._login is not None and user == self._login[0]:
            return hmac.compare_digest(self._login[1].encode(), password.encode())
        async with self._checking:
            stored = self.file.state.users.get(user, {})
            for mechanism in MECHANISMS:
                if mechanism in stored:
                    return bool(await self._run(password_matches, mechanism, password, stored[mechanism]))
            await self._run(password_matches, "SCRAM-SHA-256", password, _UNKNOWN_USER_KEYS)
            return False


def make(node: Node) -> Credentials:
    """Return the users of a node. ConfigError for invalid users in the settings, IllegalArgument for two files."""
    for name, value in node.config.given().items():
        if name.endswith(".plain.sasl.jaas.config"):
            plain_users(value)
    topics = {topic_partition.topic for topic_partition in node.store.logs}
    directory = security_directory([one.path for one in node.store.directories])
    jaas = node.config["kafkalog.replicas.jaas.config"]
    login = own_login(jaas) if jaas and node.config["kafkalog.replicas"] else None
    return Credentials(SecurityFile(directory, before=partial(kept_by_broker, node.known, topics)), node.run, login)
