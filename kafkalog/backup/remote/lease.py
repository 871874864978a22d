"""Lease of a store of backups: only one run, on any machine, writes there at a time.

    kafkalog.objects.wanted-TOKEN    a run that asks for the lease
    kafkalog.objects.held-TOKEN      the run that has it; rewritten every minute

A run writes an object of its own, then lists those of other runs. Of two runs, the one that writes later sees the
other, so a store needs no conditional writes, only listings that have all that was written before. A run gives up if
another one has the lease. Of several that ask at the same moment, the one with the lowest token waits until the others
have given up. A run that has the lease lists once more: it may have been paused between the listing and the write.

A lease that was not renewed for ten minutes has ended. Its age is the difference of two times that the store itself
gave to objects, so the clocks of machines do not matter. On the machine of a killed run its lease ends at once: a lock
on a local file shows that the run is gone. The file stays until the objects of the run are removed.

A store that lets a run write and not delete keeps the objects of ended runs; their leases end as those of killed ones.
"""

from __future__ import annotations

import json
import os
import re
import socket
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from secrets import token_hex
from typing import TYPE_CHECKING, Final, NamedTuple

from kafkalog.errors import DirectoryLocked, StorageError
from kafkalog.util.clock import SYSTEM_CLOCK
from kafkalog.util.file_lock import open_locked
from kafkalog.util.fileio import OS, File
from kafkalog.util.times import time_text

if TYPE_CHECKING:
    from kafkalog.backup.remote.objects import StoredObjects

EXPIRES_S: Final = 600
RENEWED_EVERY_S: Final = 60
PREFIX: Final = "kafkalog.objects."
MAX_BYTES: Final = 1 << 12
_NAME: Final = re.compile(re.escape(PREFIX) + "(wanted|held)-([0-9a-f]{16})")
_TOKEN_BYTES: Final = 8
_WAIT_MS: Final = 10_000
_LOOK_MS: Final = 50
_HINT: Final = (
    f"wait until it finishes; {EXPIRES_S // 60} minutes after a machine was lost during a run, others can write"
)
_HINT_WITHOUT_TIMES: Final = "wait until it finishes; if it no longer exists, delete the object"


class _Other(NamedTuple):
    """Another run: its token, the names of its objects by state, the time of the last one, 0 if the store has none."""

    token: str
    names: dict[str, str]
    renewed_ns: int = 0

    @property
    def is_held(self) -> bool:
        """True if the run has the lease."""
        return "held" in self.names


