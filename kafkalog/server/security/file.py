"""`kafkalog.security.json`: ACLs, quotas and users of a server, in one of its data directories.

A write replaces and syncs the whole file, which only its owner can read. The server does not start if the file cannot
be read, since it would be open without its ACLs.
"""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.errors import CorruptCheckpoint, IllegalArgument, IllegalState, PolicyViolation
from kafkalog.server.node.changing import Changing
from kafkalog.server.security.state import SecurityState, digest, format_state, parse_state, parse_taken_from
from kafkalog.util.fileio import OS, FileSystem, atomic_write
from kafkalog.util.os_errors import os_errors, read_if_present

if TYPE_CHECKING:
    from kafkalog.manager.known_topics import KnownTopics
    from kafkalog.server.node.pool import Run

SECURITY_FILE: Final = "kafkalog.security.json"
MAX_FILE_BYTES: Final = 64 << 20
_LOG: Final = logging.getLogger(__name__)

Change = Callable[[SecurityState], SecurityState]


def kept_by_broker(known: KnownTopics, topics: Iterable[str]) -> SecurityState:
    """Return the users, ACLs and quotas in a broker's metadata; an empty state without metadata.

    `topics` are those in the directories. IllegalArgument if the metadata is only the broker's initial one and the
    broker has created topics since: its current metadata is in a directory that was not given. Raises the errors of
    `security_of`.
    """
    if known.cluster is None:
        return SecurityState()
    from kafkalog.server.security.takeover import security_of

    state = security_of(known.cluster.image)
    newer_topics = [topic for topic in sorted(topics) if known.settings_of(topic) is None]
    if known.cluster.rank == 0 and state != SecurityState() and newer_topics:
        raise IllegalArgument(
            f"the users and ACLs here are a broker's initial ones; it has created topic {newer_topics[0]} since",
            path=known.cluster.bootstrap_path,
            hint="also give the data directory with __cluster_metadata-0, which has the current users",
        )
    return state


def security_directory(directories: Sequence[str | os.PathLike[str]], *, fs: FileSystem = OS) -> str:
    """Return the directory of a server's security file: the one that has it, else the first.

    IllegalArgument if more than one has it, since it is unclear which one applies.
    """
    paths = [os.fspath(path) for path in directories]
    found = [path for path in dict.fromkeys(paths) if fs.exists(os.path.join(path, SECURITY_FILE))]
    if len(found) > 1:
        raise IllegalArgument(
            f"{found[1]} has a {SECURITY_FILE} too", path=os.path.join(found[0], SECURITY_FILE),
            hint="both define users and ACLs: move the outdated one away",
        )  # fmt: skip
    return found[0] if found else paths[0]


class SecurityFile(Changing):
    """The security file of a data directory, and its content when last read or written: `state`.

    `before` returns the state of a broker in the directories. It applies until the first change writes the file. The
    file keeps its digest, so that later changes by the broker are detected.
    `read` and `write` block on the disk; `change` is for the event loop.
    """

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        fs: FileSystem = OS,
        before: Callable[[], SecurityState] | None = None,
    ) -> None:
        super().__init__()
        self.path = os.path.join(os.fspath(directory), SECURITY_FILE)
        self.state = SecurityState()
        self.on_change: Callable[[], object] = lambda: None
        """Called on the event loop once a change is on disk."""
        self._before = before
        self._taken_from: str | None = None
        self._fs = fs

    def read(self) -> SecurityState:
        """Read and return the file's state, or the broker's state if there is no file.

        IllegalState if the broker has changed its users, ACLs or quotas since the file took them over, since it is
        unclear which ones apply. CorruptCheckpoint, StorageError; errors of `before`.
        """
        content = read_if_present(self.path, MAX_FILE_BYTES, "read the ACLs and users", self._fs)
        if content is None:
            self.state = SecurityState() if self._before is None else self._before()
            self._taken_from = None if self._before is None else digest(self.state)
            return self.state
        try:
            self.state, self._taken_from = parse_state(content), parse_taken_from(content)
        except (ValueError, TypeError, OverflowError, RecursionError) as error:
            hint = "repair it by hand, or move it away to start without ACLs, quotas and users"
            raise CorruptCheckpoint(f"the ACLs and users are damaged: {error}", path=self.path, hint=hint) from None
        if self._before is not None and self._taken_from not in (None, digest(self._before())):
            raise IllegalState(
                "the broker has changed users, ACLs or quotas since this file took them over", path=self.path,
                hint="move the file away to use the broker's, or delete its taken_from line to keep those in the file",
            )  # fmt: skip
        if stat.S_IMODE(os.stat(self.path).st_mode) & 0o077:
            _LOG.warning("%s is readable by others than its owner: chmod 600 it", self.path)
        return self.state

    def write(self, state: SecurityState) -> None:
        """Replace the file's state. PolicyViolation if it is too large, StorageError; `state` is unchanged then."""
        content = format_state(state, self._taken_from)
        if len(content) > MAX_FILE_BYTES:  # the next start would reject it
            raise PolicyViolation(f"the ACLs, quotas and users would exceed {MAX_FILE_BYTES} bytes", path=self.path)
        with os_errors("write the ACLs and users", self.path):
            atomic_write(self._fs, self.path, content, private=True)
        self.state = state

    async def change(self, run: Run, change: Change) -> SecurityState:
        """Apply `change` to the state, write and return the result. Changes run one after the other. Raises as `write`.

        `run` calls both in a thread: a request may name many ACLs. Errors of `change` are raised to the caller;
        nothing has changed then.
        """
        async with self._changing:
            self.check_change()
            new_state = await run(change, self.state)
            if new_state != self.state:
                await run(self.write, new_state)
                self.on_change()
            return self.state
