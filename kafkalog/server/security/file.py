"""`kafkalog.security.json`: ACLs, quotas and users of a server, in its first data directory.

Replaced whole, synced, readable by its owner alone. A file that cannot be read ends the start: a server that took no
ACLs for none would be open.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from kafkalog.errors import CorruptCheckpoint, StorageError
from kafkalog.server.security.state import SecurityState, format_state, parse_state
from kafkalog.util.fileio import OS, FileSystem, atomic_write

if TYPE_CHECKING:
    from kafkalog.manager.known_topics import KnownTopics

SECURITY_FILE: Final = "kafkalog.security.json"
MAX_FILE_BYTES: Final = 64 << 20
_LOG: Final = logging.getLogger(__name__)

Change = Callable[[SecurityState], SecurityState]
Run = Callable[..., Awaitable[Any]]


def kept_by_broker(known: KnownTopics) -> SecurityState:
    """What a broker's metadata in the directories says of security; nothing without it. Errors of `security_of`."""
    if known.cluster is None:
        return SecurityState()
    from kafkalog.server.security.takeover import security_of

    return security_of(known.cluster.image)


class SecurityFile:
    """The file of a data directory, and what it said when it was read or written last: `state`.

    `before` gives what counts as long as there is no file, which the first change writes: what a broker has kept.
    `read` and `write` wait for the disk; `change` is for the loop.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        fs: FileSystem = OS,
        before: Callable[[], SecurityState] = SecurityState,
    ) -> None:
        self.path = os.path.join(os.fspath(directory), SECURITY_FILE)
        self.state = SecurityState()
        self.on_change: Callable[[], object] = lambda: None
        """Called on the loop when a change is on disk."""
        self._before = before
        self._fs = fs
        self.check_change: Callable[[], object] = lambda: None
        """Called before each change, and raises where none may begin."""
        self._changing = asyncio.Lock()

    def read(self) -> SecurityState:
        """What the file says, or what was before it. CorruptCheckpoint, StorageError; errors of `before`."""
        try:
            content = self._fs.read_file(self.path, MAX_FILE_BYTES)
        except FileNotFoundError:
            self.state = self._before()
            return self.state
        except OSError as error:
            raise StorageError.from_os(error, "read the ACLs and users", path=self.path) from error
        try:
            self.state = parse_state(content)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            hint = "repair it by hand, or move it away: then there are no ACLs, quotas and users"
            raise CorruptCheckpoint(f"the ACLs and users are damaged: {error}", path=self.path, hint=hint) from None
        if stat.S_IMODE(os.stat(self.path).st_mode) & 0o077:
            _LOG.warning("%s can be read by others than its owner: chmod 600 it", self.path)
        return self.state

    def write(self, state: SecurityState) -> None:
        """Put a state in the place of the file's. StorageError: the old one is there."""
        try:
            atomic_write(self._fs, self.path, format_state(state), private=True)
        except OSError as error:
            raise StorageError.from_os(error, "write the ACLs and users", path=self.path) from error
        self.state = state

    async def settled(self) -> None:
        """Return when no change that has begun goes on."""
        async with self._changing:
            pass

    async def change(self, run: Run, change: Change) -> SecurityState:
        """What `change` makes of the state, once it is on disk; one change goes after the other. StorageError.

        Errors of `change` reach the caller, and nothing has changed then.
        """
        async with self._changing:
            self.check_change()
            made = change(self.state)
            if made != self.state:
                await run(self.write, made)
                self.on_change()
            return self.state