class StoreLease:
    """Context manager with the lease of a store, for a run that is `doing` something ("a backup").

    Entering raises DirectoryLocked, which names the other run, and StorageError.
    """

    def __init__(self, store: StoredObjects, doing: str) -> None:
        self._store = store
        self._token = token_hex(_TOKEN_BYTES)
        self._wanted, self._held = (f"{PREFIX}{state}-{self._token}" for state in ("wanted", "held"))
        owner = {
            "doing": doing, "host": socket.gethostname(), "pid": os.getpid(), "since_ms": SYSTEM_CLOCK.milliseconds(),
        }  # fmt: skip
        self._content = json.dumps(owner).encode()
        self._is_lost = False
        self._confirmed_ms = 0, 0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._file: File | None = None

    def __enter__(self) -> StoreLease:
        self._file = _lock_file(self._token)
        try:
            self._acquire()
            self._thread = threading.Thread(target=self._keep, name="kafkalog-lease", daemon=True)
            self._thread.start()
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self._release()

    def check(self, *, now: bool = False) -> None:
        """Raise DirectoryLocked if the lease was lost: this run was paused for long, and another one took over.

        The store is asked if the last answer is older than a minute, and with `now`. StorageError.
        """
        since_ms = max(abs(time - before) for time, before in zip(_times_ms(), self._confirmed_ms, strict=True))
        if now or since_ms > RENEWED_EVERY_S * 1000:
            holder = self._confirm()
            if holder is not None:
                raise self._locked(holder)
        if self._is_lost:
            raise DirectoryLocked(
                "this run was paused for so long that another one took over", path=self._store.url,
                hint="run the command again: what was uploaded is not uploaded twice",
            )  # fmt: skip

    # Taking and keeping it

    def _acquire(self) -> None:
        self._store.put_note(self._wanted, self._content)
        deadline_ms = SYSTEM_CLOCK.monotonic_ms() + _WAIT_MS
        while True:
            others, ended = self._others(self._store.times())
            for one in others:
                if one.is_held or one.token < self._token or SYSTEM_CLOCK.monotonic_ms() > deadline_ms:
                    raise self._locked(one)
            if not others:
                break
            SYSTEM_CLOCK.sleep(_LOOK_MS)
        self._store.put_note(self._held, self._content)
        self._remove(self._wanted)
        self.check(now=True)
        for one in ended:
            if self._remove(*one.names.values()):
                with suppress(OSError):
                    OS.unlink_if_exists(_lock_path(one.token))

    def _remove(self, *names: str) -> bool:
        """Delete objects; return False if the store refuses: they count until their lease ends."""
        is_removed = True
        for name in names:
            try:
                self._store.remove_note(name)
            except StorageError:
                is_removed = False
        return is_removed

    def _others(self, times: Mapping[str, int]) -> tuple[list[_Other], list[_Other]]:
        """Return the other runs, those that have the lease first, and the runs whose leases have ended."""
        own_ns = max(times.get(self._held, 0), times.get(self._wanted, 0))
        found: dict[str, _Other] = {}
        for name in times:
            parts = _NAME.fullmatch(name)
            if parts is not None and parts[2] != self._token:
                found.setdefault(parts[2], _Other(parts[2], {})).names[parts[1]] = name
        others, ended = list[_Other](), list[_Other]()
        for one in found.values():
            renewed_ns = max(times[name] for name in one.names.values())
            is_expired = own_ns > 0 < renewed_ns and own_ns - renewed_ns > EXPIRES_S * 1_000_000_000
            is_ended = is_expired or _is_gone(one.token)
            (ended if is_ended else others).append(one._replace(renewed_ns=renewed_ns))
        return sorted(others, key=lambda one: (not one.is_held, one.token)), ended

    def _confirm(self) -> _Other | None:
        """Record whether this run still has the lease; return the run that has it instead."""
        asked_ms = _times_ms()
        times = self._store.times()
        holder = next((one for one in self._others(times)[0] if one.is_held), None)
        if self._held in times and holder is None:
            self._confirmed_ms = asked_ms
        else:
            self._is_lost = True
        return holder

    def _keep(self) -> None:
        """Renew the lease until the run ends, or another one took over."""
        while not self._ended.wait(RENEWED_EVERY_S):
            with suppress(StorageError):
                self._confirm()
                if self._is_lost:
                    return
                self._store.put_note(self._held, self._content)

    def _release(self) -> None:
        self._ended.set()
        if self._thread is not None and self._thread.ident is not None:
            self._thread.join()
        is_removed = self._remove(self._held, self._wanted)
        if self._file is not None:
            if is_removed:  # else the file shows this machine's next run that this one ended; others wait
                with suppress(OSError):
                    OS.unlink_if_exists(self._file.path)
            self._file.close()

    def _locked(self, other: _Other) -> DirectoryLocked:
        name = next(iter(other.names.values()))
        hint = _HINT if other.renewed_ns else f"{_HINT_WITHOUT_TIMES} {self._store.url_of(name)}"
        who = _owner_text(self._store.note(name))
        return DirectoryLocked(f"{who} is writing to the store", path=self._store.url, hint=hint)


def _owner_text(content: bytes) -> str:
    """Return the owner of a lease as an error names it; the content of the object is not trusted.

    >>> _owner_text(b'{"doing": "a backup", "host": "db-1", "pid": 7, "since_ms": 0}')
    'a backup by process 7 on db-1, which began at 1970-01-01T00:00:00Z,'
    >>> _owner_text(b"")
    'another run'
    """
    try:
        found = json.loads(content)
        doing, host = (re.sub(r"[^\w .:-]", "?", str(found[name])[:80]) for name in ("doing", "host"))
        return f"{doing} by process {int(found['pid'])} on {host}, which began at {time_text(int(found['since_ms']))},"
    except (ValueError, TypeError, LookupError, RecursionError, OverflowError, OSError):
        return "another run"


def _times_ms() -> tuple[int, int]:
    """Return the time by two clocks, since the monotonic one stops while a machine sleeps."""
    return SYSTEM_CLOCK.monotonic_ms(), SYSTEM_CLOCK.milliseconds()


def _lock_path(token: str) -> str:
    return os.path.join(tempfile.gettempdir(), f"kafkalog-lease-{token}")


def _lock_file(token: str) -> File | None:
    """Return a locked local file, by which runs on this machine see that this one is alive; None without a place."""
    try:
        return open_locked(OS, _lock_path(token), "exclusive")
    except OSError:
        return None


def _is_gone(token: str) -> bool:
    """Return True if the run was on this machine and no longer exists."""
    try:
        file = open_locked(OS, _lock_path(token), "rw", shared=True)  # other runs may check at the same moment
    except OSError:  # it is of another machine, or another user's
        return False
    if file is None:
        return False
    file.close()
    return True
